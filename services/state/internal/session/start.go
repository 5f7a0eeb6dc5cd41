package session

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Start begins a run, and the session with it when it is new. A sub-session's
// new status is told to its parent by Family.Spread.
//
// Faults: Conflict (REQUEST_KEY_REUSED, SESSION_CHANGED, AGENT_MISMATCH,
// PARENT_MISMATCH, PARENT_ENDED, LOCATION_FIXED, SESSION_BUSY, SESSION_SUSPENDED,
// SESSION_COMPLETED, RUN_CANCELLED, MESSAGE_EXISTS), NotFound (AGENT_NOT_FOUND), NotFound
// (SESSION_NOT_FOUND) when a session is expected and for the parent,
// NotFound (CHECKPOINT_NOT_FOUND, MESSAGE_NOT_FOUND), Unavailable (CALL_NOT_OPEN),
// TooLarge (STATE_SIZE_EXCEEDED), Exhausted (TOO_MANY_WAITING), Wider to see the
// parent, and what a session that is busy has.
type Start struct {
	Key
	AgentType   string    // may be empty for a session that exists
	RewindTo    string    // a checkpoint that a session that exists is taken back to first; empty for none
	TakeBack    *TakeBack // likewise a message; nil for none, as with RewindTo
	Append      []Message
	Ops         []StateOp // writes to the custom state of a session that exists
	Messages    []Message // behind those of Append; the run's own
	RequestKey  string
	RequestHash []byte // of the request as the caller gave it
	RunID       string
	MessageID   string
	Traceparent string
	Tracestate  string
	Expect      Expect
	Resume      bool              // the session goes on where it stopped; Messages may be empty
	Abandon     func(Call) []byte // gives the answers to the open calls, for which nobody waits any more; nil leaves them open
	Answers     []Answer          // to calls of the session, taken before the rest is abandoned
	OnBusy      BusyPolicy        // when another run is live; empty for what the session's agent has announced
	DeadlineAt  Millis            // of the run; 0 for none
	Limits      Limits
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
	Waiting  bool // Run waits for the one that is live

	Abandoned []string // the calls that were abandoned for Run
}

// Need says what Decide wants to see.
func (c Start) Need() Need {
	need := Need{
		RequestKey: c.RequestKey, AgentType: c.AgentType, MessageIDs: messageIDs(c.messages()), State: true,
		Calls: c.Resume || c.Abandon != nil || len(c.Answers) > 0 || c.goesBack(), CheckpointID: c.RewindTo,
		Current: c.Resume,
	}
	if len(c.Answers) > 0 {
		need.CallIDs = callIDs(c.Answers)
	}
	if c.TakeBack != nil {
		need.BackTo = c.TakeBack.MessageID
	}
	need.Children = c.goesBack()
	return need
}

// goesBack reports whether the session is taken back before the run begins.
func (c Start) goesBack() bool { return c.RewindTo != "" || c.TakeBack != nil }

// Decide starts the run, or finds that the request was answered before. The
// first view is the session's own; the parent's, when one is named, is among the
// others.
func (c Start) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	if v.Keyed != nil {
		return c.repeat(v)
	}
	waits, err := c.admit(v)
	if err != nil {
		return nil, Started{}, err
	}
	if err := v.free(c.messages(), c.left(v)); err != nil {
		return nil, Started{}, err
	}
	if waits {
		return c.wait(v)
	}
	change, err := c.session(views)
	if err != nil {
		return nil, Started{}, err
	}
	s := change.Session
	change.append(c.Append)
	if err := c.write(change); err != nil {
		return nil, Started{}, err
	}
	change.NewRun = c.run(s)
	if c.writesOn(v) {
		change.NewRun.MessageID = v.Current.MessageID
	}
	if c.TakeBack != nil && c.TakeBack.Keep { // its own first message
		at := v.Back.Message.Ordinal
		change.NewRun.StartMessageCount, change.NewRun.TurnMessageCount = at, at
	}
	s.CurrentRunID = c.RunID
	change.append(c.Messages)
	return change, Started{Session: *s, Run: *change.NewRun, Created: change.Created, Abandoned: change.abandoned()}, nil
}

// writesOn reports whether the run goes on in the message of the run before it: as a
// continuation does, it takes answers to calls that stand there.
func (c Start) writesOn(v *View) bool {
	return c.Resume && c.Abandon == nil && !c.goesBack() && len(c.messages()) == 0 && v.Current != nil &&
		slices.ContainsFunc(v.Calls, func(call Call) bool { return call.ConsumedAt == 0 && call.RunID != "" })
}

