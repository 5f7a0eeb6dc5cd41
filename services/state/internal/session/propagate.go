package session

import "errors"

// Family applies the consequences of a command for other sessions of the family.
type Family struct {
	Now     Millis
	NewID   func() string // the id of a continuation; may be called without using the id
	Targets []Target      // of the views, in their order; may be nil for a single view

	// Abandon returns the answer to a call that is still open when a waiting run begins.
	// Nil leaves such calls open.
	Abandon func(Call) []byte

	// ChildEnd returns the answer to the call of a child with this status. session is the child,
	// or the child before its deletion. The answer has at most room bytes, if it has an output.
	ChildEnd func(child *Session, status Status, room int) []byte
	// MaxUnread bounds the unread answers of a session in bytes.
	MaxUnread int
}

// The rows of a family member.
var (
	needParent  = Need{Current: true, Live: true, Calls: true, Children: true}                // records a child, and may continue
	needChild   = Need{Live: true, Journal: true, Calls: true, Children: true}                // fails with its parent
	needDeleted = Need{Children: true, Stored: true}                                          // is deleted with its parent
	needCalls   = Need{Calls: true, Children: true}                                           // stops or resumes its children
	needResume  = Need{Current: true, Calls: true, Children: true}                            // is resumed with its parent
	needStopped = Need{Current: true, Live: true, Journal: true, Calls: true, Children: true} // is stopped for its parent
)

// Propagate adds the consequences to own, the change of a command in views[0]: the parent's
// record of the session, its user in its children, the answers of ended children, the continuation of suspended
// ancestors, the start of a waiting run, and the start, stop and end of children. The other views answer earlier IncompleteViewErrors. It
// returns one change per view, or nil for a nil own, and owns own from then on.
//
// It gives an IncompleteViewError to see more of the family.
func (f Family) Propagate(views []*View, own *Change) ([]*Change, error) {
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
		return nil, &IncompleteViewError{s.missing.targets}
	}
	changes := make([]*Change, len(views))
	for i, m := range s.members {
		changes[i] = m.change
	}
	return changes, nil
}

// propagation is the state of one Propagate.
type propagation struct {
	Family
	members []*member // one per view
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
		// The view of a deleted session has no key.
		return nil, errors.New("propagate to the family: Family.Targets must name the session of each view")
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

// find returns the member if the views have it with these rows. Otherwise it returns nil and
// records the member as missing.
func (s *propagation) find(key Key, need Need) *member {
	if m := s.byKey[key]; m != nil && (m == s.members[0] || m.target.Need.covers(need)) {
		return m
	}
	s.missing.add(Target{Key: key, Need: need})
	return nil
}

// propagate applies the consequences of a member's change. Children of a failed run end even
// if a waiting run begins.
func (s *propagation) propagate(m *member) error {
	if err := s.beginChildren(m); err != nil {
		return err
	}
	s.answerNewCalls(m)
	s.continueIfReady(m)
	if m.change != nil && m.change.stopsWork != nil {
		s.stopAwaited(m, *m.change.stopsWork)
	}
	s.interruptIdle(m)
	ends := m.isDeleted() || m.fails()
	if !s.startWaitingRun(m) {
		return nil
	}
	if m.statusChanged() {
		if err := s.notifyParent(m); err != nil {
			return err
		}
	}
	if ends {
		return s.endChildren(m)
	}
	s.passUserOn(m)
	switch {
	case m.idle: // its children have stopped; others that it does not await go on
	case m.wasInterrupted():
		s.interruptChildren(m)
	case m.wasResumed():
		s.resumeChildren(m)
	}
	return s.endUnneededChildren(m)
}

// continueIfReady continues a member that has just suspended or got an answer of a child, and
// waits for nothing else. Other members are skipped, since their views may lack their calls.
func (s *propagation) continueIfReady(m *member) {
	before, after := m.view.Session, m.after()
	if before == nil || after == nil || !after.Status.Suspended() || after.Suspension == before.Suspension && !m.answered {
		return
	}
	if awaitsAny(m.change.unconsumedCalls(m.view)) {
		return
	}
	if m.view.Current == nil {
		if !m.target.Need.Current {
			s.missing.add(Target{Key: m.target.Key, Need: Need{Current: true}})
		}
		return
	}
	after = m.touch(s.Now)
	m.change.NewRun = after.beginContinuation(m.view.Current, s.NewID(), s.Now)
}

// notifyParent records the member's status in its parent. It skips a parent that was deleted
// or has no record of the child.
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
		status = Failed // a deleted child counts as failed
	}
	if parent.recordChild(child, status, m.change.newChild, s.Now) {
		s.answerCallsOf(parent, child, status)
		return s.propagate(parent)
	}
	return nil
}

// endChildren fails the local children of a failed member, or deletes them with the member.
// The member's own parent has been notified before.
func (s *propagation) endChildren(m *member) error {
	before := m.view.Session
	if before == nil || before.Children == 0 && len(m.change.Children) == 0 {
		return nil
	}
	if before.Children > 0 && len(m.view.Children) == 0 && !m.target.Need.Children {
		s.missing.add(Target{Key: m.target.Key, Need: needDeleted})
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

// endChild ends a child with its parent. It skips a session with another parent, which has
// taken over the id of a deleted child.
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
	case child.view.Session == nil:
		child.replaceChange(nil) // it would have begun with this write
		parent.dropChild(childID)
		return nil
	default:
		failure := &Failure{Error: "The parent session has ended.", Code: codeCancelled, Reason: ParentFailed}
		end := forcedEnd{status: Failed, failure: failure, now: s.Now}
		if child == s.members[0] { // the write that has ended the parent's wait: its step stays
			if child = s.findAll(child, needCalls); child == nil {
				return nil
			}
			end.endSession(child.view, child.change)
		} else {
			child.replaceChange(end.change(child.view))
		}
		child.change.endWaiting = true
		parent.recordChild(child.after(), Failed, nil, s.Now)
		if !s.startWaitingRun(child) {
			return nil
		}
	}
	return s.endChildren(child)
}
