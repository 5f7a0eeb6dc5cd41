package session

import "slices"

// kin is one session of a family while something spreads: what it was, and
// what is to be written of it so far.
type kin struct {
	target Target
	view   *View
	change *Change // nil: nothing

	known   map[string]Child // the view's children; nil until somebody asks for one
	written map[string]int   // the places of the change's children, likewise
}

// becomes gives the session another change.
func (k *kin) becomes(change *Change) { k.change, k.written = change, nil }

func (k *kin) gone() bool { return k.change != nil && k.change.Delete }

// leaves are the sub-sessions that end although the session goes on.
func (k *kin) leaves() []string {
	if k.change == nil {
		return nil
	}
	return k.change.leaves
}

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

// keptOtherwise reports whether a session that waits on is kept until another
// time: its parent is not to expire before it.
func (k *kin) keptOtherwise() bool {
	before, after := k.view.Session, k.after()
	return before != nil && after != nil && after.Status.Suspended() && before.ExpiresAt != after.ExpiresAt
}

// failed reports whether the session fails with what is to be written.
func (k *kin) failed() bool {
	after := k.after()
	return after != nil && after.Status == Failed && k.statusChanged()
}

// index makes the maps by which children are found: a session may have many,
// and all of them may end at once.
func (k *kin) index() {
	if k.known == nil {
		k.known = make(map[string]Child, len(k.view.Children))
		for _, child := range k.view.Children {
			k.known[child.SessionID] = child
		}
	}
	if k.written == nil {
		k.written = map[string]int{}
		if k.change != nil {
			for i, child := range k.change.Children {
				k.written[child.SessionID] = i
			}
		}
	}
}

// child returns a sub-session as it will be.
func (k *kin) child(id string) (Child, bool) {
	k.index()
	if i, written := k.written[id]; written {
		return k.change.Children[i], true
	}
	child, known := k.known[id]
	return child, known
}

// put writes a sub-session into the session's change.
func (k *kin) put(child Child) {
	if _, known := k.child(child.SessionID); !known {
		k.change.Session.Children++
	}
	if i, written := k.written[child.SessionID]; written {
		k.change.Children[i] = child
		return
	}
	k.written[child.SessionID] = len(k.change.Children)
	k.change.Children = append(k.change.Children, child)
}

// children returns the sub-sessions as they will be.
func (k *kin) children() []Child {
	k.index()
	children := slices.Clone(k.change.Children)
	for _, child := range k.view.Children {
		if _, changed := k.written[child.SessionID]; !changed {
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
	row, known := k.child(child.SessionID)
	if !known && joins == nil {
		return false
	}
	next := row
	if joins != nil {
		next = joins.joined(row, known)
	}
	next.Status = status
	next = next.dated(now)
	before := k.after().Suspension
	suspension, waits := before.told(child.SessionID, status)
	suspension, holds := suspension.held(child.SessionID, status, child.ExpiresAt, waits, now)
	if known && next == row && !waits && !holds {
		return false
	}
	s := k.touch(now)
	s.Suspension = suspension
	if s.ExpiresAt == before.expiry() { // else a host has set another time, which stands
		s.ExpiresAt = suspension.expiry()
	}
	k.put(next)
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