// messages are all that the request brings, in the order of the conversation.
func (c Start) messages() []Message { return slices.Concat(c.Append, c.Messages) }

// left is how many messages are left of the conversation before the request's
// own.
func (c Start) left(v *View) int64 {
	switch {
	case v.Session == nil:
		return 0
	case c.RewindTo != "":
		return min(v.Session.MessageCount, v.Checkpoint.MessageCount)
	case c.TakeBack != nil:
		return c.TakeBack.left(v)
	default:
		return v.Session.MessageCount
	}
}

// write merges the request's writes into the custom state.
func (c Start) write(change *Change) error {
	s := change.Session
	merged, err := merge(s.State, c.Ops, c.Limits.State)
	if err != nil {
		return err
	}
	s.keep(change, c.Ops, merged.state)
	return nil
}

func (c Start) repeat(v *View) (*Change, Started, error) {
	first := v.Keyed
	same := bytes.Equal(c.RequestHash, first.RequestHash) && c.Resume == (first.Entry == EntryResume)
	if c.AgentType != "" && c.AgentType != first.AgentType || !same {
		return nil, Started{}, fault.New(fault.Conflict, "REQUEST_KEY_REUSED",
			"request key %q started run %q with another agent or other messages; use a new key for a new request", c.RequestKey, first.RunID)
	}
	return nil, Started{Session: *v.Session, Run: *first, Repeated: true, Waiting: first.Status == RunWaiting}, nil
}

// admit says whether the session may have a new run now, or the run waits.
func (c Start) admit(v *View) (waits bool, err error) {
	s := v.Session
	if s == nil {
		return false, c.admitNew(v)
	}
	if err := c.Expect.met(s); err != nil {
		return false, err
	}
	if c.AgentType != "" && c.AgentType != s.AgentType {
		return false, fault.New(fault.Conflict, "AGENT_MISMATCH",
			"session %q belongs to agent %q, not %q; leave the agent out or begin another session", c.SessionID, s.AgentType, c.AgentType)
	}
	if c.ParentID != "" && c.ParentID != s.ParentID {
		return false, fault.New(fault.Conflict, "PARENT_MISMATCH",
			"session %q exists and is no sub-session of %q; leave the parent out or begin another session", c.SessionID, c.ParentID)
	}
	if c.RewindTo != "" && v.Checkpoint == nil {
		return false, noCheckpoint(c.RewindTo)
	}
	if c.TakeBack != nil && s.Status != Active {
		return false, c.TakeBack.admit(v)
	}
	switch s.Status {
	case Completed:
		if c.Resume && c.RewindTo == "" {
			return false, fault.New(fault.Conflict, "SESSION_COMPLETED", "session %q is completed: there is nothing to resume; start a run with a message", c.SessionID)
		}
		return false, nil
	case Failed, Interrupted, Paused:
		return false, c.admitEnded(s)
	case SuspendedClientTool, SuspendedAwaitingChildren, SuspendedStepPartial:
		return c.admitSuspended(v)
	default:
		return true, c.mayWait(v)
	}
}

// admitEnded refuses to go on with what was aborted: that was to end it for good.
func (c Start) admitEnded(s *Session) error {
	if c.Resume && c.RewindTo == "" && s.Failure != nil && s.Failure.Code == cancelled && s.Failure.Reason == "" {
		return fault.New(fault.Conflict, "RUN_CANCELLED", "run %q of session %q was aborted and does not go on; start a run with a message", s.CurrentRunID, c.SessionID)
	}
	return nil
}

func (c Start) admitNew(v *View) error {
	if c.Resume || c.Expect.given() || c.goesBack() || len(c.Ops) > 0 {
		return NoSession(c.Key)
	}
	if !v.AgentKnown {
		return noAgent(c.AgentType)
	}
	return nil
}

// admitSuspended lets nobody begin before those who wait already, but for who
// takes the session on where it is.
func (c Start) admitSuspended(v *View) (waits bool, err error) {
	open := Awaited(v.Calls)
	switch {
	case c.RewindTo != "" && v.Session.Waiting > 0:
		return false, busy(v.Session)
	case c.RewindTo != "", c.Resume && (c.Abandon != nil || open == 0):
		return false, nil
	case c.Abandon != nil && v.Session.Waiting > 0:
		return true, c.mayWait(v)
	case c.Abandon != nil:
		return false, nil
	case c.Resume:
		return false, fault.New(fault.Conflict, "SESSION_SUSPENDED", "session %q waits for the answers to %d calls (%s); submit them or abandon them", c.SessionID, open, v.Session.Status)
	default:
		return false, fault.New(fault.Conflict, "SESSION_SUSPENDED", "session %q waits for an answer (%s); submit it or interrupt the session", c.SessionID, v.Session.Status)
	}
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
		if err := c.goBack(change, v); err != nil {
			return nil, err
		}
	} else {
		birth, err := c.create().birth(views)
		if err != nil {
			return nil, err
		}
		change = birth
	}
	s := change.Session
	if c.Resume {
		s.ResumeCount++
	}
	s.begin(c.Now)
	return change, nil
}

