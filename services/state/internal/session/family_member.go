package session

import "slices"

// member is one session of a family during Propagate: its view, and its change so far.
type member struct {
	target   Target
	view     *View
	change   *Change // nil: no change
	answered bool    // a child has answered a call
	idle     bool    // interruptIdle has interrupted it

	knownChildren   map[string]Child // children of the view; nil until first used
	writtenChildren map[string]int   // index into the children of the change; nil until first used
}

// replaceChange sets another change.
func (m *member) replaceChange(change *Change) { m.change, m.writtenChildren = change, nil }

// mayCloseCalls reports whether the member's change may have closed calls of children that have
// not ended.
func (m *member) mayCloseCalls() bool {
	s, change := m.after(), m.change
	if m.view.Session == nil || s == nil || s.Children == 0 || change == nil {
		return false
	}
	closes := func(c Call) bool {
		return c.Kind == SubAgent && !c.isOpen() && c.Answer != AnswerChild && c.ConsumedAt == 0
	}
	return slices.ContainsFunc(change.Calls, closes) || slices.ContainsFunc(change.NewCalls, closes) ||
		len(change.DropCalls) > 0 || len(change.notMade) > 0 || change.Rewind != nil
}

func (m *member) isDeleted() bool { return m.change != nil && m.change.Delete }

// unneededChildren returns the ephemeral children whose calls the change has closed.
func (m *member) unneededChildren() (ids []string) {
	open := map[string]bool{}
	for _, call := range m.change.unconsumedCalls(m.view) {
		open[call.CallID] = call.awaitsChild()
	}
	closed := slices.DeleteFunc(slices.Clone(m.view.Calls), func(call Call) bool { return !call.awaitsChild() || open[call.CallID] })
	for _, call := range slices.Concat(m.change.NewCalls, m.change.notMade) {
		if call.Kind == SubAgent && !open[call.CallID] && call.Answer != AnswerChild {
			closed = append(closed, call)
		}
	}
	for _, child := range m.children() {
		if child.Location != Local || child.Mode != Ephemeral || child.Status.Terminal() {
			continue
		}
		if slices.ContainsFunc(closed, func(call Call) bool { return call.isFor(child) }) {
			ids = append(ids, child.SessionID)
		}
	}
	return ids
}

// wasInterrupted reports whether the change interrupts the session.
func (m *member) wasInterrupted() bool {
	after := m.after()
	return after != nil && after.Status == Interrupted && m.statusChanged()
}

// wasResumed reports whether the change resumes the interrupted session.
func (m *member) wasResumed() bool {
	before, after := m.view.Session, m.after()
	return before != nil && before.Status == Interrupted && after != nil && after.Status == Active &&
		m.change.NewRun != nil && m.change.NewRun.Entry == EntryResume
}

// after returns the session after the change; nil if it does not exist then.
func (m *member) after() *Session {
	switch {
	case m.isDeleted():
		return nil
	case m.change != nil && m.change.Session != nil:
		return m.change.Session
	default:
		return m.view.Session
	}
}

// lastKnown returns the session after the change, or before its deletion.
func (m *member) lastKnown() *Session {
	if m.isDeleted() {
		return m.view.Session
	}
	return m.after()
}

// statusChanged reports whether the parent must record a new status.
func (m *member) statusChanged() bool {
	before, after := m.view.Session, m.after()
	if before == nil || after == nil {
		return before != after
	}
	return before.Status != after.Status
}

// fails reports whether the change fails the session.
func (m *member) fails() bool {
	after := m.after()
	return after != nil && after.Status == Failed && m.statusChanged()
}

// indexChildren builds the maps of children. A linear search would be quadratic when many
// children end at once.
func (m *member) indexChildren() {
	if m.knownChildren == nil {
		m.knownChildren = make(map[string]Child, len(m.view.Children))
		for _, child := range m.view.Children {
			m.knownChildren[child.SessionID] = child
		}
	}
	if m.writtenChildren == nil {
		m.writtenChildren = map[string]int{}
		if m.change != nil {
			for i, child := range m.change.Children {
				m.writtenChildren[child.SessionID] = i
			}
		}
	}
}

// child returns a child as it is after the change.
func (m *member) child(id string) (Child, bool) {
	m.indexChildren()
	if i, written := m.writtenChildren[id]; written {
		return m.change.Children[i], true
	}
	child, known := m.knownChildren[id]
	return child, known
}

// putChild adds a child to the change, or replaces it there.
func (m *member) putChild(child Child) {
	if _, known := m.child(child.SessionID); !known {
		m.change.Session.Children++
	}
	if i, written := m.writtenChildren[child.SessionID]; written {
		m.change.Children[i] = child
		return
	}
	m.writtenChildren[child.SessionID] = len(m.change.Children)
	m.change.Children = append(m.change.Children, child)
}

// dropChild removes a new child from the change.
func (m *member) dropChild(id string) {
	m.change.Children = slices.DeleteFunc(m.change.Children, func(child Child) bool { return child.SessionID == id })
	m.change.Session.Children--
	m.writtenChildren = nil
}

// children returns the children as they are after the change.
func (m *member) children() []Child {
	m.indexChildren()
	children := slices.Clone(m.change.Children)
	for _, child := range m.view.Children {
		if _, changed := m.writtenChildren[child.SessionID]; !changed {
			children = append(children, child)
		}
	}
	return children
}

// touch returns the session's row for writing. It raises the version once per command.
func (m *member) touch(now Millis) *Session {
	if m.change == nil {
		m.change = &Change{}
	}
	if m.change.Session == nil {
		s := *m.view.Session
		m.change.Session = &s
	}
	s := m.change.Session
	if m.view.Session != nil && s.Version == m.view.Session.Version {
		s.Version++
	}
	s.UpdatedAt = now
	return s
}

// recordChild records the status of a child, and reports whether anything changed. joins is
// the record of a new child.
func (m *member) recordChild(child *Session, status Status, joins *Child, now Millis) bool {
	row, known := m.child(child.SessionID)
	if !known && joins == nil {
		return false
	}
	next := row
	if joins != nil {
		next = joins.mergedInto(row, known)
	}
	next.Status = status
	next = next.withEndTime(now)
	if known && next == row {
		return false
	}
	m.touch(now)
	m.putChild(next)
	return true
}

// openCallsOf returns the open calls that the child answers.
func (m *member) openCallsOf(child Child) (open []Call) {
	for _, call := range m.change.unconsumedCalls(m.view) {
		if call.awaitsChild() && call.isFor(child) {
			open = append(open, call)
		}
	}
	return open
}

// mergedInto returns the record of a new child in its parent. The parent may have one already.
func (c Child) mergedInto(row Child, known bool) Child {
	if !known {
		return c
	}
	row.AgentType, row.Location, row.StartedAt = c.AgentType, c.Location, c.StartedAt
	if c.CallID != "" {
		row.CallID = c.CallID
	}
	if c.Name != "" {
		row.Name = c.Name
	}
	return row
}
