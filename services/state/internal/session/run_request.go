package session

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// RunRequest has the fields and rules of every client request that begins a run: Send, Edit,
// Regenerate, Resume, Retry and BranchAndStart. Family.Propagate reports the new status of a child
// to its parent.
//
// Faults of all requests: Conflict (REQUEST_KEY_REUSED, SESSION_CHANGED, RUN_STALE,
// AGENT_MISMATCH, SESSION_BUSY, MESSAGE_EXISTS), NotFound (SESSION_NOT_FOUND), and an
// IncompleteViewError to see more of the session or its family.
type RunRequest struct {
	Key
	By            Caller
	AgentType     string // may be empty for an existing session
	DefaultAgent  string // of a new session, if AgentType is empty; if both are, it gets View.Agent
	RequestKey    string
	RequestHash   []byte // of the client's request
	RunID         string
	MessageID     string // of the assistant's answer
	Traceparent   string
	Tracestate    string
	Expect        Expect
	MustExist     bool   // the session must exist
	LastSeenRunID string // a run of the newest answer, as the client saw it; empty for any
	Messages      []Message
	Caller        CallerInput // of the last message
	EarlierIDs    []string    // of users' messages that the client has; see Unknown
	Answers       []Answer    // to calls of the session, applied before Abandon
	// RefuseUnknownAnswers refuses a request that would wait if it answers a call that the session does not know.
	RefuseUnknownAnswers bool
	Abandon              func(Call) []byte // returns the answer to an open call; nil leaves open calls open
	OnBusy               BusyPolicy        // for a session with a live run; empty for the agent's policy
	DefaultOnBusy        BusyPolicy        // if the agent has no policy either; empty for BusyReject
	Priority             int32             // of the run
	DeadlineAt           Millis            // of the run; 0 for none
	Limits               Limits
	Schemas              SchemaFuncs
	Now                  Millis

	Bodies BodyFuncs
}

// BodyFuncs interprets message bodies, which are opaque to commands. Its functions are pure.
type BodyFuncs struct {
	SameContent func(stored, posted Message) (bool, error)     // both have the same content
	IsVisible   func(Message) (bool, error)                    // users see the user message
	MoveToRun   func(m Message, runID string) (Message, error) // the message as part of the run
	RanTool     func(step []Message) (bool, error)             // a tool has run in the step
}

// Started is the result of a RunRequest.
type Started struct {
	Session  Session
	Run      Run
	Created  bool // the session is new
	Repeated bool // nothing was written: an equal request has begun Run or the run it continues
	Waiting  bool // Run waits for the live run

	Abandoned []string // ids of the calls abandoned for Run
	Unknown   int      // how many of the client's messages the session does not have
	Removed   int64    // how many stored messages the request has removed
	Missing   int      // how many users' messages stay that the client lacks
}

func (c RunRequest) need() Need {
	need := Need{
		RequestKey: c.RequestKey, AgentType: cmp.Or(c.AgentType, c.DefaultAgent), State: true,
		MessageIDs: append(messageIDs(c.Messages), c.EarlierIDs...),
		RunID:      c.LastSeenRunID, Current: c.LastSeenRunID != "", Calls: c.Abandon != nil || len(c.Answers) > 0,
		OwnAgent: c.AgentType == "", // of an existing session
	}
	if len(c.Answers) > 0 {
		need.CallIDs = callIDs(c.Answers)
	}
	return need
}

// Unknown returns how many of EarlierIDs an existing session does not have. Its view comes first.
func (c RunRequest) Unknown(views ...*View) (unknown int) {
	v := views[0]
	if v.Session == nil || len(c.EarlierIDs) == 0 {
		return 0
	}
	known := make(map[string]bool, len(v.TakenIDs))
	for _, id := range v.TakenIDs {
		known[id] = true
	}
	for _, w := range v.Waiting {
		for _, id := range w.MessageIDs {
			known[id] = true
		}
	}
	for _, id := range c.EarlierIDs {
		if !known[id] {
			unknown++
		}
	}
	return unknown
}

// answerRepeat answers a request with a known request key.
func (c RunRequest) answerRepeat(v *View, entry Entry) (*Change, Started, error) {
	first := v.KeyedRun
	same := bytes.Equal(c.RequestHash, first.RequestHash) && (entry == EntryResume) == (first.Entry == EntryResume)
	if c.AgentType != "" && c.AgentType != first.Agent() || !same {
		return nil, Started{}, v.Session.conflict("REQUEST_KEY_REUSED",
			"request key %q started run %q with another agent or other messages; use a new key for a new request", c.RequestKey, first.RunID)
	}
	return nil, repeatedStart(v, first), nil
}

