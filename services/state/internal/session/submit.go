package session

import (
	"bytes"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Submit answers a call. The first answer wins, but a real answer replaces a timeout until a
// step consumes it.
//
// The last awaited answer continues a suspended session in the same write. Family.Propagate
// reports the new status to the family.
//
// Faults, with nothing written: NotFound (SESSION_NOT_FOUND, UNKNOWN_TOOL_CALL), Invalid
// (KIND_MISMATCH), Conflict (OWNER_NOT_CONTINUABLE), Denied (APPROVER_REFUSED), TooLarge (RESULT_TOO_LARGE). A caller that does not
// reach the session may answer a call of others that it may approve; for anything else the session is
// not found.
type Submit struct {
	Key        // the session that owns the call
	By         Caller
	CallID     string
	Kind       CallKind // empty for a failed call, which fits both kinds
	ApprovalID string   // of an approval
	Approves   bool     // it approves the call
	Callback   bool     // it may answer a Callback call
	OfRun      string   // if not empty, it may only answer the Callback call that this run has opened
	Response   []byte
	NewRunID   string // of a continuation
	MaxUnread  int    // bytes of the session's unread answers, since one claim carries them; 0 for any
	Now        Millis
}

// SubmitStatus is the outcome of one answer.
type SubmitStatus string

// The outcomes. Submit has faults in place of UnknownCall and NotContinuable.
const (
	Accepted         SubmitStatus = "accepted"
	AlreadyCompleted SubmitStatus = "already_completed"         // the call has another answer
	LateAnswer       SubmitStatus = "late_answer_after_timeout" // a step has consumed the timeout; the model gets the answer later
	UnknownCall      SubmitStatus = "unknown_tool_call"
	NotContinuable   SubmitStatus = "owner_not_continuable" // the session has ended
)

// Continuation is how the session continues after an answer.
type Continuation string

// The continuations.
const (
	NoContinuation  Continuation = "none"
	ContinueNewRun  Continuation = "new_run"        // the answer has queued a run
	ContinueLiveRun Continuation = "live_run"       // the live run reads the answer
	CallerResumes   Continuation = "caller_resumes" // nothing is awaited, but an interrupted or paused session needs a resume to read its answers
)

// Submitted is the result of Submit.
type Submitted struct {
	Status       SubmitStatus
	Continuation Continuation
	RunID        string // of the continuing run; empty for none
	Call         Call   // after the command
	Repeated     bool   // with AlreadyCompleted: the call's answer is equal to this one
}

// Need lists the rows for Decide.
func (c Submit) Need() Need {
	return Need{CallIDs: []string{c.CallID}, Calls: true, Current: true}
}

// Decide applies the answer.
func (c Submit) Decide(v *View) (*Change, Submitted, error) {
	if v.Session == nil {
		return nil, Submitted{}, SessionNotFound(c.Key)
	}
	call, known := v.ownCall(c.CallID)
	if !c.By.Reaches(v.Session) && !(known && call.isOpenTo(v.Session, c.By)) {
		return nil, Submitted{}, SessionNotFound(c.Key)
	}
	if !known || c.OfRun != "" && (call.Kind != Callback || call.RunID != c.OfRun) {
		return nil, Submitted{}, CallNotFound(c.CallID)
	}
	answer := Answer{
		CallID: c.CallID, Kind: c.Kind, ApprovalID: c.ApprovalID, Approves: c.Approves, Callback: c.Callback, Response: c.Response,
	}
	if !answer.matches(call) {
		return nil, Submitted{}, answer.mismatch(call)
	}
	call, status, changed, err := answer.apply(call, c.By, v.Session, v.Session.Status.Terminal() || v.Session.hasExpired(c.Now), c.Now)
	if err != nil {
		return nil, Submitted{}, err
	}
	if status == NotContinuable {
		return nil, Submitted{}, v.Session.conflict(
			"OWNER_NOT_CONTINUABLE",
			"session %q, which owns call %q, is %s and cannot continue, or has expired; start a run with a message instead",
			c.SessionID,
			c.CallID,
			v.Session.Status,
		)
	}
	if !changed {
		repeated := status == AlreadyCompleted && bytes.Equal(call.Response, c.Response)
		return nil, withContinuation(v, nil, Submitted{Status: status, Call: call, Repeated: repeated}), nil
	}
	change := &Change{Calls: []Call{call}}
	if err := change.checkUnread(v, c.MaxUnread); err != nil {
		return nil, Submitted{}, err
	}
	change.continueSession(v, c.NewRunID, c.Now)
	return change, withContinuation(v, change, Submitted{Status: status, Call: call}), nil
}

// checkUnread gives TooLarge (RESULT_TOO_LARGE) for answers if the session's unread ones would have more than limit
// bytes together; 0 allows any.
func (change *Change) checkUnread(v *View, limit int) error {
	size := change.UnreadBytes(v)
	if limit == 0 || size <= limit {
		return nil
	}
	return fault.New(
		fault.TooLarge,
		"RESULT_TOO_LARGE",
		"the answers that session %q waits to read would have %d bytes together; the limit is %d: answer with an error, or with a reference to the result",
		v.Session.SessionID,
		size,
		limit,
	).WithSizes(int64(size), int64(limit))
}

// Answer is an answer to a call from outside.
type Answer struct {
	CallID     string
	Kind       CallKind // as in Submit
	ApprovalID string
	Approves   bool // it approves the call
	Callback   bool // as in Submit
	Response   []byte
	Refusal    error // the fault if the answer would be applied; nil for none. Submit ignores it
}

func (a Answer) matches(call Call) bool {
	switch {
	case call.Kind == SubAgent:
		return false // its child answers it
	case call.Kind == Callback:
		return a.Callback && a.Kind != Approval
	}
	return a.Kind == "" || a.Kind == call.Kind && a.ApprovalID == call.ApprovalID
}

func (a Answer) mismatch(call Call) error {
	if call.Kind == Callback && a.Kind != Approval {
		return fault.New(
			fault.Invalid,
			"KIND_MISMATCH",
			"call %q waits for a result that another system posts to its callback URL; only a caller with the scope operate may answer it instead",
			call.CallID,
		)
	}
	return fault.New(
		fault.Invalid,
		"KIND_MISMATCH",
		"call %q waits for an answer of kind %s (approval %q), not %s (approval %q)",
		call.CallID,
		call.Kind,
		call.ApprovalID,
		a.Kind,
		a.ApprovalID,
	)
}

// apply answers a call of the right kind in its session. ended reports that the session has ended. It returns
// the call afterwards, and whether it has changed. If a step has consumed a timeout, the
// first late answer is stored. Denied (APPROVER_REFUSED) for an approval that would change the
// call, but not by this caller.
func (a Answer) apply(call Call, by Caller, s *Session, ended bool, now Millis) (after Call, status SubmitStatus, changed bool, err error) {
	after, status, changed = a.applied(call, by, ended, now)
	if changed && a.Approves {
		err = call.checkApprover(s, by.Actor)
	}
	if err != nil {
		return call, "", false, err
	}
	return after, status, changed, nil
}

func (a Answer) applied(call Call, by Caller, ended bool, now Millis) (after Call, status SubmitStatus, changed bool) {
	consumed := call.ConsumedAt != 0
	switch {
	case consumed && call.Answer == AnswerTimeout && call.LateAt != 0:
		return call, LateAnswer, false
	case consumed && call.Answer == AnswerTimeout:
		call.Late, call.LateAt, call.AnsweredBy = a.Response, now, by.Actor
		return call, LateAnswer, true
	case consumed || call.Answer == AnswerClient || call.Answer == AnswerAbandoned:
		return call, AlreadyCompleted, false
	case ended:
		return call, NotContinuable, false
	default:
		call.AnsweredBy = by.Actor
		return call.withAnswer(AnswerClient, a.Response, now), Accepted, true
	}
}

// continueSession continues the session if the answers in the change were the last awaited.
func (change *Change) continueSession(v *View, runID string, now Millis) {
	if !v.Session.Status.Suspended() || v.Current == nil || awaitsAny(change.unconsumedCalls(v)) {
		return
	}
	change.Session = v.nextVersion(now)
	change.NewRun = change.Session.beginContinuation(v.Current, runID, now)
}

// withContinuation completes the result of an answer. change is nil if nothing is written.
func withContinuation(v *View, change *Change, answer Submitted) Submitted {
	if change == nil {
		change = &Change{}
	}
	calls := change.unconsumedCalls(v)
	answered := slices.ContainsFunc(calls, func(call Call) bool { return !call.isOpen() })
	switch status := v.Session.Status; {
	case change.NewRun != nil:
		answer.Continuation, answer.RunID = ContinueNewRun, change.NewRun.RunID
	case status == Active:
		answer.Continuation, answer.RunID = ContinueLiveRun, v.Session.CurrentRunID
	case (status == Interrupted || status == Paused) && answered && !awaitsAny(calls):
		answer.Continuation = CallerResumes
	default:
		answer.Continuation = NoContinuation
	}
	return answer
}
