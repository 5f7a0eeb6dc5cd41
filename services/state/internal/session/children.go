package session

import (
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Child is the record of a child in its parent.
type Child struct {
	SessionID   string
	AgentType   string
	CallID      string // the parent's newest call for the child; Call.ChildID has all
	Status      Status // as reported by a local child; may be old for a remote one
	Mode        ChildMode
	Name        string // of a persistent child
	Location    Location
	Remote      string // JSON: how to reach a remote child; empty for a local one
	StartedAt   Millis
	CompletedAt Millis
}

// ChildMode is the lifetime of a child.
type ChildMode string

// The modes.
const (
	Ephemeral  ChildMode = "ephemeral"  // for one call
	Persistent ChildMode = "persistent" // a companion for many calls
)

// Location is where a child is stored.
type Location string

// The locations.
const (
	Local  Location = "local"  // in this store; deleted with its parent
	Remote Location = "remote" // in another service
)

// PutChild records a child in its parent, or updates the record. Empty fields keep their
// value. The status of a local child is ignored, since the child reports it itself; the
// status of a remote child is set by the caller.
//
// Faults: NotFound (SESSION_NOT_FOUND), Conflict (LOCATION_FIXED, CHILD_UNKNOWN).
type PutChild struct {
	Key
	Child Child
	Now   Millis
}

// Need lists the rows for Decide.
func (c PutChild) Need() Need { return Need{Children: true} }

// Decide writes the child. The change is nil if the record stays the same.
func (c PutChild) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, SessionNotFound(c.Key)
	}
	old, known := childOf(v.Children, c.Child.SessionID)
	if !known && c.Child.Location != Remote {
		return nil, childUnknown(c.Key, c.Child.SessionID)
	}
	s := v.nextVersion(c.Now)
	change := &Change{Session: s}
	child, err := c.Child.mergedWith(old, known, c.Now)
	if err != nil || known && child == old {
		return nil, err
	}
	change.putChild(child, known)
	return change, nil
}

// childUnknown is the fault for a local child without a session: a parent would wait for
// it forever.
func childUnknown(k Key, childID string) error {
	return fault.New(fault.Conflict, "CHILD_UNKNOWN",
		"session %q has no sub-session %q; create or start the sub-session first, with this session as its parent", k.SessionID, childID)
}

func locationFixed(old Child, location Location) error {
	return fault.New(fault.Conflict, "LOCATION_FIXED",
		"sub-session %q is %s, which is fixed; use another id for a %s one", old.SessionID, old.Location, location)
}

func childOf(children []Child, id string) (Child, bool) {
	i := slices.IndexFunc(children, func(c Child) bool { return c.SessionID == id })
	if i < 0 {
		return Child{}, false
	}
	return children[i], true
}

// mergedWith returns the new record of a child: empty fields keep their old value, or get
// their default if the child is not known yet. Conflict (LOCATION_FIXED) if the location
// differs from the old one; deletion relies on it.
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

// withEndTime sets CompletedAt of an ended child, and clears it otherwise.
func (c Child) withEndTime(now Millis) Child {
	if !c.Status.Terminal() {
		c.CompletedAt = 0
	} else if c.CompletedAt == 0 {
		c.CompletedAt = now
	}
	return c
}

// changeChildren adds the step's children to the change. Remote children also report
// themselves, so the executor's view may be old: an ended remote child stays ended unless
// it was started after its end. Conflict (CHILD_UNKNOWN) for an unknown local child.
func (c Commit) changeChildren(v *View, change *Change) error {
	for _, child := range c.Children {
		old, known := childOf(v.Children, child.SessionID)
		if !known {
			old, known = childOf(change.Children, child.SessionID) // the request names it twice
		}
		if !known && child.Location != Remote {
			return childUnknown(c.Key, child.SessionID)
		}
		if known && old.Status.Terminal() && child.StartedAt <= old.CompletedAt {
			child.Status, child.CompletedAt = old.Status, old.CompletedAt
		}
		merged, err := child.mergedWith(old, known, c.Now)
		if err != nil {
			return err
		}
		change.putChild(merged, known)
	}
	return nil
}
