package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// RecordPlan implements statev1.WorkServiceServer.
func (s *Server) RecordPlan(ctx context.Context, r *statev1.RecordPlanRequest) (*statev1.RecordPlanResponse, error) {
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	calls, err := s.config.Limits.checkPlan(r.GetPlan())
	if err != nil {
		return nil, err
	}
	usage, err := usageIn(r.GetUsage())
	if err != nil {
		return nil, err
	}
	body, err := encode(r.GetPlan())
	if err != nil {
		return nil, err
	}
	command := session.Plan{Ref: ref, Step: r.GetStep(), Body: body, CallIDs: calls, Sequence: r.GetStreamSequence(), Usage: usage}
	if err := s.store.Update(ctx, ref.Key, command.Need(), command.Decide); err != nil {
		return nil, err
	}
	return &statev1.RecordPlanResponse{}, nil
}

// RecordResult implements statev1.WorkServiceServer.
func (s *Server) RecordResult(ctx context.Context, r *statev1.RecordResultRequest) (*statev1.RecordResultResponse, error) {
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	part := r.GetResult().GetResult()
	if err := s.config.Limits.checkResult(part); err != nil {
		return nil, err
	}
	result := session.Result{CallID: part.GetToolCallId()}
	if result.Ops, err = opsIn(r.GetResult().GetOps()); err != nil {
		return nil, err
	}
	if result.Usage, err = usageIn(r.GetResult().GetUsage()); err != nil {
		return nil, err
	}
	if result.Body, err = encode(part); err != nil {
		return nil, err
	}
	command := session.RecordResult{Ref: ref, Step: r.GetStep(), Result: result, Limits: s.config.Limits.heart()}
	repeated, err := update(ctx, s.store, ref.Key, command.Need(), command.Decide)
	if err != nil {
		return nil, err
	}
	return &statev1.RecordResultResponse{Repeated: repeated}, nil
}

// CommitStep implements statev1.WorkServiceServer.
func (s *Server) CommitStep(ctx context.Context, r *statev1.CommitStepRequest) (*statev1.CommitStepResponse, error) {
	command, err := s.commit(r)
	if err != nil {
		return nil, err
	}
	c, err := update(ctx, s.store, command.Key, command.Need(), command.Decide)
	if err != nil {
		return nil, err
	}
	return &statev1.CommitStepResponse{CheckpointId: c.ID, Version: c.Version, MessageCount: c.MessageCount, Warnings: c.Warnings}, nil
}

// commit checks the request and makes the command of it.
func (s *Server) commit(r *statev1.CommitStepRequest) (session.Commit, error) {
	limits := s.config.Limits
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return session.Commit{}, err
	}
	if err := limits.checkStepMessages(r.GetMessages()); err != nil {
		return session.Commit{}, err
	}
	if r.GetStreamStep() < 0 || r.GetStreamStep() > r.GetStep() {
		return session.Commit{}, fault.New(fault.Invalid, "STREAM_STEP_INVALID",
			"stream_step is %d: give the last step that is whole in the stream, %d at most", r.GetStreamStep(), r.GetStep())
	}
	command := session.Commit{Ref: ref, Step: r.GetStep(), Sequence: r.GetStreamSequence(), StreamStep: r.GetStreamStep(), Limits: limits.heart(), Now: s.millis()}
	command.CheckpointID = checkpointID(ref.SessionID, r.GetStep(), command.Now, s.newID())
	if command.Ops, err = opsIn(r.GetOps()); err != nil {
		return session.Commit{}, err
	}
	if command.Usage, err = usageIn(r.GetUsage()); err != nil {
		return session.Commit{}, err
	}
	if r.GetOutcome() != nil {
		if err := limits.checkOutcome(r.GetOutcome()); err != nil {
			return session.Commit{}, err
		}
		outcome := limits.outcomeIn(r.GetOutcome())
		command.Outcome = &outcome
	}
	command.Messages, err = messagesIn(r.GetMessages(), origin{runID: ref.RunID, step: r.GetStep(), now: command.Now})
	return command, err
}

// checkpointID has the form of the specification; its six random digits come
// from a fresh id.
func checkpointID(sessionID string, step int32, now session.Millis, id string) string {
	digest := sha256.Sum256([]byte(id))
	return fmt.Sprintf("cpv1-%s-s%d-t%d-%s", sessionID, step, now, hex.EncodeToString(digest[:3]))
}

