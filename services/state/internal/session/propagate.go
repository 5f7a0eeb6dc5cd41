package session

import "errors"

// Family lets what happens to one session reach its family.
type Family struct {
	Now     Millis
	NewID   func() string // gives the id of a continuation that is needed, also in a try that comes to nothing
	Targets []Target      // those of the views, in their order; may be nil when there is but one

	// Abandon gives the answers to the calls that are open when a run that has waited
	// begins: nobody waits for them any more. Nil leaves them open.
	Abandon func(Call) []byte
}

// What a session of the family is shown with.
var (
	needParent  = Need{Current: true, Open: true, Calls: true, Children: true} // it is told of a child, and may be woken
	needChild   = Need{Open: true, Journal: true, Calls: true, Children: true} // it fails with its parent
	needDeleted = Need{Children: true}                                         // it is deleted with its parent
)

// Spread adds to a command's change what follows from it: what the parent
// knows of the session, the continuation of those that wait for nothing any
// more, and the end of the sub-sessions of one that has failed or goes away.
// views[0] is the command's own session, the others are those that were asked
// for. There is one change for each view; none at all when own is nil.
//
// It gives Wider when it has to see more. own belongs to it from then on.
func (f Family) Spread(views []*View, own *Change) ([]*Change, error) {
	if own == nil {
		return nil, nil
	}
	s, err := f.newPropagation(views, own)
	if err != nil {
		return nil, err
	}
	if err := s.propagate(s.members[0]); err != nil {
		return nil, err
	}
	if len(s.missing.targets) > 0 {
		return nil, &Wider{s.missing.targets}
	}
	changes := make([]*Change, len(views))
	for i, m := range s.members {
		changes[i] = m.change
	}
	return changes, nil
}

// propagation is one Spread on its way.
type propagation struct {
	Family
	members []*member // one for each view
	byKey   map[Key]*member
	missing targetList
}

func (f Family) newPropagation(views []*View, own *Change) (*propagation, error) {
	targets := f.Targets
	if len(views) == 1 && targets == nil {
		targets = make([]Target, 1)
		if shown := own.Session; shown != nil {
			targets[0].Key = shown.Key
		} else if shown := views[0].Session; shown != nil {
			targets[0].Key = shown.Key
		}
	}
	if len(targets) != len(views) {
		// The view of a deleted session does not name the session.
		return nil, errors.New("spread over a family: Family.Targets has to name the session of each view")
	}
	s := &propagation{Family: f, byKey: make(map[Key]*member, len(views))}
	for i, v := range views {
		m := &member{target: targets[i], view: v}
		s.members = append(s.members, m)
		if _, twice := s.byKey[m.target.Key]; !twice {
			s.byKey[m.target.Key] = m
		}
	}
	s.members[0].change = own
	return s, nil
}

// find returns the session when the views show it with what need names. Else
// it is nil, and noted as missing.
func (s *propagation) find(key Key, need Need) *member {
	if m := s.byKey[key]; m != nil && (m == s.members[0] || m.target.Need.covers(need)) {
		return m
	}
	s.missing.add(Target{key, need})
	return nil
}

// propagate looks at what has become of a session so far, and passes it on. A run
// that fails takes the sub-sessions with it even though another one begins.
func (s *propagation) propagate(m *member) error {
	s.continueIfReady(m)
	ends := m.isDeleted() || m.fails()
	if !s.startWaitingRun(m) {
		return nil
	}
	if m.statusChanged() || m.expiryChanged() {
		if err := s.notifyParent(m); err != nil {
			return err
		}
	}
	if ends {
		return s.endChildren(m)
	}
	for _, id := range m.childrenToEnd() {
		if err := s.endChild(m, id); err != nil {
			return err
		}
	}
	return nil
}

// continueIfReady continues a session that has come to wait, or was told something, and
// waits for nothing any more. What is shown of a session whose suspension is as
// it was may leave out its calls; it is left alone.
func (s *propagation) continueIfReady(m *member) {
	before, after := m.view.Session, m.after()
	if before == nil || after == nil || !after.Status.Suspended() || after.Suspension == before.Suspension {
		return
	}
	if after.isWaiting(m.change.unconsumedCalls(m.view)) {
		return
	}
	if m.view.Current == nil {
		if !m.target.Need.Current {
			s.missing.add(Target{m.target.Key, Need{Current: true}})
		}
		return
	}
	after = m.touch(s.Now)
	m.change.NewRun = after.beginContinuation(m.view.Current, s.NewID(), s.Now)
}

// notifyParent tells the parent what has become of the session. A parent that is gone,
// or that knows of no such child, is another one's business.
func (s *propagation) notifyParent(m *member) error {
	child := m.lastKnown()
	if child.ParentID == "" {
		return nil
	}
	parent := s.find(Key{child.Tenant, child.ParentID}, needParent)
	if parent == nil || parent.after() == nil {
		return nil
	}
	status := child.Status
	if m.isDeleted() {
		status = Failed // nothing will come of it
	}
	if parent.recordChild(child, status, m.change.newChild, s.Now) {
		return s.propagate(parent)
	}
	return nil
}

// endChildren ends the local sub-sessions of a session that has failed, or deletes
// those of one that goes away. A session that ends waits for nobody, and its own
// parent has learned of it: so its children tell it, and it tells nobody more.
func (s *propagation) endChildren(m *member) error {
	before := m.view.Session
	if before == nil || before.Children == 0 && len(m.change.Children) == 0 {
		return nil
	}
	if before.Children > 0 && len(m.view.Children) == 0 && !m.target.Need.Children {
		s.missing.add(Target{m.target.Key, needDeleted})
		return nil
	}
	for _, row := range m.children() {
		if row.Location != Local || !m.isDeleted() && row.Status.Terminal() {
			continue
		}
		if err := s.endChild(m, row.SessionID); err != nil {
			return err
		}
	}
	return nil
}

// endChild lets a sub-session share its parent's end. A session that has taken over
// the id of one that was deleted has another parent, or none, and is spared.
func (s *propagation) endChild(parent *member, childID string) error {
	need := needChild
	if parent.isDeleted() {
		need = needDeleted
	}
	child := s.find(Key{parent.target.Tenant, childID}, need)
	if child == nil || child.after() == nil || child.after().ParentID != parent.target.SessionID {
		return nil
	}
	switch {
	case parent.isDeleted():
		child.replaceChange(&Change{Delete: true})
	case child.after().Status.Terminal():
		return nil
	default:
		failure := &Failure{Error: "The parent session has ended.", Code: codeCancelled, Reason: ParentFailed}
		child.replaceChange(forcedEnd{status: Failed, failure: failure, now: s.Now}.change(child.view))
		child.change.endWaiting = true
		parent.recordChild(child.after(), Failed, nil, s.Now)
		if !s.startWaitingRun(child) {
			return nil
		}
	}
	return s.endChildren(child)
}
