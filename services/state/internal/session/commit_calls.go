package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Consume moves the answer of a call into the conversation. Revision is the revision of
// the answer that the step has read.
type Consume struct {
	CallID   string
	Revision int32
}

// ownCall returns a call of View.NamedCalls if this session owns it.
func (v *View) ownCall(callID string) (Call, bool) {
	for _, call := range v.NamedCalls {
		if call.CallID == callID && call.SessionID == v.Session.SessionID {
			return call, true
		}
	}
	return Call{}, false
}

func (c Commit) callIDs() []string {
	ids := slices.Clone(c.LateReported)
	for _, call := range c.Calls {
		ids = append(ids, call.CallID)
	}
	for _, consume := range c.Consume {
		ids = append(ids, consume.CallID)
	}
	return ids
}

// changeCalls adds the new, consumed and reported calls of the step to the change.
func (c Commit) changeCalls(v *View, change *Change) (err error) {
	if change.Calls, err = c.consumedCalls(v); err != nil {
		return err
	}
	change.Calls = append(change.Calls, c.reportedCalls(v)...)
	change.NewCalls, err = c.newCalls(v, change.Calls)
	return err
}

// newCalls gives Conflict (CALL_EXISTS) if the family or the request itself already uses
// an id. A call that has run after its approval, and whose result comes by callback, is
// opened again in its row: one of the consumed calls.
func (c Commit) newCalls(v *View, consumed []Call) (opened []Call, err error) {
	taken := map[string]bool{}
	for _, call := range v.NamedCalls {
		taken[call.CallID] = true
	}
	for _, call := range c.Calls {
		call.SessionID, call.RunID, call.Step, call.CreatedAt = v.Session.SessionID, c.RunID, c.Step, c.Now
		call.StartedBy, call.Author = v.Run.StartedBy, v.Run.Author
		approved := slices.IndexFunc(consumed, func(of Call) bool {
			return of.CallID == call.CallID && of.Kind == Approval && of.ConsumedStep == c.Step && call.Kind == Callback
		})
		if approved >= 0 {
			call.ApprovalID = consumed[approved].ApprovalID // for the result, which shows the decision
			call.Revision, call.Approvers = consumed[approved].Revision, consumed[approved].Approvers
			consumed[approved] = call
			continue
		}
		if taken[call.CallID] {
			return nil, fault.New(fault.Conflict, "CALL_EXISTS",
				"the session's family has a call %q already; use another id", call.CallID)
		}
		taken[call.CallID] = true
		opened = append(opened, call)
	}
	return opened, nil
}

func (c Commit) consumedCalls(v *View) ([]Call, error) {
	var calls []Call
	taken := map[string]bool{}
	for _, consume := range c.Consume {
		call, known := v.ownCall(consume.CallID)
		switch {
		case !known:
			return nil, CallNotFound(consume.CallID)
		case call.ConsumedAt != 0 || taken[call.CallID]:
			return nil, fault.New(fault.Conflict, "CALL_CONSUMED", "a step has consumed the answer to call %q already", call.CallID)
		case call.isOpen():
			return nil, fault.New(fault.Conflict, "CALL_UNANSWERED", "call %q has no answer yet; suspend until it has one", call.CallID)
		case call.Revision != consume.Revision:
			return nil, fault.New(fault.Stale, "ANSWER_CHANGED",
				"call %q has answer %d, not %d, since a real answer has replaced a timeout; read the call again and use its new answer",
				call.CallID, call.Revision, consume.Revision)
		}
		taken[call.CallID] = true
		call.ConsumedAt, call.ConsumedStep = c.Now, c.Step
		calls = append(calls, call)
	}
	return calls, nil
}

// reportedCalls returns the calls with a late answer that this step reports to the model.
func (c Commit) reportedCalls(v *View) []Call {
	var calls []Call
	for _, id := range c.LateReported {
		call, known := v.ownCall(id)
		seen := slices.ContainsFunc(calls, func(t Call) bool { return t.CallID == id })
		if known && call.LateAt != 0 && !call.LateReported && !seen {
			call.LateReported, call.LateReportedStep = true, c.Step
			calls = append(calls, call)
		}
	}
	return calls
}
