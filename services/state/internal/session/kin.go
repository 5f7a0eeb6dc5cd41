package session

import "slices"

// kin is one session of a family while something spreads: what it was, and
// what is to be written of it so far.
type kin struct {
	target Target
	view   *View
	change *Change // nil: nothing
}

func (k *kin) gone() bool { return k.change != nil && k.change.Delete }

// after returns the session as it will be; nil when it does not exist then.
func (k *kin) after() *Session {
	switch {
	case k.gone():
		return nil
	case k.change != nil && k.change.Session != nil:
		return k.change.Session
	default:
		return k.view.Session
	}
}

// latest returns the session as it will be, or as it was before it went away.
func (k *kin) latest() *Session {
	if k.gone() {
		return k.view.Session
	}
	return k.after()
}

// statusChanged reports whether the parent has to learn something.
func (k *kin) statusChanged() bool {
	before, after := k.view.Session, k.after()
	if before == nil || after == nil {
		return before != after
	}
	return before.Status != after.Status
}

// failed reports whether the session fails with what is to be written.
func (k *kin) failed() bool {
	after := k.after()
	return after != nil && after.Status == Failed && k.statusChanged()
}

// children returns the sub-sessions as they will be.
func (k *kin) children() []Child {
	children := slices.Clone(k.change.Children)
	for _, child := range k.view.Children {
		if _, changed := childOf(k.change.Children, child.SessionID); !changed {
			children = append(children, child)
		}
	}
	return children
}

// touch returns the session's row to be written, with its version raised, once
// for all that the command does to it.
func (k *kin) touch(now Millis) *Session {
	if k.change == nil {
		k.change = &Change{}
	}
	if k.change.Session == nil {
		s := *k.view.Session
		k.change.Session = &s
	}
	s := k.change.Session
	if k.view.Session != nil && s.Version == k.view.Session.Version {
		s.Version++
	}
	s.UpdatedAt = now
	return s
}

// told notes the status of a child, and reports whether that was news. joins
// is set for a child that is new.
func (k *kin) told(child *Session, status Status, joins *Child, now Millis) bool {
	rows := k.view.Children
	if k.change != nil {
		rows = k.children()
	}
	row, known := childOf(rows, child.SessionID)
	if !known && joins == nil {
		return false
	}
	next := row
	if joins != nil {
		next = joins.joined(row, known)
	}
	next.Status = status
	next = next.dated(now)
	suspension, waits := k.after().Suspension.told(child.SessionID, status)
	if known && next == row && !waits {
		return false
	}
	s := k.touch(now)
	s.Suspension = suspension
	k.change.put(next, known)
	return true
}

// joined returns what the parent knows of a child that begins, which it may
// have noted before.
func (c Child) joined(row Child, known bool) Child {
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
