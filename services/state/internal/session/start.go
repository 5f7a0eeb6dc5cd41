package session

import (
	"bytes"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Start begins a run, and the session with it when it is new. A sub-session's
// new status is told to its parent by Family.Spread.
//
// Faults: Conflict (REQUEST_KEY_REUSED, SESSION_CHANGED, AGENT_MISMATCH,
// PARENT_MISMATCH, PARENT_ENDED, LOCATION_FIXED, SESSION_BUSY, SESSION_SUSPENDED,
// SESSION_COMPLETED, MESSAGE_EXISTS), NotFound (AGENT_NOT_FOUND), NotFound
// (SESSION_NOT_FOUND) when a session is expected and for the parent, Wider to see
// the parent.
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
	Expect      Expect
	Resume      bool              // the session goes on where it stopped; Messages may be empty
	Abandon     func(Call) []byte // gives the answers to the open calls, for which nobody waits any more; nil leaves them open
	Now         Millis

	ParentID string // of a sub-session that is to be a new one, or one of this parent; empty for whatever it is

	// For a session that is new; as in Create.
	Child          Child
	UserID         string
	OrganizationID string
	Tags           []string
	Metadata       map[string]string
	State          string
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
	return Need{
		RequestKey: c.RequestKey, AgentType: c.AgentType, MessageIDs: messageIDs(c.Messages), State: true,
		Calls: c.Resume || c.Abandon != nil,
	}
}

// Decide starts the run, or finds that the request was answered before. The
// first view is the session's own; the parent's, when one is named, is among the
// others.
func (c Start) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	if v.Keyed != nil {
		return c.repeat(v)
	}
	if err := c.admit(v); err != nil {
		return nil, Started{}, err
	}
	if err := unique(c.Messages, v.Taken); err != nil {
		return nil, Started{}, err
	}
	change, err := c.session(views)
	if err != nil {
		return nil, Started{}, err
	}
	s := change.Session
	change.NewRun = c.run(s)
	s.CurrentRunID = c.RunID
	change.Messages = place(c.Messages, s.MessageCount)
	s.MessageCount += int64(len(c.Messages))
	return change, Started{Session: *s, Run: *change.NewRun, Created: change.Created}, nil
}

func (c Start) repeat(v *View) (*Change, Started, error) {
	first := v.Keyed
	same := bytes.Equal(c.RequestHash, first.RequestHash) && c.Resume == (first.Entry == EntryResume)
	if c.AgentType != "" && c.AgentType != first.AgentType || !same {
		return nil, Started{}, fault.New(fault.Conflict, "REQUEST_KEY_REUSED",
			"request key %q started run %q with another agent or other messages; use a new key for a new request", c.RequestKey, first.RunID)
	}
	return nil, Started{Session: *v.Session, Run: *first, Repeated: true}, nil
}

// admit says whether the session may have a new run now.
func (c Start) admit(v *View) error {
	s := v.Session
	if s == nil {
		return c.admitNew(v)
	}
	if err := c.Expect.met(s); err != nil {
		return err
	}
	if c.AgentType != "" && c.AgentType != s.AgentType {
		return fault.New(fault.Conflict, "AGENT_MISMATCH",
			"session %q belongs to agent %q, not %q; leave the agent out or begin another session", c.SessionID, s.AgentType, c.AgentType)
	}
	if c.ParentID != "" && c.ParentID != s.ParentID {
		return fault.New(fault.Conflict, "PARENT_MISMATCH",
			"session %q exists and is no sub-session of %q; leave the parent out or begin another session", c.SessionID, c.ParentID)
	}
	switch s.Status {
	case Completed:
		if c.Resume {
			return fault.New(fault.Conflict, "SESSION_COMPLETED", "session %q is completed: there is nothing to resume; start a run with a message", c.SessionID)
		}
		return nil
	case Failed, Interrupted, Paused:
		return nil
	case SuspendedClientTool, SuspendedAwaitingChildren, SuspendedStepPartial:
		return c.admitSuspended(v)
	default:
		return busy(s)
	}
}

func (c Start) admitNew(v *View) error {
	if c.Resume || c.Expect.given() {
		return NoSession(c.Key)
	}
	if !v.AgentKnown {
		return noAgent(c.AgentType)
	}
	return nil
}

func (c Start) admitSuspended(v *View) error {
	open := 0
	for _, call := range v.Calls {
		if call.awaited() {
			open++
		}
	}
	switch {
	case c.Abandon != nil, c.Resume && open == 0:
		return nil
	case c.Resume:
		return fault.New(fault.Conflict, "SESSION_SUSPENDED", "session %q waits for the answers to %d calls (%s); submit them or abandon them", c.SessionID, open, v.Session.Status)
	default:
		return fault.New(fault.Conflict, "SESSION_SUSPENDED", "session %q waits for an answer (%s); submit it or interrupt the session", c.SessionID, v.Session.Status)
	}
}

func (c Start) openCalls(v *View) []Call {
	var open []Call
	for _, call := range v.Calls {
		if call.open() {
			open = append(open, call)
		}
	}
	return open
}

// session returns the change of the session's row with the run begun, but for
// its messages.
func (c Start) session(views []*View) (*Change, error) {
	change := &Change{}
	if v := views[0]; v.Session != nil {
		if c.ParentID != "" {
			if _, err := c.create().parent(views); err != nil {
				return nil, err
			}
		}
		s := *v.Session
		s.Version++
		change.Session = &s
		change.Calls = c.abandoned(v)
	} else {
		birth, err := c.create().birth(views)
		if err != nil {
			return nil, err
		}
		change = birth
	}
	s := change.Session
	s.Status = Active
	s.Turn++
	if c.Resume {
		s.ResumeCount++
	}
	s.Output, s.Failure = "", nil
	s.Suspension, s.Interruption = nil, nil
	s.UpdatedAt = c.Now
	s.ExpiresAt = 0
	return change, nil
}

func (c Start) create() Create {
	return Create{
		Key: c.Key, AgentType: c.AgentType, ParentID: c.ParentID, Child: c.Child, UserID: c.UserID, OrganizationID: c.OrganizationID,
		Tags: c.Tags, Metadata: c.Metadata, State: c.State, Now: c.Now,
	}
}

// abandoned returns the open calls with the answers that stand for those that
// nobody waits for any more.
func (c Start) abandoned(v *View) []Call {
	if c.Abandon == nil {
		return nil
	}
	calls := c.openCalls(v)
	for i, call := range calls {
		calls[i] = call.answered(AnswerAbandoned, c.Abandon(call), c.Now)
	}
	return calls
}

func (c Start) run(s *Session) *Run {
	entry := EntryStart
	if c.Resume {
		entry = EntryResume
	}
	return &Run{
		RunID: c.RunID, AgentType: s.AgentType, Turn: s.Turn, Status: RunQueued, Entry: entry,
		RequestKey: c.RequestKey, RequestHash: c.RequestHash, MessageID: c.MessageID,
		StartSequence: s.StreamSequence, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: c.Now,
	}
}
