package server

import (
	"context"
	"math"
	"slices"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// runService implements statev1.RunServiceServer.
type runService struct {
	statev1.UnimplementedRunServiceServer
	grants     *grants
	store      store.Reader
	files      store.Files
	registry   store.Registry
	stored     store.StoredAgents
	admissions *admissions
	runner     *runner
	queue      *queue
}

// GetRun implements statev1.RunServiceServer.
func (s *runService) GetRun(ctx context.Context, r *statev1.GetRunRequest) (*statev1.GetRunResponse, error) {
	x := s.runner.read(r)
	key, runID := x.key(r), x.id("run_id", r.GetRunId())
	if x.err != nil {
		return nil, x.err
	}
	run, err := x.owned(s.store).Run(ctx, key, runID)
	if err != nil {
		return nil, err
	}
	out := runOut(key, run)
	return &statev1.GetRunResponse{Run: out}, s.queue.explain(ctx, key, run, out)
}

// ListRuns implements statev1.RunServiceServer. Waiting runs have no turn to page by: they come
// first on the first page, in addition to its limit.
func (s *runService) ListRuns(ctx context.Context, r *statev1.ListRunsRequest) (*statev1.ListRunsResponse, error) {
	x := s.runner.read(r)
	key, limit := x.key(r), x.pageLimit(r.GetLimit())
	before := number(x, "LIMIT_INVALID", "before_turn", r.GetBeforeTurn(), math.MaxInt32, "give a turn, or 0 for the newest runs")
	if x.err != nil {
		return nil, x.err
	}
	runs, err := x.owned(s.store).Runs(ctx, key, before, limit+1) // one more row shows whether more follow
	if err != nil {
		return nil, err
	}
	page, more := splitPage(runs, limit)
	answer := &statev1.ListRunsResponse{HasMore: more}
	if before == 0 {
		waiting, err := x.owned(s.store).Waiting(ctx, key)
		if err != nil {
			return nil, err
		}
		for _, run := range slices.Backward(waiting) {
			answer.Runs = append(answer.Runs, runOut(key, &run))
		}
	}
	for i := range page {
		page[i].Outcome.Output = "" // a page of outputs could exceed a message
		out := runOut(key, &page[i])
		if err := s.queue.explain(ctx, key, &page[i], out); err != nil { // at most one run of a session is queued
			return nil, err
		}
		answer.Runs = append(answer.Runs, out)
	}
	return answer, nil
}

var stopEffects = map[session.StopEffect]statev1.RequestStopResponse_Effect{
	session.StopRequested: statev1.RequestStopResponse_EFFECT_REQUESTED,
	session.StopDone:      statev1.RequestStopResponse_EFFECT_DONE,
	session.StopNone:      statev1.RequestStopResponse_EFFECT_NONE,
}

// RequestStop implements statev1.RunServiceServer.
func (s *runService) RequestStop(ctx context.Context, r *statev1.RequestStopRequest) (*statev1.RequestStopResponse, error) {
	x := s.runner.read(r)
	command := session.RequestStop{Key: x.key(r), RunID: x.optionalID("run_id", r.GetRunId()), Kind: stopInKinds[r.GetKind()], Now: x.now}
	if command.Kind == "" {
		x.refuse("STOP_INVALID", "%s is not a kind of stop; interrupt or abort the run", r.GetKind())
	}
	command.Reason = x.text("STOP_INVALID", "the reason", r.GetReason())
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.ofParent(ctx, command.Key); err != nil {
		return nil, err
	}
	stopped, err := run(ctx, s.runner, onFamily(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.RequestStopResponse{Effect: stopEffects[stopped.Effect], RunId: stopped.RunID}, nil
}
