// Package submit takes answers to pending calls, for all public interfaces: results of client
// tools, and decisions on approvals.
//
// An answer is durable when the request is answered. The first answer to a call counts. After the
// last awaited answer, the session continues by itself.
//
// A client sees a call before the run suspends on it, and may answer it at once. The answer then
// waits for the suspension, at most as long as an outage of the state service may last.
package submit

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Answers submits answers. It may be used by many goroutines.
type Answers struct {
	Calls  statev1.CallServiceClient
	Policy retry.Policy
	Limits httpapi.Limits // of a request body
}

// Submit answers a call of the session's family. Invalid (ID_INVALID), and the faults of
// statev1.CallServiceClient.SubmitCall. Unavailable (CALL_NOT_OPEN): the run has not suspended
// within Policy; the same answer may be sent again.
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
