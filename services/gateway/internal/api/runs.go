package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// GetRun implements the service.
func (s *Server) GetRun(ctx context.Context, r *agentv1.GetRunRequest) (*agentv1.GetRunResponse, error) {
	run, err := s.run(ctx, r.GetSessionId(), r.GetRunId())
	if err != nil {
		return nil, err
	}
	answer := &agentv1.GetRunResponse{Run: runOf(run)}
	addDetail(ctx, answer.GetRun().GetFailure(), run.GetFailure())
	return answer, nil
}

func (s *Server) run(ctx context.Context, sessionID, runID string) (*statev1.Run, error) {
	found, err := ask(ctx, s, s.Runs.GetRun, &statev1.GetRunRequest{Tenant: tenantOf(ctx), SessionId: sessionID, RunId: runID})
	return found.GetRun(), err
}

// ListRuns implements the service.
func (s *Server) ListRuns(ctx context.Context, r *agentv1.ListRunsRequest) (*agentv1.ListRunsResponse, error) {
	page, err := ask(ctx, s, s.Runs.ListRuns, &statev1.ListRunsRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), BeforeTurn: r.GetBeforeTurn(), Limit: r.GetLimit(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListRunsResponse{Runs: each(page.GetRuns(), runOf), HasMore: page.GetHasMore()}, nil
}
