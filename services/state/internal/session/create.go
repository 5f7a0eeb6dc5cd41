package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Create makes a session without a run: it is paused until one starts.
//
// A sub-session is told to its parent by Family.Spread.
//
// Faults: Conflict (SESSION_EXISTS), NotFound (AGENT_NOT_FOUND); of a
// sub-session NotFound (SESSION_NOT_FOUND) for the parent, Conflict (PARENT_ENDED,
// LOCATION_FIXED), Wider to see the parent.
type Create struct {
	Key
	AgentType      string
	ParentID       string // empty for a root
	Child          Child  // what the parent is to know of a sub-session; CallID, Mode, Name and Remote count
	UserID         string
	OrganizationID string
	Tags           []string
	Metadata       map[string]string
	State          string // a JSON object
	ExpiresAt      Millis // 0 for never
	Now            Millis
}

// Need says what Decide wants to see.
func (c Create) Need() Need { return Need{AgentType: c.AgentType} }

// Decide makes the session. The first view is its own; the parent's is among the
// others.
func (c Create) Decide(views ...*View) (*Change, Session, error) {
	if views[0].Session != nil {
		return nil, Session{}, fault.New(fault.Conflict, "SESSION_EXISTS", "there is a session %q already; choose another id", c.SessionID)
	}
	if !views[0].AgentKnown {
		return nil, Session{}, agentNotFound(c.AgentType)
	}
	change, err := c.newSession(views)
	if err != nil {
		return nil, Session{}, err
	}
	return change, *change.Session, nil
}

// newSession returns the change that makes the session.
func (c Create) newSession(views []*View) (*Change, error) {
	s := Session{
		Key: c.Key, AgentType: c.AgentType, ParentID: c.ParentID, RootID: c.SessionID, Status: Paused,
		Version: 1, State: c.State, StateVersion: 1, StateBase: 1,
		UserID: c.UserID, OrganizationID: c.OrganizationID, Tags: c.Tags, Metadata: c.Metadata,
		CreatedAt: c.Now, UpdatedAt: c.Now, ExpiresAt: c.ExpiresAt,
	}
	change := &Change{Session: &s, Created: true, NewState: true}
	if c.ParentID == "" {
		return change, nil
	}
	parent, err := c.findParent(views)
	if err != nil {
		return nil, err
	}
	if row, known := childOf(parent.Children, c.SessionID); known && row.Location == Remote {
		return nil, locationFixed(row, Local)
	}
	s.RootID = parent.Session.RootID
	change.newChild = c.childRow(&s)
	return change, nil
}

// findParent finds the parent among the views, and gives Conflict (PARENT_ENDED)
// when it has failed: nothing below it goes on. The views behind the first are of
// no certain session: an earlier try may have asked for the family of one that is
// gone by now.
func (c Create) findParent(views []*View) (*View, error) {
	key := Key{c.Tenant, c.ParentID}
	gone := c.ParentID == c.SessionID // it does not exist yet
	for _, v := range views[1:] {
		if v.Session != nil && v.Session.Key == key {
			if v.Session.Status == Failed {
				return nil, fault.New(fault.Conflict, "PARENT_ENDED", "session %q, the parent, has failed; start it again before its sub-sessions", c.ParentID)
			}
			return v, nil
		}
		gone = gone || v.Session == nil
	}
	if gone {
		return nil, NoSession(key)
	}
	return nil, &Wider{[]Target{{key, needParent}}}
}

// childRow is what the parent knows of the new session.
func (c Create) childRow(s *Session) *Child {
	child := c.Child
	child.SessionID, child.AgentType = s.SessionID, s.AgentType
	child.Location, child.StartedAt, child.CompletedAt = Local, c.Now, 0
	if child.Mode == "" {
		child.Mode = Ephemeral
	}
	return &child
}

func agentNotFound(agentType string) error {
	return fault.New(fault.NotFound, "AGENT_NOT_FOUND",
		"no executor has announced an agent %q; a new session needs an agent type that one serves", agentType)
}
