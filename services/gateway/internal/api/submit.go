package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

var submitStatuses = map[statev1.SubmitCallResponse_Outcome]agentv1.SubmitToolResultResponse_Status{
	statev1.SubmitCallResponse_OUTCOME_ACCEPTED:                  agentv1.SubmitToolResultResponse_STATUS_ACCEPTED,
	statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED:         agentv1.SubmitToolResultResponse_STATUS_ALREADY_COMPLETED,
	statev1.SubmitCallResponse_OUTCOME_LATE_ANSWER_AFTER_TIMEOUT: agentv1.SubmitToolResultResponse_STATUS_LATE_ANSWER_AFTER_TIMEOUT,
}

var continuations = map[statev1.SubmitCallResponse_Continuation]agentv1.SubmitToolResultResponse_Continuation{
	statev1.SubmitCallResponse_CONTINUATION_NOTHING:        agentv1.SubmitToolResultResponse_CONTINUATION_NONE,
	statev1.SubmitCallResponse_CONTINUATION_NEW_RUN:        agentv1.SubmitToolResultResponse_CONTINUATION_NEW_RUN,
	statev1.SubmitCallResponse_CONTINUATION_LIVE_RUN:       agentv1.SubmitToolResultResponse_CONTINUATION_LIVE_RUN,
	statev1.SubmitCallResponse_CONTINUATION_CALLER_RESUMES: agentv1.SubmitToolResultResponse_CONTINUATION_CALLER_RESUMES,
}

// SubmitToolResult implements the service.
func (s *Server) SubmitToolResult(ctx context.Context, r *agentv1.SubmitToolResultRequest) (*agentv1.SubmitToolResultResponse, error) {
	submitted, err := s.Answers.Submit(ctx, &statev1.SubmitCallRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), ToolCallId: r.GetToolCallId(), Answer: callAnswer(r),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.SubmitToolResultResponse{
		Status: submitStatuses[submitted.GetOutcome()], Continuation: continuations[submitted.GetContinuation()], RunId: submitted.GetRunId(),
	}, nil
}

// ListPendingCalls implements the service.
func (s *Server) ListPendingCalls(ctx context.Context, r *agentv1.ListPendingCallsRequest) (*agentv1.ListPendingCallsResponse, error) {
	page, err := ask(ctx, s, s.Answers.Calls.ListOpenCalls, &statev1.ListOpenCallsRequest{
		Tenant: tenantOf(ctx), UserId: r.GetUserId(), AgentType: r.GetAgentType(), ToolName: r.GetToolName(),
		Kind: statev1.CallKind(r.GetKind()), Cursor: r.GetCursor(), Limit: r.GetLimit(), // the kinds have the same numbers
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListPendingCallsResponse{
		NextCursor: page.GetNext(),
		Calls: each(page.GetCalls(), func(c *statev1.OpenCall) *agentv1.PendingCall {
			call := pendingCall(c.GetCall())
			call.RootSessionId, call.AgentType, call.UserId = c.GetRootSessionId(), c.GetAgentType(), c.GetUserId()
			return call
		}),
	}, nil
}

func callAnswer(r *agentv1.SubmitToolResultRequest) *statev1.CallAnswer {
	switch a := r.GetAnswer().(type) {
	case *agentv1.SubmitToolResultRequest_Result:
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: a.Result}}
	case *agentv1.SubmitToolResultRequest_Error:
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: a.Error}}
	case *agentv1.SubmitToolResultRequest_Approval:
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Approval{Approval: &statev1.ApprovalAnswer{
			ApprovalId: a.Approval.GetApprovalId(), Approved: a.Approval.GetApproved(), Reason: a.Approval.GetReason(),
		}}}
	default:
		return nil
	}
}
