package api

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// ListAgents implements the service.
func (s *Server) ListAgents(ctx context.Context, _ *agentv1.ListAgentsRequest) (*agentv1.ListAgentsResponse, error) {
	agents, err := s.Sessions.Agents(ctx, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	fallback, err := s.Sessions.Default(ctx)
	if err != nil && fault.ReasonOf(err) != "AGENT_REQUIRED" {
		return nil, err
	}
	return &agentv1.ListAgentsResponse{DefaultAgent: fallback, Agents: each(agents, func(a *statev1.Agent) *agentv1.Agent {
		return &agentv1.Agent{
			AgentType: a.GetAgentType(), Description: a.GetDescription(), OnBusy: busyPolicyNames[a.GetOnBusy()],
			Executors: a.GetExecutors(), LastAnnouncedAt: a.GetLastAnnouncedAt(), QueuedRuns: a.GetQueuedRuns(), OldestQueuedAt: a.GetOldestQueuedAt(),
		}
	})}, nil
}
