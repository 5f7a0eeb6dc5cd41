package session

import (
	"bytes"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Start begins a run, and the session with it when it is new.
//
// Faults: Conflict (REQUEST_KEY_REUSED, AGENT_MISMATCH, SESSION_BUSY,
// SESSION_SUSPENDED, MESSAGE_EXISTS), NotFound (AGENT_NOT_FOUND).
type Start struct {
	Key
	AgentType   string // may be empty for a session that exists
	Messages    []Message
	RequestKey  string
	RequestHash []byte // of the messages as the caller gave them
	RunID       string
	MessageID   string
	Traceparent string
	Tracestate  string
	Now         Millis

	// For a session that is new.
	UserID   string
	Tags     []string
	Metadata map[string]string
	State    string // a JSON object
}

// Started is the answer to Start.
type Started struct {
	Session  Session
	Run      Run
	Created  bool // the session is new
	Repeated bool // the request key was known: Run is the one that it started
}

// Need says what Decide wants to see.
func (c Start) Need() Need {
	return Need{RequestKey: c.RequestKey, AgentType: c.AgentType, MessageIDs: messageIDs(c.Messages), State: true}
}

// Decide starts the run, or finds that the request was answered before.
func (c Start) Decide(v *View) (*Change, Started, error) {
	if v.Keyed != nil {
		return c.repeat(v)
	}
	if err := c.admit(v); err != nil {
		return nil, Started{}, err
	}
	if err := unique(c.Messages, v.Taken); err != nil {
		return nil, Started{}, err
	}
	s, created := c.session(v)
	run := c.run(&s)
	s.CurrentRunID = run.RunID
	messages := place(c.Messages, s.MessageCount)
	s.MessageCount += int64(len(messages))
	change := &Change{Session: &s, Created: created, NewState: created, NewRun: &run, Messages: messages}
	return change, Started{Session: s, Run: run, Created: created}, nil
}

func (c Start) repeat(v *View) (*Change, Started, error) {
	first := v.Keyed
	if c.AgentType != "" && c.AgentType != first.AgentType || !bytes.Equal(c.RequestHash, first.RequestHash) {
		return nil, Started{}, fault.New(fault.Conflict, "REQUEST_KEY_REUSED",
			"request key %q started run %q with another agent or other messages; use a new key for a new request", c.RequestKey, first.RunID)
	}
	return nil, Started{Session: *v.Session, Run: *first, Repeated: true}, nil
}

// admit says whether the session may have a new run now.
func (c Start) admit(v *View) error {
	s := v.Session
	switch {
	case s == nil && !v.AgentKnown:
		return fault.New(fault.NotFound, "AGENT_NOT_FOUND",
			"no executor has announced an agent %q; a new session needs an agent type that one serves", c.AgentType)
	case s == nil:
		return nil
	case c.AgentType != "" && c.AgentType != s.AgentType:
		return fault.New(fault.Conflict, "AGENT_MISMATCH",
			"session %q belongs to agent %q, not %q; leave the agent out or begin another session", c.SessionID, s.AgentType, c.AgentType)
	}
	switch s.Status {
	case Completed, Failed, Interrupted, Paused:
		return nil
	case SuspendedClientTool, SuspendedAwaitingChildren, SuspendedStepPartial:
		return fault.New(fault.Conflict, "SESSION_SUSPENDED", "session %q waits for an answer (%s); submit it or interrupt the session", c.SessionID, s.Status)
	default:
		return fault.New(fault.Conflict, "SESSION_BUSY", "run %q of session %q is not over; wait for its end or interrupt it", s.CurrentRunID, c.SessionID)
	}
}

// session returns the session's row with the run begun, but for its messages.
func (c Start) session(v *View) (s Session, created bool) {
	if v.Session != nil {
		s = *v.Session
		s.Version++
	} else {
		created = true
		s = Session{
			Key: c.Key, AgentType: c.AgentType, RootID: c.SessionID, Version: 1, StateVersion: 1, State: c.State,
			UserID: c.UserID, Tags: c.Tags, Metadata: c.Metadata, CreatedAt: c.Now,
		}
	}
	s.Status = Active
	s.Turn++
	s.Output, s.Failure = "", nil
	s.UpdatedAt = c.Now
	s.ExpiresAt = 0
	return s, created
}

func (c Start) run(s *Session) Run {
	return Run{
		RunID: c.RunID, AgentType: s.AgentType, Turn: s.Turn, Status: RunQueued,
		RequestKey: c.RequestKey, RequestHash: c.RequestHash, MessageID: c.MessageID,
		StartSequence: s.StreamSequence, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: c.Now,
	}
}
