package cloudflare

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// toolFailed replaces a missing error text.
const toolFailed = "The tool failed."

// toolResult answers the call of a client tool.
func (c *connection) toolResult(f received) error {
	answer := &statev1.CallAnswer{}
	switch {
	case string(f.State) == `"output-error"`:
		answer.Answer = &statev1.CallAnswer_Error{Error: cmp.Or(f.ErrorText, toolFailed)}
	case len(f.Output) == 0: // clients leave out undefined values
		answer.Answer = &statev1.CallAnswer_Result{Result: "null"}
	default:
		answer.Answer = &statev1.CallAnswer_Result{Result: string(f.Output)}
	}
	return c.answer(f, func(*statev1.GetSessionResponse) (*statev1.CallAnswer, error) { return answer, nil })
}

// toolApproval answers an approval. The client names the call.
func (c *connection) toolApproval(f received) error {
	return c.answer(f, func(now *statev1.GetSessionResponse) (*statev1.CallAnswer, error) {
		for _, call := range now.GetCalls() {
			if call.GetToolCallId() == f.ToolCallID && call.GetApprovalId() != "" {
				return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{
					Approval: &statev1.ApprovalAnswer{ApprovalId: call.GetApprovalId(), Approved: f.Approved},
				}}, nil
			}
		}
		if conversation.Executing(now.GetCurrentRun()) {
			return nil, fault.New(fault.Unavailable, "CALL_NOT_OPEN", "the run of call %q has not suspended yet", f.ToolCallID)
		}
		return nil, fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "no approval waits for call %q", f.ToolCallID)
	})
}

// answer stores the answer to a call. A client whose answer is not stored receives the conversation
// as it stands.
func (c *connection) answer(f received, answerOf func(*statev1.GetSessionResponse) (*statev1.CallAnswer, error)) error {
	if c.readOnly {
		return c.sendConversation(false)
	}
	ctx := retry.Request(c.ctx)
	var before *statev1.Run
	var answer *statev1.CallAnswer
	err := retry.Do(ctx, c.Answers.Policy, func() error {
		now, err := c.Sessions.SessionDetails(ctx, c.tenant, c.address.session)
		if err != nil {
			return err
		}
		before = now.GetCurrentRun()
		answer, err = answerOf(now)
		return err
	})
	if err == nil {
		err = c.submit(ctx, f, before, answer)
	}
	if err != nil {
		if err := c.failed("the answer to a call is not stored", err); err != nil {
			return err
		}
		return c.sendConversation(false)
	}
	c.instance.changed(c.ctx)
	return nil
}

// submit stores an answer and notes the run that it starts.
//
// A client that has answered an approval adds the run to its message. After other answers, package ai begins another
// message, unless the first part has the id of an earlier one: then it begins that message again. So the run is sent
// with the whole message. The stored conversation at the end of the turn would come too early to mend it: a client that
// reads several frames at once applies their parts behind that conversation.
func (c *connection) submit(ctx context.Context, f received, before *statev1.Run, answer *statev1.CallAnswer) error {
	taken, err := c.Answers.Submit(ctx, &statev1.SubmitCallRequest{
		Tenant: c.tenant, SessionId: c.address.session, ToolCallId: f.ToolCallID, Answer: answer,
	})
	if err != nil {
		return err
	}
	if answer.GetApproval() != nil {
		c.chat.approved = before.GetRunId()
	}
	newRun := taken.GetContinuation() == statev1.SubmitCallResponse_CONTINUATION_NEW_RUN
	if f.AutoContinue && newRun && taken.GetOwnerSessionId() == c.address.session {
		c.chat.next = &answeredTurn{run: taken.GetRunId(), after: before.GetEndPosition(), adds: c.chat.approved == before.GetRunId()}
		c.chat.offer = time.After(offerAfter)
	}
	return nil
}
