package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// ExplainMissingCall explains why an answered call is unknown. A client sees a call before the step that
// opens it is committed, so its answer may come first.
//
// It always gives a fault: Unavailable (CALL_NOT_OPEN) while a live run may still open the
// call, which is so if the call is planned, if there is no plan, or while a child may run.
// Else Conflict (OWNER_NOT_CONTINUABLE) for a failed session, whose calls were dropped, or
// NotFound (UNKNOWN_TOOL_CALL).
type ExplainMissingCall struct {
	Key    // the session known to the caller
	CallID string
	OfRun  string // as in Submit; empty for any run
	// IsLater reports whether a recorded result only says that the result comes later. Nil if none does.
	IsLater func(body []byte) bool
}

// Need lists the rows for Decide.
func (c ExplainMissingCall) Need() Need {
	return Need{CallIDs: []string{c.CallID}, Live: true, Journal: true, Children: true}
}

// Decide writes nothing.
func (c ExplainMissingCall) Decide(v *View) (*Change, struct{}, error) {
	switch {
	case v.Session == nil:
		return nil, struct{}{}, CallNotFound(c.CallID)
	case len(v.NamedCalls) > 0 && (c.OfRun == "" || v.opened(c.CallID, c.OfRun)): // it was opened in the meantime
		return nil, struct{}{}, callNotOpen(c.CallID)
	case v.Session.Status == Failed:
		return nil, struct{}{}, v.Session.conflict("OWNER_NOT_CONTINUABLE",
			"session %q has failed and its calls were dropped; start a run with a message instead", c.SessionID)
	case c.OfRun != "" && (v.Live == nil || v.Live.RunID != c.OfRun):
		return nil, struct{}{}, CallNotFound(c.CallID)
	case v.Live != nil && (v.Journal == nil || v.Journal.mayOpen(c.CallID, c.IsLater)), slices.ContainsFunc(v.Children, Child.mayOpen):
		return nil, struct{}{}, callNotOpen(c.CallID)
	default:
		return nil, struct{}{}, CallNotFound(c.CallID)
	}
}

// opened reports whether the run has opened the call for a callback.
func (v *View) opened(callID, run string) bool {
	call, known := v.ownCall(callID)
	return known && call.Kind == Callback && call.RunID == run
}

// mayOpen reports whether the child, or a session below it, may open calls.
func (c Child) mayOpen() bool {
	return c.Location != Remote && (c.Status == Active || c.Status == SuspendedAwaitingChildren)
}

func callNotOpen(callID string) error {
	return fault.New(fault.Unavailable, "CALL_NOT_OPEN",
		"the run of call %q has not suspended yet; send the same request again", callID)
}
