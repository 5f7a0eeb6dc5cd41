package server

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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
	stored       store.StoredAgents
	runner       *runner
	scheduler    *scheduler.Scheduler
	suspects     *sweep.Suspects
	suspendedTTL time.Duration
	clock        clock
	callbacks    grant.CallbackKeys
}

// RecordPlan implements statev1.WorkServiceServer.
func (s *workService) RecordPlan(ctx context.Context, r *statev1.RecordPlanRequest) (*statev1.RecordPlanResponse, error) {
	x := s.runner.read(r)
	command := session.RecordPlan{
		ClaimRef: x.claim(s.grants, r.GetRun()), Step: r.GetStep(), CallIDs: readPlannedCalls(x, r.GetPlan()), Usage: x.usage(r.GetUsage()),
		Ops: x.ops(r.GetOps()), Limits: x.limits.sessionLimits(),
	}
	if x.err == nil {
		command.Body = x.encode(r.GetPlan())
	}
	limit := x.limits.StepBytes
	size := len(command.Body) + session.UsageBytes(command.Usage)
	x.atMost("MESSAGE_TOO_LARGE", "the plan with its usage", size, limit)
	if size += session.OpsBytes(command.Ops); size > limit {
		x.fail(session.StateTooLarge(size, limit, command.Ops))
	}
	if x.err != nil {
		return nil, x.err
	}
	if _, err := run(ctx, s.runner, onSession(x, command.Key, withoutAnswer{command})); err != nil {
		return nil, err
	}
	return &statev1.RecordPlanResponse{}, nil
}

// readPlannedCalls checks a plan, and returns the ids of its calls. Invalid (MESSAGE_INVALID, ID_INVALID, METADATA_INVALID),
// TooLarge (MESSAGE_TOO_LARGE).
func readPlannedCalls(x *reader, m *eventv1.Message) (ids []string) {
	if m.GetRole() != eventv1.Role_ROLE_ASSISTANT {
		x.refuse("MESSAGE_INVALID", "the plan has the role %s; it is the assistant's message", m.GetRole())
	}
	x.id("the plan's id", m.GetId())
	seen := map[string]bool{}
	for _, part := range m.GetParts() {
		call := part.GetToolCall()
		if call == nil {
			continue
		}
		id := x.id("a call's id", call.GetToolCallId())
		if seen[id] {
			x.refuse("MESSAGE_INVALID", "the plan has two calls with the id %q", id)
		}
		seen[id] = true
		ids = append(ids, id)
	}
	x.checkMessage(m, x.limits.MessageBytes)
	return ids
}

// RecordResult implements statev1.WorkServiceServer.
func (s *workService) RecordResult(ctx context.Context, r *statev1.RecordResultRequest) (*statev1.RecordResultResponse, error) {
	x := s.runner.read(r)
	command := session.RecordResult{ClaimRef: x.claim(s.grants, r.GetRun()), Step: r.GetStep(), Limits: x.limits.sessionLimits()}
	part := r.GetResult().GetResult()
	command.Result.CallID = x.id("the call's id", part.GetToolCallId())
	if size := len(part.GetResult()) + len(part.GetError()) + len(part.GetPublicError()); size > x.limits.ResultBytes {
		x.fail(tooLarge("RESULT_TOO_LARGE", fmt.Sprintf("the result of call %q", part.GetToolCallId()), size, x.limits.ResultBytes))
	}
	if !isJSONOrEmpty(part.GetResult()) {
		x.refuse("RESULT_INVALID", "the result of call %q is not one JSON text", part.GetToolCallId())
	}
	command.Result.Ops = x.ops(r.GetResult().GetOps())
	command.Result.Usage = x.usage(r.GetResult().GetUsage())
	command.Store = x.storeWrites(r.GetResult().GetStore())
	if x.err == nil {
		command.Result.Body = x.encode(part)
	}
	if rows := r.GetResult().GetContext(); len(rows) > 0 {
		command.Result.Context = x.encode(&statev1.CallResult{Context: rows})
	}
	if x.err != nil {
		return nil, x.err
	}
	repeated, err := run(ctx, s.runner, onSession(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.RecordResultResponse{Repeated: repeated}, nil
}

// FinishRun implements statev1.WorkServiceServer.
func (s *workService) FinishRun(ctx context.Context, r *statev1.FinishRunRequest) (*statev1.FinishRunResponse, error) {
	x := s.runner.read(r)
	command := session.Finish{
		ClaimRef: x.claim(s.grants, r.GetRun()), Outcome: x.outcome(r.GetOutcome(), false), Usage: x.usage(r.GetUsage()), Now: x.now,
	}
	if x.err != nil {
		return nil, x.err
	}
	finished, err := run(ctx, s.runner, onFamily(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.FinishRunResponse{Version: finished.Version, FinishedAt: int64(finished.At)}, nil
}

// ReleaseRun implements statev1.WorkServiceServer.
func (s *workService) ReleaseRun(ctx context.Context, r *statev1.ReleaseRunRequest) (*statev1.ReleaseRunResponse, error) {
	const longestDelay = 24 * time.Hour
	const maxLostEpoch = 1 << 62 // it leaves room for the claims to come
	x := s.runner.read(r)
	command := session.Release{
		ClaimRef: x.claim(s.grants, r.GetRun()), Now: x.now,
		Delay: session.Millis(number(x, "DELAY_INVALID", "delay_ms", r.GetDelayMs(), longestDelay.Milliseconds(), "give 0 to 86400000, a day")),
		Usage: x.usage(r.GetUsage()),
		Seen: session.LostWork{ // what no session reaches is invalid: it could not go on after it
			Epoch: number(x, "LOST_WORK_INVALID", "seen.epoch", r.GetSeen().GetEpoch(), maxLostEpoch, "give an epoch that a claim has had"),
			Step:  number(x, "LOST_WORK_INVALID", "seen.step", r.GetSeen().GetStep(), position.MaxStep-1, "give a step of the session"),
		},
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.runner.release(ctx, command); err != nil {
		return nil, err
	}
	return &statev1.ReleaseRunResponse{}, nil
}
