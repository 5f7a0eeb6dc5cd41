package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Create creates a session without a run. It is paused until a run begins.
// Family.Propagate records a child in its parent.
//
// Faults: Conflict (SESSION_EXISTS), NotFound (AGENT_NOT_FOUND), Invalid (STATE_INVALID). For a child also NotFound
// (SESSION_NOT_FOUND) for the parent, Conflict (PARENT_ENDED, LOCATION_FIXED, OWNER_INHERITED), and an
// IncompleteViewError to see the parent.
type Create struct {
	Key
	AgentType      string
	ParentID       string // empty for a root
	Child          Child  // the record in the parent: CallID, Mode, Name and Remote are used
	Owner          string // as Target.Owner, of the parent
	UserID         string // a child has its parent's; empty asks for it
	OrganizationID string
	Tags           []string
	Metadata       map[string]string
	State          string // a JSON object
	MaxTree        int    // for a child: see Limits.Tree
	Schemas        SchemaFuncs
	ExpiresAt      Millis // 0 for never
	Now            Millis
}

// Need lists the rows for Decide.
func (c Create) Need() Need { return Need{AgentType: c.AgentType} }

// Decide creates the session. The first view is its own; the others may include the parent.
func (c Create) Decide(views ...*View) (*Change, Session, error) {
	if views[0].Session != nil {
		return nil, Session{}, sessionExists(c.SessionID)
	}
	if views[0].Agent == nil {
		return nil, Session{}, agentNotFound(c.AgentType)
	}
	change, err := c.newSession(views)
	if err != nil {
		return nil, Session{}, err
	}
	return change, *change.Session, nil
}

// newSession returns the change that creates the session.
func (c Create) newSession(views []*View) (*Change, error) {
	state, err := c.Schemas.fill(views[0].Agent, c.State)
	if err != nil {
		return nil, err
	}
	s := Session{
		Key: c.Key, AgentType: c.AgentType, ParentID: c.ParentID, RootID: c.SessionID, Status: Paused,
		Version: 1, State: state, StateVersion: 1, StateBase: 1,
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
	if err := checkTree(parent, 1, c.MaxTree); err != nil {
		return nil, err
	}
	if c.UserID != "" && c.UserID != parent.Session.UserID {
		return nil, ownerInherited(c.SessionID)
	}
	s.UserID = parent.Session.UserID
	s.RootID, s.Depth = parent.Session.RootID, parent.Session.Depth+1
	change.newChild = c.childRow(&s)
	return change, nil
}

// findParent returns the parent's view. Conflict (PARENT_ENDED) if the parent has failed.
// The other views are searched by key, since an earlier attempt may have asked for other
// members of the family.
func (c Create) findParent(views []*View) (*View, error) {
	key := Key{c.Tenant, c.ParentID}
	missing := c.ParentID == c.SessionID // the new session itself
	for _, v := range views[1:] {
		if v.Session != nil && v.Session.Key == key {
			if v.Session.Status == Failed {
				return nil, fault.New(fault.Conflict, "PARENT_ENDED", "the parent session %q has failed; start it before its sub-sessions", c.ParentID)
			}
			return v, nil
		}
		missing = missing || v.Session == nil
	}
	if missing {
		return nil, SessionNotFound(key)
	}
	need := needParent
	need.LiveBelow = c.MaxTree
	return nil, &IncompleteViewError{[]Target{{Key: key, Need: need, Owner: c.Owner}}}
}

// childRow returns the new session's record in its parent.
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
		"no executor has announced an agent %q; use the type of an announced agent", agentType)
}
