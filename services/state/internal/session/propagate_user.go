package session

// passUserOn gives the new user of a member to its local children, whatever their status: a family
// belongs to one user.
func (s *propagation) passUserOn(m *member) {
	before, after := m.view.Session, m.after()
	if before == nil || after == nil || before.UserID == after.UserID || after.Children == 0 {
		return
	}
	if m = s.findAll(m, needDeleted); m == nil {
		return
	}
	for _, row := range m.children() {
		if row.Location != Local {
			continue
		}
		child := s.find(Key{m.target.Tenant, row.SessionID}, needDeleted)
		if child == nil || child.after() == nil || child.after().ParentID != m.target.SessionID || child.after().UserID == after.UserID {
			continue
		}
		child.touch(s.Now).UserID = after.UserID
		s.passUserOn(child)
	}
}
