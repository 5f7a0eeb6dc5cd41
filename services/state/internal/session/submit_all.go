package session

import "slices"

// SubmitAll answers calls of one session in one write, so that the session continues once.
// It is for clients that do not know which calls are open: each answer is applied as by
// Submit in its turn, and an inapplicable answer only gets a status. KIND_MISMATCH is
// for open calls alone.
//
// Resume tells whether the answers also resume an interrupted or paused session; its next run
// then begins in the same write.
//
// Faults, with nothing written: NotFound (SESSION_NOT_FOUND), Invalid (KIND_MISMATCH), Denied
// (APPROVER_REFUSED), TooLarge (RESULT_TOO_LARGE), Conflict (RUN_STALE), Answer.Refusal, and OtherOwnersError.
type SubmitAll struct {
	Key         // the session that owns the calls
	By          Caller
	Answers     []Answer
	NewRunID    string // of a continuing run
	Resume      ResumePolicy
	Traceparent string // of a resuming run
	Tracestate  string
	SeenRunID   string // RUN_STALE unless this run has a part of the newest assistant message; empty for any
	OwnOnly     bool   // OtherOwnersError if another session of the family owns one of the calls; else such calls are unknown
	MaxUnread   int    // as in Submit
	Now         Millis
}

// OtherOwnersError is the error of answers to calls of which some belong to other sessions of the family. Nothing was
// written. The caller submits the answers of each owner by themselves.
type OtherOwnersError struct{ Owners map[string]string } // the owner of each known call, by the call's id

// Error implements error.
func (e *OtherOwnersError) Error() string { return "the answered calls belong to several sessions" }

// ResumePolicy is when answers resume an interrupted or paused session.
type ResumePolicy int

// The policies.
const (
	ResumeNever    ResumePolicy = iota
	ResumeOwnCalls              // if the newest run has made an answered call
	ResumeAllCalls              // also if an earlier run has, and its answer is unconsumed
)

// Need lists the rows for Decide.
func (c SubmitAll) Need() Need {
	return Need{RunID: c.SeenRunID, CallIDs: callIDs(c.Answers), Calls: true, Current: true}
}

// callIDs returns the unique ids of the answered calls, sorted.
func callIDs(answers []Answer) []string {
	ids := make([]string, len(answers))
	for i, a := range answers {
		ids[i] = a.CallID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Decide applies the answers. It returns one result per answer, in their order, all with the
// same continuation.
func (c SubmitAll) Decide(v *View) (*Change, []Submitted, error) {
	switch {
	case v.Session == nil:
		return nil, nil, SessionNotFound(c.Key)
	case c.SeenRunID != "" && (v.Run == nil || v.Current == nil || v.Run.MessageID != v.Current.MessageID):
		return nil, nil, RunStale(c.Key)
	}
	calls, owners := make(map[string]Call, len(v.NamedCalls)), make(map[string]string, len(v.NamedCalls))
	for _, call := range v.NamedCalls {
		owners[call.CallID] = call.SessionID
		if call.SessionID == c.SessionID {
			calls[call.CallID] = call
		}
	}
	if c.OwnOnly && len(calls) < len(owners) {
		return nil, nil, &OtherOwnersError{owners}
	}
	change := &Change{}
	all, err := c.applyAnswers(change, v.Session, calls, v.Session.Status.Terminal() || v.Session.hasExpired(c.Now))
	if err != nil {
		return nil, nil, err
	}
	if len(change.Calls) > 0 {
		if err := change.checkUnread(v, c.MaxUnread); err != nil {
			return nil, nil, err
		}
		change.continueSession(v, c.NewRunID, c.Now)
	}
	if c.resumesSession(change, v, calls) {
		c.beginResumedRun(change, v)
	}
	next := withContinuation(v, change, Submitted{})
	for i := range all {
		all[i].Continuation, all[i].RunID = next.Continuation, next.RunID
	}
	if change.NewRun == nil && len(change.Calls) == 0 {
		change = nil
	}
	return change, all, nil
}

// applyAnswers applies the answers to the calls, and adds the changed calls to the change.
func (c SubmitAll) applyAnswers(change *Change, s *Session, calls map[string]Call, ended bool) ([]Submitted, error) {
	all := make([]Submitted, len(c.Answers))
	written := map[string]bool{}
	for i, answer := range c.Answers {
		call, known := calls[answer.CallID]
		if !known {
			all[i].Status = UnknownCall
			continue
		}
		call, status, changed, err := answer.tryApply(call, c.By, s, ended, c.Now)
		if err != nil {
			return nil, err
		}
		calls[call.CallID], all[i] = call, Submitted{Status: status, Call: call}
		written[call.CallID] = written[call.CallID] || changed
	}
	for _, id := range callIDs(c.Answers) {
		if written[id] {
			change.Calls = append(change.Calls, calls[id])
		}
	}
	return all, nil
}

// resumesSession reports whether the answers resume an interrupted or paused session: nothing
// is awaited after the change, and an answered call is unconsumed. calls are the answered
// calls.
func (c SubmitAll) resumesSession(change *Change, v *View, calls map[string]Call) bool {
	s := v.Session.Status
	if c.Resume == ResumeNever || s != Interrupted && s != Paused || v.Current == nil ||
		slices.ContainsFunc(change.unconsumedCalls(v), Call.isAwaited) {
		return false
	}
	for _, call := range calls {
		resumable := call.RunID == v.Session.CurrentRunID || c.Resume == ResumeAllCalls && call.RunID != ""
		if resumable && !call.isOpen() && call.ConsumedAt == 0 {
			return true
		}
	}
	return false
}

// beginResumedRun begins a run that continues the message of the calls.
func (c SubmitAll) beginResumedRun(change *Change, v *View) {
	change.Session = v.nextVersion(c.Now)
	post := RunRequest{
		Key:         c.Key,
		RunID:       c.NewRunID,
		MessageID:   v.Current.MessageID,
		Traceparent: c.Traceparent,
		Tracestate:  c.Tracestate,
		Now:         c.Now,
	}
	r := post.beginRun(change, v, EntryResume) // an answer asks for nothing of its own
	r.StartedBy, r.Author = v.Current.StartedBy, v.Current.Author
	r.AgentType, r.StoredAgent = v.Current.AgentType, v.Current.StoredAgent
}

// tryApply is apply for any answer. Denied (APPROVER_REFUSED), Invalid (KIND_MISMATCH) if the call is open and of another
// kind, Answer.Refusal if the answer would be applied.
func (a Answer) tryApply(
	call Call,
	by Caller,
	s *Session,
	ended bool,
	now Millis,
) (after Call, status SubmitStatus, changed bool, err error) {
	switch {
	case a.matches(call):
		after, status, changed, err = a.apply(call, by, s, ended, now)
		if changed && a.Refusal != nil {
			return call, "", false, a.Refusal
		}
		return after, status, changed, err
	case !call.isOpen():
		return call, AlreadyCompleted, false, nil
	case ended:
		return call, NotContinuable, false, nil
	default:
		return call, "", false, a.mismatch(call)
	}
}
