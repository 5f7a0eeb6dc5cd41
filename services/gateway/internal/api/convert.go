package api

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

func getResponse(found *statev1.GetSessionResponse) *agentv1.GetResponse {
	s, run := found.GetSession(), found.GetCurrentRun()
	r := &agentv1.GetResponse{
		SessionId: s.GetSessionId(), AgentType: s.GetAgentType(), Status: conversation.SessionStatus(s.GetStatus()),
		StepCount: s.GetStepCount(), Turn: s.GetTurn(), MessageCount: s.GetMessageCount(), Output: s.GetOutput(),
		Error: s.GetFailure().GetError(), ErrorCode: s.GetFailure().GetCode(), StreamSequence: s.GetPosition(),
		CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(),
	}
	if run != nil {
		r.RunId, r.RunStatus, r.IsExecuting = run.GetRunId(), conversation.RunStatus(run.GetStatus()), conversation.Executing(run)
	}
	r.PendingCalls, r.QueuedReason = pendingCalls(found), queuedReason(run)
	return r
}

// each converts the values of a list.
func each[From, To any](list []From, convert func(From) To) []To {
	out := make([]To, len(list))
	for i, value := range list {
		out[i] = convert(value)
	}
	return out
}

func sessionOf(s *statev1.Session) *agentv1.Session {
	return &agentv1.Session{
		SessionId: s.GetSessionId(), AgentType: s.GetAgentType(), Title: s.GetTitle(), UserId: s.GetUserId(), OrganizationId: s.GetOrganizationId(),
		Tags: s.GetTags(), Metadata: s.GetMetadata(), Status: conversation.SessionStatus(s.GetStatus()),
		ParentSessionId: s.GetParentSessionId(), RootSessionId: s.GetRootSessionId(), Depth: s.GetDepth(),
		Version: s.GetVersion(), Turn: s.GetTurn(), StepCount: s.GetStepCount(), MessageCount: s.GetMessageCount(),
		RunId: s.GetCurrentRunId(), CheckpointId: s.GetCheckpointId(), StreamSequence: s.GetPosition(),
		CustomState: s.GetCustomState(), Output: s.GetOutput(), Failure: failureOf(s.GetFailure()), InterruptReason: s.GetInterruption().GetReason(),
		CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(), ExpiresAt: s.GetExpiresAt(),
	}
}

// runOf returns nil for nil.
func runOf(r *statev1.Run) *agentv1.Run {
	if r == nil {
		return nil
	}
	return &agentv1.Run{
		RunId: r.GetRunId(), SessionId: r.GetSessionId(), AgentType: r.GetAgentType(), Turn: r.GetTurn(), Status: conversation.RunStatus(r.GetStatus()),
		Entry: publicName("RUN_ENTRY_", r.GetEntry()), RequestKey: r.GetRequestKey(), MessageId: r.GetMessageId(), StepCount: r.GetStepCount(),
		Output: r.GetOutput(), Failure: failureOf(r.GetFailure()), CompletionReason: r.GetCompletionReason(), FinishReason: r.GetFinishReason(),
		Usage: r.GetUsage(), CreatedAt: r.GetCreatedAt(), StartedAt: r.GetStartedAt(), CompletedAt: r.GetCompletedAt(), DeadlineAt: r.GetDeadlineAt(),
		StartSequence: r.GetStartPosition(), EndSequence: r.GetEndPosition(), StopRequested: publicName("STOP_KIND_", r.GetStop().GetKind()),
		StartedBy: r.GetStartedBy(), QueuedReason: queuedReason(r),
	}
}

// queuedReason returns nil for a run outside the queue, or not for long.
func queuedReason(r *statev1.Run) *agentv1.QueuedReason {
	q := r.GetQueuedReason()
	if q == nil {
		return nil
	}
	return &agentv1.QueuedReason{Reason: conversation.QueuedReason(q), Detail: q.GetDetail(), Since: q.GetSince()}
}

// failureOf returns nil for nil.
func failureOf(f *statev1.Failure) *agentv1.Failure {
	if f == nil {
		return nil
	}
	return &agentv1.Failure{Error: f.GetError(), Code: f.GetCode(), Retryable: f.GetRetryable(), Reason: f.GetFailureReason()}
}

// pendingCalls returns the open calls of a session, and for a root those of the sessions below it.
func pendingCalls(found *statev1.GetSessionResponse) []*agentv1.PendingCall {
	s := found.GetSession()
	agents := map[string]string{s.GetSessionId(): s.GetAgentType()}
	for _, below := range found.GetSubSessions() {
		agents[below.GetSessionId()] = below.GetAgentType()
	}
	return each(conversation.OpenCalls(found), func(c *statev1.Call) *agentv1.PendingCall {
		out := pendingCall(c)
		out.RootSessionId, out.UserId, out.AgentType = s.GetRootSessionId(), s.GetUserId(), agents[c.GetSessionId()]
		return out
	})
}

// addDetail adds the cause for developers, if the caller may operate. It may quote a provider or the conversation.
func addDetail(ctx context.Context, to *agentv1.Failure, from *statev1.Failure) {
	if caller, _ := auth.From(ctx); to != nil && caller.May(auth.Operate) {
		to.Detail = from.GetDetail()
	}
}

func pendingCall(c *statev1.Call) *agentv1.PendingCall {
	p := &agentv1.PendingCall{
		ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Input: c.GetInput(), SessionId: c.GetSessionId(),
		DeadlineAt: c.GetDeadlineAt(), CreatedAt: c.GetCreatedAt(), StartedBy: c.GetStartedBy(),
		Kind: agentv1.CallKind(c.GetKind()), // the kinds have the same numbers
	}
	if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
		p.ApprovalId, p.Approvers = c.GetApprovalId(), conversation.ApproversOf(c)
	}
	return p
}

func subSession(s *statev1.SubSession) *agentv1.SubSession {
	return &agentv1.SubSession{
		SessionId: s.GetSessionId(), AgentType: s.GetAgentType(), ToolCallId: s.GetParentToolCallId(), Status: conversation.SessionStatus(s.GetStatus()),
		Name: s.GetName(), Remote: s.GetLocation() == statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE,
		StartedAt: s.GetStartedAt(), CompletedAt: s.GetCompletedAt(),
	}
}

// publicName returns the name of an enum's value without its prefix; "" for the unspecified one.
func publicName(prefix string, value interface {
	fmt.Stringer
	Number() protoreflect.EnumNumber
}) string {
	if value.Number() == 0 {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}
