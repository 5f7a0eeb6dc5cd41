package server

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// workService implements statev1.WorkServiceServer.
type workService struct {
	statev1.UnimplementedWorkServiceServer
	grants       *grants
	registry     store.Registry
	runner       *runner
	scheduler    *scheduler.Scheduler
	suspects     *sweep.Suspects
	limits       Limits
	suspendedTTL time.Duration
	clock        clock
	ids          ids
}

// RecordPlan implements statev1.WorkServiceServer.
func (s *workService) RecordPlan(ctx context.Context, r *statev1.RecordPlanRequest) (*statev1.RecordPlanResponse, error) {
	ref, err := s.grants.checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	calls, err := s.limits.planCalls(r.GetPlan())
	if err != nil {
		return nil, err
	}
	usage, err := s.limits.usageIn(r.GetUsage())
	if err != nil {
		return nil, err
	}
	body, err := encode(r.GetPlan())
	if err != nil {
		return nil, err
	}
	ops, err := s.limits.opsIn(r.GetOps())
	if err != nil {
		return nil, err
	}
	size, limit := len(body)+usageBytes(usage), s.limits.StepBytes
	if size > limit {
		return nil, fault.New(fault.TooLarge, "MESSAGE_TOO_LARGE", "the plan has %d bytes with its usage; the limit is %d", size, limit).
			WithSizes(int64(size), int64(limit))
	}
	if size += opBytes(ops); size > limit {
		return nil, session.StateTooLarge(size, limit, ops)
	}
	command := session.RecordPlan{
		ClaimRef: ref, Step: r.GetStep(), Body: body, CallIDs: calls, Usage: usage, Ops: ops, Limits: s.limits.sessionLimits(),
	}
	if _, err := update(ctx, s.runner, session.Target{Key: ref.Key, Need: command.Need()}, proto.Size(r), silent(command.Decide)); err != nil {
		return nil, err
	}
	return &statev1.RecordPlanResponse{}, nil
}

// RecordResult implements statev1.WorkServiceServer.
func (s *workService) RecordResult(ctx context.Context, r *statev1.RecordResultRequest) (*statev1.RecordResultResponse, error) {
	ref, err := s.grants.checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	part := r.GetResult().GetResult()
	if err := s.limits.checkResult(part); err != nil {
		return nil, err
	}
	result := session.Result{CallID: part.GetToolCallId()}
	if result.Ops, err = s.limits.opsIn(r.GetResult().GetOps()); err != nil {
		return nil, err
	}
	if result.Usage, err = s.limits.usageIn(r.GetResult().GetUsage()); err != nil {
		return nil, err
	}
	if result.Body, err = encode(part); err != nil {
		return nil, err
	}
	command := session.RecordResult{ClaimRef: ref, Step: r.GetStep(), Result: result, Limits: s.limits.sessionLimits()}
	repeated, err := update(ctx, s.runner, session.Target{Key: ref.Key, Need: command.Need()}, proto.Size(r), s.limits.limitJournal(command))
	if err != nil {
		return nil, err
	}
	return &statev1.RecordResultResponse{Repeated: repeated}, nil
}

// limitJournal adapts a command: it refuses a result if the whole journal, with its state
// writes and usage, would be too large for a claim. TooLarge (RESULT_TOO_LARGE).
func (l Limits) limitJournal(command session.RecordResult) func(*session.View) (*session.Change, bool, error) {
	return func(v *session.View) (*session.Change, bool, error) {
		change, repeated, err := command.Decide(v)
		if err != nil || change == nil {
			return nil, repeated, err
		}
		size := len(v.Journal.Plan) + opBytes(v.Journal.Ops) + usageBytes(v.Journal.Usage) + resultBytes(command.Result)
		for _, r := range v.Journal.Results {
			size += resultBytes(r)
		}
		if size > l.StepBytes {
			return nil, false, fault.New(fault.TooLarge, "RESULT_TOO_LARGE",
				"step %d would leave %d bytes with the state writes and the usage of its calls; the limit is %d", command.Step, size, l.StepBytes).
				WithSizes(int64(size), int64(l.StepBytes))
		}
		return change, false, nil
	}
}

func resultBytes(r session.Result) int {
	return len(r.Body) + opBytes(r.Ops) + usageBytes(r.Usage)
}

func opBytes(ops []session.StateOp) (n int) {
	for _, op := range ops {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

// usageBytes estimates how many bytes the entries take on the wire. It is never too low.
func usageBytes(usage []session.Usage) (n int) {
	const numbers = 80 // five of at most ten bytes, and the framing
	for _, u := range usage {
		n += numbers + len(u.Model) + len(u.Tool) + len(u.Type) + len(u.Name) + len(u.Source)
	}
	return n
}

// FinishRun implements statev1.WorkServiceServer.
func (s *workService) FinishRun(ctx context.Context, r *statev1.FinishRunRequest) (*statev1.FinishRunResponse, error) {
	ref, err := s.grants.checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	if err := s.limits.checkOutcome(r.GetOutcome(), false); err != nil {
		return nil, err
	}
	command := session.Finish{ClaimRef: ref, Outcome: s.limits.outcomeIn(r.GetOutcome()), Now: s.clock.millis()}
	if command.Usage, err = s.limits.usageIn(r.GetUsage()); err != nil {
		return nil, err
	}
	finished, err := spread(ctx, s.runner, session.Target{Key: ref.Key, Need: command.Need()}, proto.Size(r), command.Now, alone(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.FinishRunResponse{Version: finished.Version, FinishedAt: int64(finished.At)}, nil
}

// ReleaseRun implements statev1.WorkServiceServer.
func (s *workService) ReleaseRun(ctx context.Context, r *statev1.ReleaseRunRequest) (*statev1.ReleaseRunResponse, error) {
	ref, err := s.grants.checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	const longestDelay = 24 * time.Hour
	if err := checkRange("DELAY_INVALID", "delay_ms", r.GetDelayMs(), longestDelay.Milliseconds(), "give 0 to 86400000, a day"); err != nil {
		return nil, err
	}
	usage, err := s.limits.usageIn(r.GetUsage())
	if err != nil {
		return nil, err
	}
	seen, err := lostWorkIn(r.GetSeen())
	if err != nil {
		return nil, err
	}
	command := session.Release{ClaimRef: ref, Delay: session.Millis(r.GetDelayMs()), Usage: usage, Seen: seen, Now: s.clock.millis()}
	if err := s.runner.release(ctx, command); err != nil {
		return nil, err
	}
	return &statev1.ReleaseRunResponse{}, nil
}
