package server

import (
	"cmp"
	"context"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

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
	admissions *admissions
	runner     *runner
	queue      *queue
	limits     Limits
	clock      clock
	ids        ids
}

// GetRun implements statev1.RunServiceServer.
func (s *runService) GetRun(ctx context.Context, r *statev1.GetRunRequest) (*statev1.GetRunResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	run, err := readerOf(r, s.store).Run(ctx, key, r.GetRunId())
	if err != nil {
		return nil, err
	}
	out := runOut(key, run)
	return &statev1.GetRunResponse{Run: out}, s.queue.explain(ctx, key, run, out)
}

// ListRuns implements statev1.RunServiceServer. Waiting runs have no turn to page by: they come
// first on the first page, in addition to its limit.
func (s *runService) ListRuns(ctx context.Context, r *statev1.ListRunsRequest) (*statev1.ListRunsResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkRange("LIMIT_INVALID", "before_turn", r.GetBeforeTurn(), math.MaxInt32, "give a turn, or 0 for the newest runs")); err != nil {
		return nil, err
	}
	runs, err := readerOf(r, s.store).Runs(ctx, key, r.GetBeforeTurn(), limit+1) // one more row shows whether more follow
	if err != nil {
		return nil, err
	}
	page, more := splitPage(runs, limit)
	answer := &statev1.ListRunsResponse{HasMore: more}
	if r.GetBeforeTurn() == 0 {
		waiting, err := readerOf(r, s.store).Waiting(ctx, key)
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
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	kind, known := stopInKinds[r.GetKind()]
	if !known {
		return nil, invalid("STOP_INVALID", "%s is not a kind of stop; interrupt or abort the run", r.GetKind())
	}
	if p := s.limits.textProblem(r.GetReason()); p != "" {
		return nil, invalid("STOP_INVALID", "the reason %s", p)
	}
	if err := s.grants.ofParent(ctx, key); err != nil {
		return nil, err
	}
	command := session.RequestStop{Key: key, RunID: r.GetRunId(), Kind: kind, Reason: r.GetReason(), Now: s.clock.millis()}
	stopped, err := spread(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), proto.Size(r), command.Now, alone(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.RequestStopResponse{Effect: stopEffects[stopped.Effect], RunId: stopped.RunID}, nil
}
