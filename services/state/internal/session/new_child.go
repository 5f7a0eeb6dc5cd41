package session

import (
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// NewChild is a child whose first run begins with the commit of its parent's step. The child's
// end answers the parent's call.
type NewChild struct {
	SessionID  string
	AgentType  string
	CallID     string // of Commit.Calls, of kind SubAgent
	Mode       ChildMode
	Name       string // of a persistent child
	RunID      string
	MessageID  string // of the child's answer
	Messages   []Message
	State      string // a JSON object
	DeadlineAt Millis // of the child's run; 0 for none
	// Traceparent is the trace of the call; empty for that of the parent's run.
	Traceparent string
}

// record returns the child's record in its parent.
func (c NewChild) record(now Millis) Child {
	return Child{
		SessionID: c.SessionID, AgentType: c.AgentType, CallID: c.CallID, Status: Active, Mode: c.Mode, Name: c.Name, Location: Local,
		StartedAt: now,
	}
}

// begin returns the change that creates the child below its parent, with its queued run. The
// child inherits the owner of the parent, and the trace, the starter, the author and the priority of the parent's run. The
// agent is nil if nothing is known of it.
func (c NewChild) begin(parent *Session, from *Run, agent *Agent, now Millis) *Change {
	s := Session{
		Key: Key{parent.Tenant, c.SessionID}, AgentType: c.AgentType, ParentID: parent.SessionID, RootID: parent.RootID, Depth: parent.Depth + 1,
		Version: 1, State: c.State, StateVersion: 1, StateBase: 1,
		UserID: parent.UserID, OrganizationID: parent.OrganizationID, CreatedAt: now, UpdatedAt: now,
	}
	r := &Run{
		RunID: c.RunID, AgentType: c.AgentType, Entry: EntryStart, MessageID: c.MessageID, DeadlineAt: c.DeadlineAt,
		Traceparent: cmp.Or(c.Traceparent, from.Traceparent), Tracestate: from.Tracestate, StartedBy: from.StartedBy, Author: from.Author,
		Priority: from.Priority, UserID: s.UserID, CreatedAt: now,
	}
	r.useAgent(agent)
	s.beginRun(r)
	change := &Change{Session: &s, Created: true, NewState: true, NewRun: r}
	change.appendMessages(c.Messages)
	return change
}

// checkTree gives Conflict (TREE_TOO_LARGE) if the tree would have too many sessions that have not
// ended. One write may have to end them all.
func checkTree(v *View, more, most int) error {
	if live := v.LiveBelow + 1; most > 0 && more > 0 && live+more > most { // the root, and those below it
		return fault.New(fault.Conflict, "TREE_TOO_LARGE",
			"%d sessions of the tree have not ended, and %d more would exceed %d; wait until some have ended", live, more, most)
	}
	return nil
}

// beginChildren adds the step's new children to the change. Conflict (SESSION_EXISTS) for an id
// that the parent has used, (CHILD_UNKNOWN) for a call of a sub-agent without a child,
// (TREE_TOO_LARGE).
func (c Commit) beginChildren(v *View, change *Change) error {
	if err := checkTree(v, len(c.NewChildren), c.Limits.Tree); err != nil {
		return err
	}
	for _, child := range c.NewChildren {
		if _, known := childOf(slices.Concat(v.Children, change.Children), child.SessionID); known {
			return sessionExists(child.SessionID)
		}
		change.putChild(child.record(c.Now), false)
	}
	change.newChildren = c.NewChildren
	return c.nameChildren(v, change)
}

// nameChildren sets Call.ChildID of the step's calls of sub-agents. A step names a companion once for each
// of its calls.
func (c Commit) nameChildren(v *View, change *Change) error {
	answers := map[string]string{} // ids of children, by call
	for _, child := range slices.Concat(v.Children, c.Children) {
		answers[child.CallID] = child.SessionID
	}
	for _, child := range c.NewChildren {
		answers[child.CallID] = child.SessionID
	}
	for i := range change.NewCalls {
		call := &change.NewCalls[i]
		if call.Kind != SubAgent {
			continue
		}
		if call.ChildID = answers[call.CallID]; call.ChildID == "" {
			return fault.New(fault.Conflict, "CHILD_UNKNOWN",
				"no sub-session answers the call %q, which would wait forever; name its sub-session", call.CallID)
		}
	}
	return nil
}

func sessionExists(id string) error {
	return fault.New(fault.Conflict, "SESSION_EXISTS", "there is a session %q already; choose another id", id)
}
