package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Missing says why a call is not there that somebody has answered. A client is told of a
// call before the step that opens it is committed, and may be faster than that.
//
// Faults, always one of them: NotFound (UNKNOWN_TOOL_CALL), Conflict
// (OWNER_NOT_CONTINUABLE) of a session that has failed, since its calls went with it,
// and Unavailable (CALL_NOT_OPEN) for as long as a live run may still open the call:
// one that has it in its plan, or has no plan, and any below the session.
type Missing struct {
	Key    // the session that the caller knows
	CallID string
}

// Need says what Decide wants to see.
func (c Missing) Need() Need {
	return Need{CallIDs: []string{c.CallID}, Open: true, Journal: true, Children: true}
}

// Decide writes nothing.
func (c Missing) Decide(v *View) (*Change, struct{}, error) {
	switch {
	case v.Session == nil:
		return nil, struct{}{}, NoCall(c.CallID)
	case len(v.Named) > 0: // it was opened meanwhile
		return nil, struct{}{}, callNotOpen(c.CallID)
	case v.Session.Status == Failed:
		return nil, struct{}{}, fault.New(fault.Conflict, "OWNER_NOT_CONTINUABLE",
			"session %q has failed, and its calls with it; start a run with a message instead", c.SessionID)
	case v.Live != nil && (v.Journal == nil || v.Journal.mayOpen(c.CallID)), slices.ContainsFunc(v.Children, Child.mayOpen):
		return nil, struct{}{}, callNotOpen(c.CallID)
	default:
		return nil, struct{}{}, NoCall(c.CallID)
	}
}

// mayOpen reports whether the step in flight may open the call: it is planned, and has no
// result.
func (j *Journal) mayOpen(callID string) bool {
	return j != nil && slices.Contains(j.CallIDs, callID) && !j.hasResult(callID)
}

// mayOpen reports whether something runs in the sub-session, or below it, that may open
// calls.
func (c Child) mayOpen() bool {
	return c.Location != Remote && (c.Status == Active || c.Status == SuspendedAwaitingChildren)
}

func callNotOpen(callID string) error {
	return fault.New(fault.Unavailable, "CALL_NOT_OPEN",
		"the run of call %q has not suspended yet; send the same request again", callID)
}
