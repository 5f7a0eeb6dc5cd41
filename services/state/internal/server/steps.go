package server

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ListSteps implements statev1.SessionServiceServer.
func (s *sessionService) ListSteps(ctx context.Context, r *statev1.ListStepsRequest) (*statev1.ListStepsResponse, error) {
	x := s.runner.read(r)
	key := x.key(r)
	page := store.StepPage{
		Limit: x.pageLimit(r.GetLimit()), MaxBytes: x.limits.PageBytes, RunID: x.optionalID("run_id", r.GetRunId()),
		After: number(x, "STEP_INVALID", "after_step", r.GetAfterStep(), math.MaxInt32, "give the last step that you have, or 0 for none"),
	}
	if x.err != nil {
		return nil, x.err
	}
	found, err := x.owned(s.store).Steps(ctx, key, page)
	if err != nil {
		return nil, err
	}
	return stepsOut(key, found)
}

func stepsOut(key session.Key, found *store.Steps) (*statev1.ListStepsResponse, error) {
	answer := &statev1.ListStepsResponse{
		Session: sessionOut(&found.Session), CurrentRun: runOut(key, found.Current), HasMore: found.More, Stands: found.LastStep,
	}
	for i := range found.Page {
		step, err := stepOut(&found.Page[i])
		if err != nil {
			return nil, err
		}
		answer.Steps = append(answer.Steps, step)
	}
	for i := range found.Runs {
		answer.Runs = append(answer.Runs, runOut(key, &found.Runs[i]))
	}
	return answer, nil
}

func stepOut(step *session.StoredStep) (*statev1.StoredStep, error) {
	out := &statev1.StoredStep{
		Step: step.Step, RunId: step.RunID, Follows: step.Follows, BeginsRun: step.BeginsRun,
		CheckpointId: step.ID, CommittedAt: int64(step.CreatedAt),
	}
	messages, err := messagesOut(step.Messages)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		out.Messages = append(out.Messages, m.GetMessage())
	}
	if len(step.Record) > 0 {
		out.Record = &eventv1.StepRecord{}
		if err := proto.Unmarshal(step.Record, out.Record); err != nil {
			return nil, fmt.Errorf("decode the record of step %d: %w", step.Step, err)
		}
	}
	return out, nil
}
