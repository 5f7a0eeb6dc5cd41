package client

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Resume continues a stopped session in the request's mode; see agent.v1.AgentService.Resume. Failures are
// faults: Invalid (RESUME_INVALID) for fields foreign to the mode, Conflict (SESSION_BUSY, SESSION_COMPLETED,
// SESSION_SUSPENDED; SESSION_CHANGED for a retry of a session that has not failed), NotFound (SESSION_NOT_FOUND,
// CHECKPOINT_NOT_FOUND). With a request key it may be repeated after any failure.
func (c *Client) Resume(ctx context.Context, r *agentv1.ResumeRequest) (*agentv1.ResumeResponse, error) {
	answer, err := c.agents.Resume(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// CanResume reports whether Resume would succeed now, and why not. NotFound (SESSION_NOT_FOUND).
func (c *Client) CanResume(ctx context.Context, session string) (*agentv1.CanResumeResponse, error) {
	answer, err := c.agents.CanResume(ctx, &agentv1.CanResumeRequest{SessionId: session})
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// Interrupt stops a session's live run softly: the run keeps its output, and the session can be resumed. With
// the id of a queued run it cancels that run. The request is durable when Interrupt returns, and may be
// repeated. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND); with WaitMs, Unavailable (STOP_NOT_OBSERVED) if the run
// has not ended within that time. It will end later.
func (c *Client) Interrupt(ctx context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	answer, err := c.agents.Interrupt(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}

// Abort stops the live run permanently: it fails with framework_cancelled.
func (c *Client) Abort(ctx context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	answer, err := c.agents.Abort(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}
