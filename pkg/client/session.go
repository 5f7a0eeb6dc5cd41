package client

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Resume begins a run that goes on where a session stopped, in the request's mode; see
// the contract of agent.v1.AgentService.Resume. Failures are faults: Invalid
// (RESUME_INVALID) for fields that the mode does not have, Conflict (SESSION_BUSY,
// SESSION_COMPLETED, SESSION_SUSPENDED; SESSION_CHANGED where a session that is to be
// tried again has not failed), NotFound (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND). With a
// request key it may be called again after any failure.
func (c *Client) Resume(ctx context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	answer, err := c.agents.Resume(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// CanResume tells whether Resume would be taken now, and why not. NotFound
// (SESSION_NOT_FOUND).
func (c *Client) CanResume(ctx context.Context, session string) (*agentv1.CanResumeResponse, error) {
	answer, err := c.agents.CanResume(ctx, &agentv1.CanResumeRequest{SessionId: session})
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// Interrupt asks a session's live run to stop softly: it keeps what it has, and the
// session can be resumed. With the id of a run that waits it gives that up. The request
// is durable when this answers, and may be made again. NotFound (SESSION_NOT_FOUND,
// RUN_NOT_FOUND); with WaitMs, Unavailable (STOP_NOT_OBSERVED) when the run has not
// ended by then: it will.
func (c *Client) Interrupt(ctx context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	answer, err := c.agents.Interrupt(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// Abort is Interrupt for good: the run fails with framework_cancelled.
func (c *Client) Abort(ctx context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	answer, err := c.agents.Abort(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}