// repeatedStart is the result of a repeated request.
func repeatedStart(v *View, run *Run) Started {
	return Started{Session: *v.Session, Run: *run, Repeated: true, Waiting: run.Status == RunWaiting}
}

// wroteNewestAnswer reports whether the run has written to the newest answer. It needs
// View.Current.
func (v *View) wroteNewestAnswer(run *Run) bool {
	return run != nil && v.Current != nil && run.MessageID == v.Current.MessageID
}

// checkTarget gives SESSION_CHANGED, RUN_STALE or AGENT_MISMATCH if the session is not the
// expected one, and NotFound (SESSION_NOT_FOUND) if an expected session is missing.
func (c RunRequest) checkTarget(v *View) error {
	s := v.Session
	switch {
	case c.LastSeenRunID != "" && (s == nil || !v.wroteNewestAnswer(v.Run)):
		return s.runStale(c.Key)
	case s == nil && (c.MustExist || c.Expect.isSet()):
		return SessionNotFound(c.Key)
	case s == nil:
		return nil
	}
	if err := c.Expect.check(s); err != nil {
		return err
	}
	if c.namesOtherAgent(s) {
		return c.agentMismatch(s, "omit the agent or use another session")
	}
	return nil
}

func (c RunRequest) namesOtherAgent(s *Session) bool {
	return c.AgentType != "" && c.AgentType != s.AgentType
}

func (c RunRequest) agentMismatch(s *Session, reason string) error {
	return s.conflict("AGENT_MISMATCH", "session %q belongs to agent %q, not %q: %s", c.SessionID, s.AgentType, c.AgentType, reason)
}

// RunStale is the fault of a request about an answer that is no longer the newest.
func RunStale(key Key) error { return (*Session)(nil).runStale(key) }

// runStale is RunStale, with the status of the session.
func (s *Session) runStale(key Key) error {
	return s.describeIn(fault.New(fault.Conflict, "RUN_STALE",
		"the conversation %q has changed since; load its messages, and send the request again if it still applies", key.SessionID))
}

// checkNotAborted gives Conflict (RUN_CANCELLED) if the newest run was aborted. A session
// that failed with its parent was not aborted.
func (c RunRequest) checkNotAborted(s *Session) error {
	if f := s.Failure; f == nil || f.Code != codeCancelled || f.Reason != "" {
		return nil
	}
	return s.conflict("RUN_CANCELLED",
		"run %q of session %q was aborted and cannot be resumed; start a run with a message", s.CurrentRunID, c.SessionID)
}

// beginRun activates the session and creates its run. Messages that are appended later belong
// to the run. The view is of the session, or of the one that it branches from.
func (c RunRequest) beginRun(change *Change, v *View, entry Entry) *Run {
	s := change.Session
	if entry == EntryResume {
		s.ResumeCount++
	}
	change.NewRun = c.newRun(s, v, entry)
	s.beginRun(change.NewRun)
	return change.NewRun
}

func (c RunRequest) newRun(s *Session, v *View, entry Entry) *Run {
	r := &Run{
		RunID: c.RunID, AgentType: s.AgentType, UserID: s.UserID, Entry: entry, RequestKey: c.RequestKey, RequestHash: c.RequestHash,
		MessageID: c.MessageID, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: c.Now, DeadlineAt: c.DeadlineAt,
		StartedBy: c.By.Actor, Priority: c.Priority,
	}
	for _, known := range []*Agent{v.Agent, v.OwnAgent} {
		if known != nil && known.Type == s.AgentType {
			r.useAgent(known)
			break
		}
	}
	return r
}

// started returns the result of a change with a new run.
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

// Addition is added to the conversation and the custom state before the run's own messages.
type Addition struct {
	Append []Message // of any role
	Ops    []StateOp
}

// allMessages returns all messages of the request, in the order of the conversation.
func (a Addition) allMessages(own []Message) []Message { return slices.Concat(a.Append, own) }

// resumeRun begins a run that continues from the session of the change. The view is as for beginRun.
// Invalid (STATE_INVALID) if the writes break the schema of the session's agent.
func (c RunRequest) resumeRun(change *Change, v *View, a Addition) error {
	s := change.Session
	change.appendMessages(a.Append)
	merged, err := merge(s.State, a.Ops, c.Limits.State)
	if err != nil {
		return err
	}
	if err := c.Schemas.check(v.OwnAgent, s.State, merged.state); err != nil {
		return err
	}
	if change.NewState && merged.state != s.State { // one change has one form of state write
		s.storeWholeState(change, merged.state)
	} else {
		s.storeState(change, a.Ops, merged.state)
	}
	c.beginRun(change, v, EntryResume)
	change.appendMessages(c.Messages)
	return nil
}
