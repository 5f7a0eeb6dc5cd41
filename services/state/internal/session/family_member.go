package session

import "slices"

// member is one session of a family while something spreads: what it was, and
// what is to be written of it so far.
type member struct {
	target Target
	view   *View
	change *Change // nil: nothing

	knownChildren   map[string]Child // the view's children; nil until somebody asks for one
	writtenChildren map[string]int   // the places of the change's children, likewise
}

// replaceChange gives the session another change.
func (m *member) replaceChange(change *Change) { m.change, m.writtenChildren = change, nil }

func (m *member) isDeleted() bool { return m.change != nil && m.change.Delete }

// childrenToEnd are the sub-sessions that end although the session goes on.
func (m *member) childrenToEnd() []string {
	if m.change == nil {
		return nil
	}
	return m.change.endChildren
}

// after returns the session as it will be; nil when it does not exist then.
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

// lastKnown returns the session as it will be, or as it was before it went away.
func (m *member) lastKnown() *Session {
	if m.isDeleted() {
		return m.view.Session
	}
	return m.after()
}

// statusChanged reports whether the parent has to learn something.
func (m *member) statusChanged() bool {
	before, after := m.view.Session, m.after()
	if before == nil || after == nil {
		return before != after
	}
	return before.Status != after.Status
}

// expiryChanged reports whether a session that waits on is kept until another
// time: its parent is not to expire before it.
func (m *member) expiryChanged() bool {
	before, after := m.view.Session, m.after()
	return before != nil && after != nil && after.Status.Suspended() && before.ExpiresAt != after.ExpiresAt
}

// fails reports whether the session fails with what is to be written.
func (m *member) fails() bool {
	after := m.after()
	return after != nil && after.Status == Failed && m.statusChanged()
}

// indexChildren makes the maps by which children are found: a session may have many,
// and all of them may end at once.
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

// child returns a sub-session as it will be.
func (m *member) child(id string) (Child, bool) {
	m.indexChildren()
	if i, written := m.writtenChildren[id]; written {
		return m.change.Children[i], true
	}
	child, known := m.knownChildren[id]
	return child, known
}

// putChild writes a sub-session into the session's change.
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

// children returns the sub-sessions as they will be.
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

// touch returns the session's row to be written, with its version raised, once
// for all that the command does to it.
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

// recordChild notes the status of a child, and reports whether that was news. joins
// is set for a child that is new.
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
	before := m.after().Suspension
	suspension, waits := before.withChildStatus(child.SessionID, status)
	suspension, holds := suspension.withChildExpiry(child.SessionID, status, child.ExpiresAt, waits, now)
	if known && next == row && !waits && !holds {
		return false
	}
	s := m.touch(now)
	s.Suspension = suspension
	if s.ExpiresAt == before.expiry() { // else a host has set another time, which stands
		s.ExpiresAt = suspension.expiry()
	}
	m.putChild(next)
	return true
}

// mergedInto returns what the parent knows of a child that begins, which it may
// have noted before.
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
