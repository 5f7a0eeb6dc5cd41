package api

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Start implements the service.
func (s *Server) Start(ctx context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	start, err := s.startRequest(ctx, tenantOf(ctx), r)
	if err != nil {
		return nil, err
	}
	started, err := ask(ctx, s, s.Runs.StartRun, start) // it has a key, so it is safe to repeat
	if err != nil {
		return nil, err
	}
	session := started.GetSession().GetSessionId()
	return &agentv1.StartResponse{
		SessionId: session, RunId: started.GetRun().GetRunId(), StreamId: session,
		StartSequence: started.GetRun().GetStartPosition(), SessionCreated: started.GetSessionCreated(), Repeated: started.GetRepeated(),
		Waiting: conversation.Waiting(started.GetRun()),
	}, nil
}

var busyPolicies = map[agentv1.BusyPolicy]statev1.BusyPolicy{
	agentv1.BusyPolicy_BUSY_POLICY_UNSPECIFIED: statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED,
	agentv1.BusyPolicy_BUSY_POLICY_REJECT:      statev1.BusyPolicy_BUSY_POLICY_REJECT,
	agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE:     statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	agentv1.BusyPolicy_BUSY_POLICY_INTERRUPT:   statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	agentv1.BusyPolicy_BUSY_POLICY_ROLLBACK:    statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

// busyPolicyNames are the policies of agents, for clients.
var busyPolicyNames = inverse(busyPolicies)

func inverse[A, B comparable](table map[A]B) map[B]A {
	out := make(map[B]A, len(table))
	for a, b := range table {
		out[b] = a
	}
	return out
}

func (s *Server) startRequest(ctx context.Context, tenant string, r *agentv1.StartRequest) (*statev1.StartRunRequest, error) {
	if err := checkPriority(ctx, r.GetPriority()); err != nil {
		return nil, err
	}
	messages, err := inputMessages(ctx, s.Files, r.GetMessages())
	if err != nil {
		return nil, err
	}
	rows, err := contextMessages(r.GetContext())
	if err != nil {
		return nil, err
	}
	messages = slices.Concat(rows, messages, userMessage(r.GetMessage()))
	if n := len(messages); n > 0 && (len(r.GetTools()) > 0 || r.GetInstructions() != "") {
		messages[n-1].Caller = &eventv1.CallerInput{Tools: r.GetTools(), Instructions: r.GetInstructions()}
	}
	start := &statev1.StartRunRequest{
		Tenant: tenant, SessionId: r.GetSessionId(), AgentType: r.GetAgentType(), RequestKey: r.GetRequestKey(),
		DefaultAgentType: s.Sessions.DefaultAgent, UserId: r.GetUserId(), OrganizationId: r.GetOrganizationId(),
		Tags: r.GetTags(), Metadata: r.GetMetadata(), CustomState: r.GetState(),
		Messages: messages, OnBusy: busyPolicies[r.GetOnBusy()], TimeoutMs: r.GetTimeoutMs(), Priority: r.GetPriority(),
	}
	// With an id and a key the start is safe to repeat.
	if start.SessionId == "" {
		start.SessionId = s.NewID()
	}
	if start.RequestKey == "" {
		start.RequestKey = s.NewID()
	}
	start.Traceparent, start.Tracestate = telemetry.Traceparent(ctx)
	return start, nil
}

// checkPriority gives Denied (PRIORITY_DENIED) for a priority before that of other callers, unless the caller acts
// for all users of its tenant.
func checkPriority(ctx context.Context, priority int32) error {
	if caller, _ := auth.From(ctx); priority > 0 && !caller.May(auth.Operate) {
		return fault.New(fault.Denied, "PRIORITY_DENIED", "a priority above 0 needs the scope %s; omit it", auth.Operate)
	}
	return nil
}
