package session

import (
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// PutChild notes a sub-session in its parent, or what is new of one: what is
// empty stays as it was. What the parent knows of a local child's status comes
// from the child itself, whatever the command says; a remote child's status is
// the caller's word.
//
// A parent that waits for nothing else any more is woken by Family.Spread.
//
// Faults: NotFound (SESSION_NOT_FOUND), Conflict (LOCATION_FIXED,
// CHILD_UNKNOWN).
type PutChild struct {
	Key
	Child Child
	Now   Millis
}

// Need says what Decide wants to see.
func (c PutChild) Need() Need { return Need{Current: true, Calls: true, Children: true} }

// Decide writes the child. The change is nil when nothing is new.
func (c PutChild) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, NoSession(c.Key)
	}
	old, known := childOf(v.Children, c.Child.SessionID)
	if !known && c.Child.Location != Remote {
		return nil, childUnknown(c.Key, c.Child.SessionID)
	}
	s := *v.Session
	change := &Change{Session: &s}
	child, err := c.Child.mergedWith(old, known, c.Now)
	if err != nil || known && child == old {
		return nil, err
	}
	change.putChild(child, known)
	s.Version++
	s.UpdatedAt = c.Now
	s.Suspension, _ = s.Suspension.withChildStatus(child.SessionID, child.Status)
	return change, nil
}

// childUnknown is the fault for a local sub-session that does not exist: a note of
// it would speak of nobody, and whoever waits for it would wait for ever.
func childUnknown(k Key, childID string) error {
	return fault.New(fault.Conflict, "CHILD_UNKNOWN",
		"session %q has no sub-session %q; a local one is made with its parent named when it is created or started", k.SessionID, childID)
}

func locationFixed(old Child, location Location) error {
	return fault.New(fault.Conflict, "LOCATION_FIXED",
		"sub-session %q is %s, and stays so; note one that is %s under an id of its own", old.SessionID, old.Location, location)
}

// putChild writes a child of the session.
func (change *Change) putChild(child Child, known bool) {
	if !known {
		change.Session.Children++
	}
	i := slices.IndexFunc(change.Children, func(c Child) bool { return c.SessionID == child.SessionID })
	if i >= 0 {
		change.Children[i] = child
		return
	}
	change.Children = append(change.Children, child)
}

func childOf(children []Child, id string) (Child, bool) {
	i := slices.IndexFunc(children, func(c Child) bool { return c.SessionID == id })
	if i < 0 {
		return Child{}, false
	}
	return children[i], true
}

// mergedWith returns the child as it is to be kept: a new one, or one in the place of
// what is known of it, of which it keeps what is empty in the new. It gives
// Conflict (LOCATION_FIXED) when the two are said to be in different places:
// whoever deletes the tree relies on it.
func (c Child) mergedWith(old Child, known bool, now Millis) (Child, error) {
	if !known {
		old = Child{AgentType: c.AgentType, Status: Active, Mode: Ephemeral, Location: cmp.Or(c.Location, Local), StartedAt: now}
	}
	if c.Location != "" && c.Location != old.Location {
		return Child{}, locationFixed(old, c.Location)
	}
	child := Child{
		SessionID: c.SessionID, AgentType: cmp.Or(c.AgentType, old.AgentType), CallID: cmp.Or(c.CallID, old.CallID),
		Status: cmp.Or(c.Status, old.Status), Mode: cmp.Or(c.Mode, old.Mode), Name: cmp.Or(c.Name, old.Name),
		Location: old.Location, Remote: cmp.Or(c.Remote, old.Remote),
		StartedAt: cmp.Or(c.StartedAt, old.StartedAt), CompletedAt: cmp.Or(c.CompletedAt, old.CompletedAt),
	}
	if known && child.Location == Local {
		child.Status, child.StartedAt, child.CompletedAt = old.Status, old.StartedAt, old.CompletedAt
	}
	return child.withEndTime(now), nil
}

// withEndTime returns the child with the time of its end if, and only if, it has
// ended.
func (c Child) withEndTime(now Millis) Child {
	if !c.Status.Terminal() {
		c.CompletedAt = 0
	} else if c.CompletedAt == 0 {
		c.CompletedAt = now
	}
	return c
}

// changeChildren puts the step's children into the change. The step's writer may
// know less than what came by the side door meanwhile: a remote child that has
// ended stays ended, unless it was started again after that. A new one is
// remote: Conflict (CHILD_UNKNOWN) for a local one, as PutChild gives it.
func (c Commit) changeChildren(v *View, change *Change) error {
	for _, child := range c.Children {
		old, known := childOf(v.Children, child.SessionID)
		if !known {
			old, known = childOf(change.Children, child.SessionID) // it stands twice in the request
		}
		if !known && child.Location != Remote {
			return childUnknown(c.Key, child.SessionID)
		}
		if known && old.Status.Terminal() && child.StartedAt <= old.CompletedAt {
			child.Status, child.CompletedAt = old.Status, old.CompletedAt
		}
		kept, err := child.mergedWith(old, known, c.Now)
		if err != nil {
			return err
		}
		change.putChild(kept, known)
	}
	return nil
}

// withCurrentStatuses returns the suspension with the statuses that the children have by
// now, which may have ended before their parent came to wait for them. It gives
// Conflict (CHILD_UNKNOWN) for a child that could never wake the session.
func (s *Suspension) withCurrentStatuses(v *View, change *Change) (*Suspension, error) {
	waited := Suspension{}
	if s != nil {
		waited = *s
	}
	waited.Children = nil
	waited.Keep, waited.ExpiresAt, waited.Holds = 0, 0, nil
	for id, wait := range s.awaitedChildren() {
		child, known := childOf(slices.Concat(change.Children, v.Children), id)
		if !known {
			return nil, fault.New(fault.Conflict, "CHILD_UNKNOWN", "the session waits for a sub-session %q that it does not have; note it first", id)
		}
		wait.Status = child.Status
		if waited.Children == nil {
			waited.Children = map[string]ChildWait{}
		}
		waited.Children[id] = wait
		if child.Location == Local && (child.Status == Active || child.Status.Suspended()) {
			waited.setChildExpiry(id, 0) // until when a suspended one is kept is not known yet; its end will be told
		}
	}
	return &waited, nil
}

// endAwaitedChildren ends the sub-sessions that the session has waited for: the calls that
// they are for are taken back.
func (change *Change) endAwaitedChildren(v *View) {
	for id := range v.Session.Suspension.awaitedChildren() {
		if child, known := childOf(v.Children, id); known && child.Location == Local && !child.Status.Terminal() {
			change.endChildren = append(change.endChildren, id)
		}
	}
	slices.Sort(change.endChildren)
}
