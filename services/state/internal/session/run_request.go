package session

import (
	"bytes"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Post is what the commands have in common by which a client gets a run: Send, Edit,
// Regenerate, Resume, Retry and BranchOff. A sub-session's new status is told to its parent
// by Family.Spread.
//
// Faults of all of them: Conflict (REQUEST_KEY_REUSED, SESSION_CHANGED, RUN_STALE,
// AGENT_MISMATCH, SESSION_BUSY, MESSAGE_EXISTS), NotFound (SESSION_NOT_FOUND), and Wider to
// see more of the session or of its family.
type Post struct {
	Key
	AgentType   string // may be empty for a session that exists
	RequestKey  string
	RequestHash []byte // of the request as the client gave it
	RunID       string
	MessageID   string // of the answer
	Traceparent string
	Tracestate  string
	Expect      Expect
	Seen        string // a run that has to be one of those that have written the newest answer; empty for any
	Messages    []Message
	Answers     []Answer          // to calls of the session, taken before the rest is abandoned
	Abandon     func(Call) []byte // gives the answers to the open calls, for which nobody waits any more; nil leaves them open
	OnBusy      BusyPolicy        // when another run is live; empty for what the session's agent has announced
	DeadlineAt  Millis            // of the run; 0 for none
	Limits      Limits
	Now         Millis

	Bodies Bodies
}

// Bodies reads what messages hold, which is opaque to commands. Its functions are pure.
type Bodies struct {
	Same  func(stored, posted Message) (bool, error)     // whether both say the same
	Shown func(Message) (bool, error)                    // whether users see a message of a user
	Adopt func(m Message, runID string) (Message, error) // the message as one of another run
	Ran   func(step []Message) (bool, error)             // whether a tool has run in the step
}

// Started is what has become of a Post.
type Started struct {
	Session  Session
	Run      Run
	Created  bool // the session is new
	Repeated bool // nothing was written: an equal request has begun the run, or one that Run goes on from
	Waiting  bool // Run waits for the one that is live

	Abandoned []string // the calls that were abandoned for Run
}

func (c Post) need() Need {
	need := Need{
		RequestKey: c.RequestKey, AgentType: c.AgentType, MessageIDs: messageIDs(c.Messages), State: true,
		RunID: c.Seen, Current: c.Seen != "", Calls: c.Abandon != nil || len(c.Answers) > 0,
	}
	if len(c.Answers) > 0 {
		need.CallIDs = callIDs(c.Answers)
	}
	return need
}

// answerRepeat answers a request whose key the session knows.
func (c Post) answerRepeat(v *View, entry Entry) (*Change, Started, error) {
	first := v.Keyed
	same := bytes.Equal(c.RequestHash, first.RequestHash) && (entry == EntryResume) == (first.Entry == EntryResume)
	if c.AgentType != "" && c.AgentType != first.AgentType || !same {
		return nil, Started{}, fault.New(fault.Conflict, "REQUEST_KEY_REUSED",
			"request key %q started run %q with another agent or other messages; use a new key for a new request", c.RequestKey, first.RunID)
	}
	return nil, repeatedStart(v, first), nil
}

// repeatedStart is the answer to a request that has nothing to write, since the run is there.
func repeatedStart(v *View, run *Run) Started {
	return Started{Session: *v.Session, Run: *run, Repeated: true, Waiting: run.Status == RunWaiting}
}

// wroteNewestAnswer reports whether the newest answer is the one that the run has written at. The
// view has to show the newest run.
func (v *View) wroteNewestAnswer(run *Run) bool {
	return run != nil && v.Current != nil && run.MessageID == v.Current.MessageID
}

// checkTarget gives the faults of a request that is about another session than the one that there
// is: SESSION_CHANGED, RUN_STALE, AGENT_MISMATCH, and NotFound (SESSION_NOT_FOUND) where a
// session is expected and there is none.
func (c Post) checkTarget(v *View) error {
	s := v.Session
	switch {
	case c.Seen != "" && (s == nil || !v.wroteNewestAnswer(v.Run)):
		return Stale(c.Key)
	case s == nil && c.Expect.isSet():
		return NoSession(c.Key)
	case s == nil:
		return nil
	}
	if err := c.Expect.check(s); err != nil {
		return err
	}
	if c.AgentType != "" && c.AgentType != s.AgentType {
		return fault.New(fault.Conflict, "AGENT_MISMATCH",
			"session %q belongs to agent %q, not %q; leave the agent out or begin another session", c.SessionID, s.AgentType, c.AgentType)
	}
	return nil
}

// Stale is the fault of a request that is about an answer which is not the newest.
func Stale(key Key) error {
	return fault.New(fault.Conflict, "RUN_STALE",
		"the conversation %q has moved on; load its messages, and send the request again if it is still wanted", key.SessionID)
}

// checkNotAborted gives Conflict (RUN_CANCELLED) for a session whose newest run was aborted: that
// was to end it for good. A session that ended with its parent was not aborted.
func (c Post) checkNotAborted(s *Session) error {
	if f := s.Failure; f == nil || f.Code != codeCancelled || f.Reason != "" {
		return nil
	}
	return fault.New(fault.Conflict, "RUN_CANCELLED", "run %q of session %q was aborted and does not go on; start a run with a message", s.CurrentRunID, c.SessionID)
}

// nextChange returns the change of a session that exists, to which the rest of the command is
// added.
func nextChange(v *View) *Change {
	s := *v.Session
	s.Version++
	return &Change{Session: &s}
}

// beginRun makes the session of the change active and its new run. What the change appends
// afterwards is the run's own.
func (c Post) beginRun(change *Change, entry Entry) *Run {
	s := change.Session
	if entry == EntryResume {
		s.ResumeCount++
	}
	s.beginTurn(c.Now)
	s.CurrentRunID = c.RunID
	change.NewRun = c.newRun(s, entry)
	return change.NewRun
}

func (c Post) newRun(s *Session, entry Entry) *Run {
	return &Run{
		RunID: c.RunID, AgentType: s.AgentType, Turn: s.Turn, Status: RunQueued, Entry: entry,
		RequestKey: c.RequestKey, RequestHash: c.RequestHash, MessageID: c.MessageID,
		StartPosition: s.Position, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: c.Now, DeadlineAt: c.DeadlineAt,
		StartMessageCount: s.MessageCount, StartStateVersion: s.StateVersion, StartStateBase: s.StateBase,
		TurnMessageCount: s.MessageCount,
	}
}

// started is the answer to a command that has made the change.
func (change *Change) started() Started {
	return Started{Session: *change.Session, Run: *change.NewRun, Created: change.Created, Abandoned: change.abandonedCalls()}
}

// abandonedCalls returns the ids of the calls that the change abandons.
func (change *Change) abandonedCalls() (ids []string) {
	for _, call := range change.Calls {
		if call.Answer == AnswerAbandoned && call.ConsumedAt == 0 {
			ids = append(ids, call.CallID)
		}
	}
	return ids
}

// Addition is what a run that goes on adds to the conversation and to the custom state
// before its own messages.
type Addition struct {
	Append []Message // of any role
	Ops    []StateOp
}

// allMessages are all that the request brings, in the order of the conversation.
func (a Addition) allMessages(own []Message) []Message { return slices.Concat(a.Append, own) }

// resumeRun begins a run that goes on from what the change leaves of the session.
func (c Post) resumeRun(change *Change, a Addition) error {
	s := change.Session
	change.appendMessages(a.Append)
	merged, err := merge(s.State, a.Ops, c.Limits.State)
	if err != nil {
		return err
	}
	if change.Created && merged.state != s.State {
		s.storeWholeState(change, merged.state)
	} else {
		s.storeState(change, a.Ops, merged.state)
	}
	c.beginRun(change, EntryResume)
	change.appendMessages(c.Messages)
	return nil
}
