package client

import (
	"context"
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// Call names a tool call that waits for a client. A run announces it with a ToolStart chunk with AwaitsClient,
// or with a ToolApprovalRequest chunk, and then suspends.
type Call struct {
	Session  string // the started session; also for a call of its sub-agents
	ID       string
	Approval string // the approval's id; empty for a client tool
}

// SubmitResult submits the result of a client tool: a value for encoding/json, such as nil or a json.RawMessage.
//
// The answer is durable when SubmitResult returns. It is safe to repeat: the first answer wins, and the status
// of the others says so. After the last pending answer the session continues on its own; with
// CONTINUATION_NEW_RUN the response names the run to follow.
//
// NotFound (UNKNOWN_TOOL_CALL), Invalid (ANSWER_INVALID; KIND_MISMATCH if the call waits for an approval),
// TooLarge (RESULT_TOO_LARGE), Conflict (OWNER_NOT_CONTINUABLE if the session has ended), Unavailable
// (CALL_NOT_OPEN if the run has not suspended on the call yet: repeat the same answer).
func (c *Client) SubmitResult(ctx context.Context, call Call, result any) (*agentv1.SubmitToolResultResponse, error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, fault.New(fault.Invalid, "ANSWER_INVALID", "the result of call %q cannot be written as JSON: %v", call.ID, err)
	}
	return c.submit(ctx, &agentv1.SubmitToolResultRequest{
		SessionId: call.Session, ToolCallId: call.ID, Answer: &agentv1.SubmitToolResultRequest_Result{Result: string(text)},
	})
}

// SubmitError reports that the call was not executed, and why. The model reads the text. It works for client
// tools and approvals. See SubmitResult.
func (c *Client) SubmitError(ctx context.Context, call Call, text string) (*agentv1.SubmitToolResultResponse, error) {
	return c.submit(ctx, &agentv1.SubmitToolResultRequest{
		SessionId: call.Session, ToolCallId: call.ID, Answer: &agentv1.SubmitToolResultRequest_Error{Error: text},
	})
}

// Approve lets the server run the tool of a call that waits for approval. The reason may be empty. See
// SubmitResult; Invalid (KIND_MISMATCH) for a client tool or another approval id.
func (c *Client) Approve(ctx context.Context, call Call, reason string) (*agentv1.SubmitToolResultResponse, error) {
	return c.decide(ctx, call, true, reason)
}

// Deny refuses the call: the tool does not run, and the model receives the reason. See Approve.
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
	return call(ctx, c.agents.SubmitToolResult, r)
}
