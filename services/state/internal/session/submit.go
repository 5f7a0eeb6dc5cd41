package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Submit gives the answer to a call. The first answer stands, but that a real
// one takes the place of a timeout for as long as no step has taken it.
//
// The answer that a suspended session has waited for last continues it in the
// same write. The new status is told to the family by Family.Spread.
//
// Faults: NotFound (SESSION_NOT_FOUND, UNKNOWN_TOOL_CALL), Invalid
// (KIND_MISMATCH), Conflict (OWNER_NOT_CONTINUABLE). Nothing is stored then.
type Submit struct {
	Key        // the session that owns the call
	CallID     string
	Kind       CallKind // empty for an answer that says only that the call failed: it fits both kinds
	ApprovalID string   // of an approval
	Response   []byte
	NewRunID   string // of the continuation, if there is one
	Now        Millis
}

// SubmitStatus is what became of an answer.
type SubmitStatus string

// The statuses of answers. UnknownCall and NotContinuable are those of SubmitAll
// only: Submit has faults for them.
const (
	Accepted         SubmitStatus = "accepted"
	AlreadyCompleted SubmitStatus = "already_completed"         // another answer stands
	LateAnswer       SubmitStatus = "late_answer_after_timeout" // a step has taken the timeout; the model will be told
	UnknownCall      SubmitStatus = "unknown_tool_call"
	NotContinuable   SubmitStatus = "owner_not_continuable" // the session is over
)

// Continuation is who goes on after an answer.
type Continuation string

// The continuations.
const (
	NoContinuation Continuation = "none"
	NewRun         Continuation = "new_run"        // a run that the answer has queued
	LiveRun        Continuation = "live_run"       // the run that is live anyway
	CallerResumes  Continuation = "caller_resumes" // nothing is awaited, and there are answers to take, but the session was interrupted or paused
)

// Submitted is the answer to Submit.
type Submitted struct {
	Status       SubmitStatus
	Continuation Continuation
	RunID        string // of the continuation; empty for none
	Call         Call   // after the submit
}

// Need says what Decide wants to see.
func (c Submit) Need() Need {
	return Need{CallIDs: []string{c.CallID}, Calls: true, Current: true}
}

// Decide takes the answer.
func (c Submit) Decide(v *View) (*Change, Submitted, error) {
	if v.Session == nil {
		return nil, Submitted{}, NoSession(c.Key)
	}
	call, known := v.ownCall(c.CallID)
	if !known {
		return nil, Submitted{}, NoCall(c.CallID)
	}
	answer := Answer{CallID: c.CallID, Kind: c.Kind, ApprovalID: c.ApprovalID, Response: c.Response}
	if !answer.matches(call) {
		return nil, Submitted{}, answer.mismatch(call)
	}
	call, status, news := answer.apply(call, v.Session.Status.Terminal(), c.Now)
	if status == NotContinuable {
		return nil, Submitted{}, fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE",
			"session %q, which made call %q, is %s and does not go on; start a run with a message instead", c.SessionID, c.CallID, v.Session.Status)
	}
	if !news {
		return nil, withContinuation(v, nil, Submitted{Status: status, Call: call}), nil
	}
	change := &Change{Calls: []Call{call}}
	change.continueSession(v, c.NewRunID, c.Now)
	return change, withContinuation(v, change, Submitted{Status: status, Call: call}), nil
}

// Answer is what somebody outside says to a call.
type Answer struct {
	CallID     string
	Kind       CallKind // as in Submit
	ApprovalID string
	Response   []byte
	Refusal    error // why it may not be taken, where it is news; nil for nothing. Of SubmitAll and Start.Answers
}

func (a Answer) matches(call Call) bool {
	return a.Kind == "" || a.Kind == call.Kind && a.ApprovalID == call.ApprovalID
}

func (a Answer) mismatch(call Call) error {
	return fault.New(fault.Invalid, "KIND_MISMATCH",
		"call %q waits for an answer of kind %s (approval %q), not %s (approval %q)", call.CallID, call.Kind, call.ApprovalID, a.Kind, a.ApprovalID)
}

// apply gives the answer, which fits, to a call of a session that may be over. It
// returns the call after that, and whether there is anything to write of it: of a
// timeout that a step has taken, the first answer that comes late is kept.
func (a Answer) apply(call Call, over bool, now Millis) (after Call, status SubmitStatus, news bool) {
	consumed := call.ConsumedAt != 0
	switch {
	case consumed && call.Answer == AnswerTimeout && call.LateAt != 0:
		return call, LateAnswer, false
	case consumed && call.Answer == AnswerTimeout:
		call.Late, call.LateAt = a.Response, now
		return call, LateAnswer, true
	case consumed || call.Answer == AnswerClient || call.Answer == AnswerAbandoned:
		return call, AlreadyCompleted, false
	case over:
		return call, NotContinuable, false
	default:
		return call.withAnswer(AnswerClient, a.Response, now), Accepted, true
	}
}

// continueSession continues the session if it waits for nothing any more after the
// change, which has answered calls of it.
func (change *Change) continueSession(v *View, runID string, now Millis) {
	if !v.Session.Status.Suspended() || v.Current == nil || v.Session.isWaiting(change.unconsumedCalls(v)) {
		return
	}
	s := *v.Session
	s.Version++
	change.NewRun = s.beginContinuation(v.Current, runID, now)
	change.Session = &s
}

// withContinuation completes an answer with who goes on after it.
func withContinuation(v *View, change *Change, answer Submitted) Submitted {
	if change == nil {
		change = &Change{}
	}
	calls := change.unconsumedCalls(v)
	answered := slices.ContainsFunc(calls, func(call Call) bool { return !call.isOpen() })
	switch status := v.Session.Status; {
	case change.NewRun != nil:
		answer.Continuation, answer.RunID = NewRun, change.NewRun.RunID
	case status == Active:
		answer.Continuation, answer.RunID = LiveRun, v.Session.CurrentRunID
	case (status == Interrupted || status == Paused) && answered && !slices.ContainsFunc(calls, Call.isAwaited):
		answer.Continuation = CallerResumes
	default:
		answer.Continuation = NoContinuation
	}
	return answer
}