func (c Start) create() Create {
	return Create{
		Key: c.Key, AgentType: c.AgentType, ParentID: c.ParentID, Child: c.Child, UserID: c.UserID, OrganizationID: c.OrganizationID,
		Tags: c.Tags, Metadata: c.Metadata, State: c.State, Now: c.Now,
	}
}

// goBack takes a session that exists back to where the request says, and answers
// the calls that are open there. After a rewind none is.
func (c Start) goBack(change *Change, v *View) error {
	if c.RewindTo != "" {
		change.rewind(v)
		return nil
	}
	if c.TakeBack != nil {
		if err := c.TakeBack.fresh(v, c.messages()); err != nil {
			return err
		}
		if err := change.takeBack(v, c.TakeBack, c.RunID); err != nil {
			return err
		}
	}
	c.answer(change, v)
	c.abandon(change, v)
	if c.TakeBack != nil {
		change.dropOpen(v)
	}
	return nil
}

// answer takes the answers that the request brings, as SubmitAll takes them, but that none
// keeps the messages from being said: those to calls that go away, or are none of the
// session's, change nothing, and neither do those that do not fit, are refused, or would
// be more than one journal may have together with what is unread. Their calls stay open.
func (c Start) answer(change *Change, v *View) {
	if len(c.Answers) == 0 {
		return
	}
	calls := make(map[string]Call, len(v.Named))
	for _, call := range slices.Concat(v.Named, change.Calls) {
		if call.SessionID == c.SessionID && !change.drops(call) {
			calls[call.CallID] = call
		}
	}
	room := cmp.Or(c.Limits.Journal, math.MaxInt) - change.Unread(v)
	for _, answer := range c.Answers {
		call, known := calls[answer.CallID]
		if !known {
			continue
		}
		after, _, news, err := answer.attempt(call, false, c.Now)
		more := len(after.Response) + len(after.Late) - len(call.Response) - len(call.Late)
		if err != nil || !news || more > room {
			continue
		}
		room -= more
		calls[call.CallID] = after
		change.call(after)
	}
}

// early gives Unavailable (CALL_NOT_OPEN) for a request that is to wait and brings the
// answer to a call that the live run has planned and not opened: nobody would take the
// answer, and behind that run the session would wait for it. A step whose plan is not
// recorded, or has none, says nothing of its calls: their answers are passed over.
func (c Start) early(v *View) error {
	family := map[string]bool{}
	for _, call := range v.Named {
		family[call.CallID] = true
	}
	for _, answer := range c.Answers {
		switch {
		case family[answer.CallID]:
		case v.Live == nil:
			return &Wider{[]Target{{c.Key, Need{Open: true, Journal: true}}}}
		case v.Journal.opens(answer.CallID):
			return notOpen(answer.CallID)
		}
	}
	return nil
}

// abandon answers the calls of the session that are still open, where the request
// says that nobody waits for them any more.
func (c Start) abandon(change *Change, v *View) {
	if c.Abandon == nil {
		return
	}
	for _, call := range change.callsOf(v) {
		if call.open() {
			change.call(call.answered(AnswerAbandoned, c.Abandon(call), c.Now))
		}
	}
}

// abandoned returns the ids of the calls that the change abandons.
func (change *Change) abandoned() (ids []string) {
	for _, call := range change.Calls {
		if call.Answer == AnswerAbandoned && call.ConsumedAt == 0 {
			ids = append(ids, call.CallID)
		}
	}
	return ids
}

func (c Start) run(s *Session) *Run {
	entry := EntryStart
	if c.Resume {
		entry = EntryResume
	}
	return &Run{
		RunID: c.RunID, AgentType: s.AgentType, Turn: s.Turn, Status: RunQueued, Entry: entry,
		RequestKey: c.RequestKey, RequestHash: c.RequestHash, MessageID: c.MessageID,
		StartSequence: s.StreamSequence, StartPosition: s.Position, Traceparent: c.Traceparent, Tracestate: c.Tracestate, CreatedAt: c.Now, DeadlineAt: c.DeadlineAt,
		StartMessageCount: s.MessageCount, StartStateVersion: s.StateVersion, StartStateBase: s.StateBase,
		TurnMessageCount: s.MessageCount,
	}
}
