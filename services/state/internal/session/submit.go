package session

import "github.com/holdfast-run/holdfast/pkg/fault"

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

// The statuses of answers.
const (
	Accepted         SubmitStatus = "accepted"
	AlreadyCompleted SubmitStatus = "already_completed"         // another answer stands
	LateAnswer       SubmitStatus = "late_answer_after_timeout" // a step has taken the timeout; the model will be told
)

// Continuation is who goes on after an answer.
type Continuation string

// The continuations.
const (
	NoContinuation Continuation = "none"
	NewRun         Continuation = "new_run"  // a run that the answer has queued
	LiveRun        Continuation = "live_run" // the run that is live anyway
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
	call, known := v.named(c.CallID)
	if !known {
		return nil, Submitted{}, NoCall(c.CallID)
	}
	if c.Kind != "" && (c.Kind != call.Kind || c.ApprovalID != call.ApprovalID) {
		return nil, Submitted{}, fault.New(fault.Invalid, "KIND_MISMATCH",
			"call %q waits for an answer of kind %s (approval %q), not %s (approval %q)", c.CallID, call.Kind, call.ApprovalID, c.Kind, c.ApprovalID)
	}
	if call.ConsumedAt != 0 && call.Answer == AnswerTimeout {
		return c.late(v, call)
	}
	if call.ConsumedAt != 0 || call.Answer == AnswerClient || call.Answer == AnswerAbandoned {
		return nil, goesOn(v, nil, Submitted{Status: AlreadyCompleted, Call: call}), nil
	}
	return c.accept(v, call)
}

// late keeps the first answer that comes after a step took the timeout.
func (c Submit) late(v *View, call Call) (*Change, Submitted, error) {
	if call.LateAt != 0 {
		return nil, goesOn(v, nil, Submitted{Status: LateAnswer, Call: call}), nil
	}
	call.Late, call.LateAt = c.Response, c.Now
	return &Change{Calls: []Call{call}}, goesOn(v, nil, Submitted{Status: LateAnswer, Call: call}), nil
}

func (c Submit) accept(v *View, call Call) (*Change, Submitted, error) {
	if v.Session.Status.Terminal() {
		return nil, Submitted{}, fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE",
			"session %q, which made call %q, is %s and does not go on; start a run with a message instead", c.SessionID, c.CallID, v.Session.Status)
	}
	call = call.answered(AnswerClient, c.Response, c.Now)
	change := &Change{Calls: []Call{call}}
	change.resume(v, c.NewRunID, c.Now)
	return change, goesOn(v, change, Submitted{Status: Accepted, Call: call}), nil
}

// resume continues the session if it waits for nothing any more after the
// change, which has answered calls of it.
func (change *Change) resume(v *View, runID string, now Millis) {
	if !v.Session.Status.Suspended() || v.Current == nil || v.Session.waits(change.callsOf(v)) {
		return
	}
	s := *v.Session
	s.Version++
	change.NewRun = s.proceed(v.Current, runID, now)
	change.Session = &s
}

// goesOn completes an answer with who goes on after it.
func goesOn(v *View, change *Change, answer Submitted) Submitted {
	switch {
	case change != nil && change.NewRun != nil:
		answer.Continuation, answer.RunID = NewRun, change.NewRun.RunID
	case v.Session.Status == Active:
		answer.Continuation, answer.RunID = LiveRun, v.Session.CurrentRunID
	default:
		answer.Continuation = NoContinuation
	}
	return answer
}
