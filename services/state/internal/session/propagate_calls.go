package session

// The calls of children. A parent awaits a child with open calls of kind SubAgent, which name the
// child. A companion may have several. Exactly one of these closes a call:
//
//	the child ends            the answer is its end, for each of its calls, and the parent may continue
//	anything else closes it   an ephemeral child fails (parent_failed)

// beginChildren creates the new children of a member's step.
func (s *propagation) beginChildren(m *member) error {
	if m.change == nil {
		return nil
	}
	for _, n := range m.change.newChildren {
		child := s.find(Key{m.target.Tenant, n.SessionID}, Need{AgentType: n.AgentType})
		if child == nil {
			continue
		}
		if child.after() != nil {
			return sessionExists(n.SessionID)
		}
		child.replaceChange(n.begin(m.after(), &m.change.Runs[0], child.view.Agent, s.Now))
	}
	if len(s.missing.targets) == 0 {
		m.change.newChildren = nil
	}
	return nil
}

// settles reports whether a child with this status answers its call. A companion that waits for
// a client answers, too. Otherwise its parent would wait as long as the client takes.
func (c Child) settles(status Status) bool {
	return status.Terminal() || c.Mode == Persistent && status.Suspended() && status != SuspendedAwaitingChildren
}

// answerNewCalls answers the new calls of a member for children that have ended before.
func (s *propagation) answerNewCalls(m *member) {
	if m.change == nil {
		return
	}
	for _, call := range m.change.NewCalls {
		if !call.awaitsChild() {
			continue
		}
		for _, row := range m.children() {
			if !call.isFor(row) || !row.settles(row.Status) {
				continue
			}
			if child := s.find(Key{m.target.Tenant, row.SessionID}, Need{}); child != nil && child.after() != nil {
				s.answerCallsOf(m, child.after(), row.Status)
			}
		}
	}
}

// answerCallsOf answers the parent's calls for a child with this status, if the status settles them.
func (s *propagation) answerCallsOf(parent *member, child *Session, status Status) {
	row, known := parent.child(child.SessionID)
	if !known || !row.settles(status) {
		return
	}
	for _, call := range parent.openCallsOf(row) {
		room := s.MaxUnread - parent.change.UnreadBytes(parent.view)
		parent.touch(s.Now)
		parent.change.putCall(call.withAnswer(AnswerChild, s.ChildEnd(child, status, room), s.Now))
		parent.answered = true
	}
}

// endUnneededChildren ends the children whose calls the member's change has closed.
func (s *propagation) endUnneededChildren(m *member) error {
	if !m.mayCloseCalls() {
		return nil
	}
	if m = s.findAll(m, needCalls); m == nil {
		return nil
	}
	for _, id := range m.unneededChildren() {
		if err := s.endChild(m, id); err != nil {
			return err
		}
	}
	return nil
}

// interruptChildren passes the interrupt of a member on to its local children: a live run gets
// the stop, a suspended child is interrupted at once.
func (s *propagation) interruptChildren(m *member) {
	if m.after().Children == 0 {
		return
	}
	if m = s.findAll(m, needCalls); m == nil {
		return
	}
	stop := Stop{Kind: StopInterrupt, At: s.Now}
	if i := m.after().Interruption; i != nil {
		stop.Reason = i.Reason
	}
	for _, row := range m.children() {
		if row.Location != Local || row.Status != Active && !row.Status.Suspended() {
			continue
		}
		child := s.find(Key{m.target.Tenant, row.SessionID}, needChild)
		if child == nil || child.after() == nil || child.after().ParentID != m.target.SessionID {
			continue
		}
		if child.interrupt(stop, s.Now) {
			m.recordChild(child.after(), Interrupted, nil, s.Now)
			s.interruptChildren(child)
		}
	}
}

// interrupt stops the member. It reports whether the member is interrupted at once.
func (m *member) interrupt(stop Stop, now Millis) bool {
	switch {
	case m.change != nil && m.change.NewRun != nil: // it begins with this write
		m.change.NewRun.addStop(stop)
	case m.view.Live != nil:
		live := *m.view.Live
		if live.addStop(stop) {
			m.replaceChange(&Change{Runs: []Run{live}})
		}
	case m.after().Status.Suspended():
		s := *m.after()
		s.applyStop(stop, s.CurrentRunID, now)
		m.replaceChange(forcedEnd{s.Status, s.Failure, s.Interruption, now}.change(m.view))
		return true
	}
	return false
}

// resumeChildren resumes the interrupted children that a resumed member awaits.
func (s *propagation) resumeChildren(m *member) {
	if m.after().Children == 0 {
		return
	}
	if m = s.findAll(m, needCalls); m == nil {
		return
	}
	for _, row := range m.children() {
		if len(m.openCallsOf(row)) == 0 || row.Location != Local || row.Status != Interrupted && row.Status != Paused {
			continue
		}
		child := s.find(Key{m.target.Tenant, row.SessionID}, needResume)
		if child == nil || child.after() == nil || child.after().Status != row.Status || child.view.Current == nil {
			continue
		}
		after := child.touch(s.Now)
		child.change.NewRun = after.beginResume(child.view.Current, s.NewID(), s.Now)
		child.change.NewRun.StartedBy, child.change.NewRun.Author = m.change.NewRun.StartedBy, m.change.NewRun.Author
		m.recordChild(after, Active, nil, s.Now)
		s.resumeChildren(child)
	}
}

// findAll returns the member if its view has these rows. Otherwise it returns nil and records the
// member as missing. Unlike find, it checks the view of the command's own session too.
func (s *propagation) findAll(m *member, need Need) *member {
	if m.target.Need.covers(need) {
		return m
	}
	s.missing.add(Target{Key: m.target.Key, Need: need})
	return nil
}
