package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// ListAgents implements the service.
func (s *Server) ListAgents(ctx context.Context, _ *agentv1.ListAgentsRequest) (*agentv1.ListAgentsResponse, error) {
	announced, err := s.Sessions.Announced(ctx, tenantOf(ctx))
	if err != nil {
		return nil, err
	}
	fallback := s.Sessions.DefaultAgent
	if agents := announced.GetAgents(); fallback == "" && len(agents) == 1 {
		fallback = agents[0].GetAgentType()
	}
	return &agentv1.ListAgentsResponse{
		DefaultAgent: fallback,
		Problems:     problems(ctx, announced.GetProblems()),
		Agents: each(announced.GetAgents(), func(a *statev1.Agent) *agentv1.Agent {
			return &agentv1.Agent{
				AgentType: a.GetAgentType(), Description: a.GetDescription(), OnBusy: busyPolicyNames[a.GetOnBusy()],
				Executors: a.GetExecutors(), LastAnnouncedAt: a.GetLastAnnouncedAt(), QueuedRuns: a.GetQueuedRuns(), OldestQueuedAt: a.GetOldestQueuedAt(),
			}
		}),
	}, nil
}

// problems returns what is out of service.
func problems(ctx context.Context, of []*statev1.Problem) []*agentv1.AgentProblem {
	return each(conversation.VisibleProblems(ctx, of), func(p *statev1.Problem) *agentv1.AgentProblem {
		return &agentv1.AgentProblem{
			Kind:      p.GetKind(),
			Name:      p.GetName(),
			AgentType: p.GetAgentType(),
			Text:      p.GetText(),
			Executors: p.GetExecutors(),
		}
	})
}
