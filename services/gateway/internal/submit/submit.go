// Package submit takes answers to calls that wait for somebody outside, for all public
// interfaces: the results of client tools, and decisions on approvals.
//
// An answer is durable when it is taken, and the first one stands. The session goes on by
// itself when it has waited for nothing else.
//
// A client is told of a call before the run suspends on it, and may answer before that. The
// answer waits for the suspension then, for as long as the state service may be away.
package submit

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Answers takes answers. It may be used by many goroutines.
type Answers struct {
	Calls  statev1.CallServiceClient
	Policy retry.Policy
	Limits httpapi.Limits // of a request's body
}

// Submit gives the answer to a call of the session's family. Invalid (ID_INVALID), and
// the faults of statev1.CallServiceClient.SubmitCall: Unavailable (CALL_NOT_OPEN) when the
// run has not suspended within Policy; the same answer may be given again.
func (a *Answers) Submit(ctx context.Context, r *statev1.SubmitCallRequest) (*statev1.SubmitCallResponse, error) {
	if err := httpapi.CheckID("the session's id", r.GetSessionId()); err != nil {
		return nil, err
	}
	if err := httpapi.CheckID("toolCallId", r.GetToolCallId()); err != nil {
		return nil, err
	}
	var submitted *statev1.SubmitCallResponse
	err := retry.Do(ctx, a.Policy, func() (err error) {
		submitted, err = a.Calls.SubmitCall(ctx, r)
		return err
	})
	return submitted, err
}
