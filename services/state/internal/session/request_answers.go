package session

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// takeAnswers applies the answers of the request. Unlike SubmitAll it refuses the request
// only for an approval of the wrong actor, Denied (APPROVER_REFUSED): it skips answers to unknown calls, of the wrong kind, with a Refusal, or
// too large for the journal beside the unread answers. Skipped calls
// stay open.
func (c RunRequest) takeAnswers(change *Change, v *View) error {
	if len(c.Answers) == 0 {
		return nil
	}
	calls := make(map[string]Call, len(v.NamedCalls))
	for _, call := range slices.Concat(v.NamedCalls, change.Calls) {
		if call.SessionID == c.SessionID && !change.dropsCall(call) {
			calls[call.CallID] = call
		}
	}
	room := cmp.Or(c.Limits.Journal, math.MaxInt) - change.UnreadBytes(v)
	for _, answer := range c.Answers {
		call, known := calls[answer.CallID]
		if !known {
			continue
		}
		after, _, changed, err := answer.tryApply(call, c.By, v.Session, false, c.Now)
		if errors.Is(err, fault.Denied) {
			return err
		}
		more := len(after.Response) + len(after.Late) - len(call.Response) - len(call.Late)
		if err != nil || !changed || more > room {
			continue
		}
		room -= more
		calls[call.CallID] = after
		change.putCall(after)
	}
	return nil
}

// refuseEarlyAnswers checks a request that is about to wait. Unavailable (CALL_NOT_OPEN)
// if the live run has planned an answered call but has not opened it yet: no run
// would take the answer, and the session would wait for the call after the live run.
// Without a recorded plan the calls are unknown, and their answers are skipped; with RefuseUnknownAnswers, the
// request is Conflict (ANSWERS_UNKNOWN).
func (c RunRequest) refuseEarlyAnswers(v *View) error {
	family, unknown := map[string]bool{}, ""
	for _, call := range v.NamedCalls {
		family[call.CallID] = true
	}
	for _, answer := range c.Answers {
		switch {
		case family[answer.CallID]:
		case v.Live == nil:
			return &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{Live: true, Journal: true}}}}
		case v.Journal.mayOpen(answer.CallID, nil):
			return callNotOpen(answer.CallID)
		default:
			unknown = answer.CallID
		}
	}
	if unknown != "" && c.RefuseUnknownAnswers {
		return v.Session.conflict("ANSWERS_UNKNOWN", "session %q does not know the answered call %q", c.SessionID, unknown)
	}
	return nil
}
