package client

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Call names a tool call that waits for an answer from outside. A run tells of one with
// a ToolStart chunk that has AwaitsClient, or with a ToolApprovalRequest chunk, and then
// ends as paused.
type Call struct {
	Session  string // the one that was started; a call of its sub-agents is answered under it, too
	ID       string
	Approval string // the approval's id; empty for a client tool
}

// SubmitResult gives the result of a client tool: a value that encoding/json can write,
// such as nil or a json.RawMessage.
//
// It is durable when it is answered, and may be given again: the first answer stands, and
// the status of the others says so. When it was the last answer that the session waited
// for, the session goes on by itself; with CONTINUATION_NEW_RUN the answer names the run
// to follow. NotFound (UNKNOWN_TOOL_CALL), Invalid (ANSWER_INVALID; KIND_MISMATCH when the
// call waits for a decision), TooLarge (RESULT_TOO_LARGE), Conflict (OWNER_NOT_CONTINUABLE
// when the session is over), Unavailable (CALL_NOT_OPEN when the call's run has not come to
// wait for it yet: give the same answer again).
func (c *Client) SubmitResult(ctx context.Context, call Call, result any) (*agentv1.SubmitToolResultResponse, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fault.New(fault.Invalid, "ANSWER_INVALID", "the result of call %q cannot be written as JSON: %v", call.ID, err)
	}
	return c.submit(ctx, &agentv1.SubmitToolResultRequest{
		SessionId: call.Session, ToolCallId: call.ID, Answer: &agentv1.SubmitToolResultRequest_Result{Result: string(text)},
	})
}

// SubmitError says that the call has not happened, and why; the model reads it. It is for
// calls of both kinds. See SubmitResult.
func (c *Client) SubmitError(ctx context.Context, call Call, text string) (*agentv1.SubmitToolResultResponse, error) {
	return c.submit(ctx, &agentv1.SubmitToolResultRequest{
		SessionId: call.Session, ToolCallId: call.ID, Answer: &agentv1.SubmitToolResultRequest_Error{Error: text},
	})
}

// Approve lets the server run the tool of a call that waits for an approval. The reason
// may be empty. See SubmitResult; Invalid (KIND_MISMATCH) when the call is a client tool's
// or waits for another approval.
func (c *Client) Approve(ctx context.Context, call Call, reason string) (*agentv1.SubmitToolResultResponse, error) {
	return c.decide(ctx, call, true, reason)
}

// Deny is Approve's contrary: the tool is not run, and the model is told so, with the
// reason.
func (c *Client) Deny(ctx context.Context, call Call, reason string) (*agentv1.SubmitToolResultResponse, error) {
	return c.decide(ctx, call, false, reason)
}

func (c *Client) decide(ctx context.Context, call Call, approved bool, reason string) (*agentv1.SubmitToolResultResponse, error) {
	return c.submit(ctx, &agentv1.SubmitToolResultRequest{
		SessionId: call.Session, ToolCallId: call.ID, Answer: &agentv1.SubmitToolResultRequest_Approval{
			Approval: &agentv1.ApprovalResponse{ApprovalId: call.Approval, Approved: approved, Reason: reason},
		},
	})
}

func (c *Client) submit(ctx context.Context, r *agentv1.SubmitToolResultRequest) (*agentv1.SubmitToolResultResponse, error) {
	answer, err := c.agents.SubmitToolResult(ctx, r)
	if err != nil {
		return nil, rpc.FromConnect(err)
	}
	return answer, nil
}
