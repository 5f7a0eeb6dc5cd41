package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
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
		Agents:       each(announced.GetAgents(), agentOf),
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

// PutAgent implements the service.
func (s *Server) PutAgent(ctx context.Context, r *agentv1.PutAgentRequest) (*agentv1.PutAgentResponse, error) {
	text := r.GetDefinition()
	if err := json.Unmarshal([]byte(text), &text); err != nil { // a JSON string has YAML in it; anything else is the definition
		text = r.GetDefinition()
	}
	checked, err := s.checkDefinition(ctx, &executorv1.CheckDefinitionRequest{AgentType: r.GetAgentType(), Text: text, File: r.GetFile()})
	if err != nil {
		return nil, err
	}
	put, err := askIf(ctx, s, r.ExpectedHash == nil, s.Stored.PutStoredAgent, &statev1.PutStoredAgentRequest{
		Tenant: tenantOf(ctx), Agent: checked.GetAgent(), Definition: checked.GetDefinition(), ExpectedHash: r.ExpectedHash,
	})
	if err != nil {
		return nil, err
	}
	outcome := strings.ToLower(strings.TrimPrefix(put.GetOutcome().String(), "OUTCOME_"))
	return &agentv1.PutAgentResponse{Outcome: outcome, Hash: put.GetStored().GetHash()}, nil
}

// checkDefinition has an executor that serves stored agents check a definition. The gateway knows no rules of agents.
func (s *Server) checkDefinition(
	ctx context.Context, r *executorv1.CheckDefinitionRequest,
) (checked *executorv1.CheckDefinitionResponse, err error) {
	const disabled = "STORED_AGENTS_DISABLED"
	refusal := fault.New(fault.Conflict, disabled,
		"no executor of HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES serves stored agents; set HOLDFAST_EXECUTOR_STORED_AGENTS=true for one of them")
	for _, executor := range s.Executors {
		checked, err = executor.CheckDefinition(ctx, r)
		switch {
		case err == nil:
			return checked, nil
		case fault.ReasonOf(err) == disabled, status.Code(err) == codes.Unimplemented: // by choice, or of an earlier release
		case errors.Is(err, fault.Unavailable), errors.Is(err, fault.Exhausted):
			refusal = fault.New(fault.Unavailable, "EXECUTOR_UNREACHABLE",
				"no reachable executor of HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES checks the definition; try again, or check the addresses: %v", err)
		default:
			return nil, err
		}
	}
	return nil, refusal
}

// GetAgent implements the service.
func (s *Server) GetAgent(ctx context.Context, r *agentv1.GetAgentRequest) (*agentv1.GetAgentResponse, error) {
	found, err := ask(ctx, s, s.Stored.GetStoredAgent, &statev1.GetStoredAgentRequest{Tenant: tenantOf(ctx), AgentType: r.GetAgentType()})
	if err != nil {
		return nil, err
	}
	stored := found.GetAgent().GetStored()
	return &agentv1.GetAgentResponse{
		AgentType: r.GetAgentType(), Definition: found.GetDefinition(),
		Hash: stored.GetHash(), StoredBy: stored.GetStoredBy(), StoredAt: stored.GetStoredAt(),
	}, nil
}

// DeleteAgent implements the service.
func (s *Server) DeleteAgent(ctx context.Context, r *agentv1.DeleteAgentRequest) (*agentv1.DeleteAgentResponse, error) {
	_, err := askIf(ctx, s, false, s.Stored.DeleteStoredAgent, &statev1.DeleteStoredAgentRequest{
		Tenant: tenantOf(ctx), AgentType: r.GetAgentType(), ExpectedHash: r.ExpectedHash,
	})
	return &agentv1.DeleteAgentResponse{}, err
}

func agentOf(a *statev1.Agent) *agentv1.Agent {
	out := &agentv1.Agent{
		AgentType: a.GetAgentType(), Description: a.GetDescription(), OnBusy: busyPolicyNames[a.GetOnBusy()],
		Executors: a.GetExecutors(), LastAnnouncedAt: a.GetLastAnnouncedAt(), QueuedRuns: a.GetQueuedRuns(), OldestQueuedAt: a.GetOldestQueuedAt(),
		Source: conversation.SourceOf(a),
	}
	if stored := a.GetStored(); stored != nil {
		out.Hash, out.StoredBy, out.StoredAt = stored.GetHash(), stored.GetStoredBy(), stored.GetStoredAt()
	}
	return out
}