// FinishRun implements statev1.WorkServiceServer.
func (s *Server) FinishRun(ctx context.Context, r *statev1.FinishRunRequest) (*statev1.FinishRunResponse, error) {
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	if err := s.config.Limits.checkOutcome(r.GetOutcome()); err != nil {
		return nil, err
	}
	command := session.Finish{Ref: ref, Outcome: s.config.Limits.outcomeIn(r.GetOutcome()), Sequence: r.GetStreamSequence(), Now: s.millis()}
	version, err := update(ctx, s.store, ref.Key, command.Need(), command.Decide)
	if err != nil {
		return nil, err
	}
	return &statev1.FinishRunResponse{Version: version}, nil
}

// SettleRun implements statev1.WorkServiceServer.
func (s *Server) SettleRun(ctx context.Context, r *statev1.SettleRunRequest) (*statev1.SettleRunResponse, error) {
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	command := session.Settle{Ref: ref, Sequence: r.GetStreamSequence(), Now: s.millis()}
	next, err := update(ctx, s.store, ref.Key, command.Need(), withNext(command.Decide))
	if err != nil {
		return nil, err
	}
	if next != "" {
		s.hub.signal(next)
	}
	return &statev1.SettleRunResponse{}, nil
}

// withNext answers with the agent of the run that the settling lets go, or "".
func withNext(decide store.Decide) func(*session.View) (*session.Change, string, error) {
	return func(v *session.View) (*session.Change, string, error) {
		change, err := decide(v)
		if v.Live == nil {
			return change, "", err
		}
		return change, v.Live.AgentType, err
	}
}

// ReleaseRun implements statev1.WorkServiceServer.
func (s *Server) ReleaseRun(ctx context.Context, r *statev1.ReleaseRunRequest) (*statev1.ReleaseRunResponse, error) {
	ref, err := checkRef(r.GetRun())
	if err != nil {
		return nil, err
	}
	if err := s.release(ctx, ref); err != nil {
		return nil, err
	}
	return &statev1.ReleaseRunResponse{}, nil
}

func (s *Server) release(ctx context.Context, ref session.Ref) error {
	command := session.Release{Ref: ref, Now: s.millis()}
	agent, err := update(ctx, s.store, ref.Key, command.Need(), func(v *session.View) (*session.Change, string, error) {
		change, err := command.Decide(v)
		if change == nil {
			return nil, "", err
		}
		return change, v.Run.AgentType, nil
	})
	if err == nil && agent != "" {
		s.hub.signal(agent)
	}
	return err
}

// Heartbeat implements statev1.WorkServiceServer.
func (s *Server) Heartbeat(ctx context.Context, r *statev1.HeartbeatRequest) (*statev1.HeartbeatResponse, error) {
	if err := checkID("executor_id", r.GetExecutorId()); err != nil {
		return nil, err
	}
	known, err := s.store.Beat(ctx, r.GetExecutorId(), s.millis())
	if err != nil {
		return nil, err
	}
	if known && r.GetHeld() != nil {
		before := session.Millis(s.now().Add(-s.config.Fresh).UnixMilli())
		err = s.reclaimLost(ctx, r.GetExecutorId(), r.GetHeld().GetRunIds(), before)
	}
	return &statev1.HeartbeatResponse{Forgotten: !known}, err
}

// Lost claims are taken back in batches, so that no transaction is large.
const lostBatch = 100

// reclaimLost takes back what the executor has claimed before the time and
// does not hold.
func (s *Server) reclaimLost(ctx context.Context, executorID string, held []string, before session.Millis) error {
	if err := checkHeld(held); err != nil {
		return err
	}
	command := session.RequeueLost{ExecutorID: executorID, Held: held, ClaimedBefore: before, Now: s.millis()}
	due := store.Lost{ExecutorID: executorID, Held: held, ClaimedBefore: before}
	for {
		freed, err := s.store.UpdateDue(ctx, due, session.Need{}, lostBatch, command.Decide)
		if err != nil {
			return err
		}
		for _, f := range freed {
			s.log.WarnContext(ctx, "claim was lost on its way", "executor", executorID, "session", f.View.Session.SessionID, "run", f.View.Run.RunID)
			s.hub.signal(f.View.Run.AgentType)
		}
		if len(freed) < lostBatch {
			return nil
		}
	}
}

func checkHeld(held []string) error {
	const most = 100_000
	if len(held) > most {
		return fault.New(fault.Invalid, "EXECUTOR_INVALID", "an executor cannot hold %d runs; the limit is %d", len(held), most)
	}
	for _, id := range held {
		if err := checkID("a held run id", id); err != nil {
			return err
		}
	}
	return nil
}

// afterwards is for what has to be done although the caller is gone.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	const longest = 5 * time.Second
	return context.WithTimeout(context.WithoutCancel(ctx), longest)
}
