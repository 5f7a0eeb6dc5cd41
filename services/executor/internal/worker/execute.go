package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// Codes of failures that the worker itself finds.
const (
	codeRunLost = "framework_run_lost"
	codeRefused = "framework_run_refused"
)

// resolveTimeout bounds how long a factory may take to make an agent.
const resolveTimeout = time.Minute

// errAbsent says that the run's agent is not here (any more).
var errAbsent = errors.New("the agent is not here")

// execute performs what the planner decides until the run has ended.
func (r *runner) execute(ctx context.Context) error {
	r.worker.passed(ctx, PointClaimed)
	if r.stopping() {
		return errStop
	}
	if losses, limit := int(r.started.GetLosses()), r.worker.config.MaxLosses; losses >= limit {
		return r.fail(ctx, loop.Failure{
			Error:  "Something went wrong on our side.",
			Detail: fmt.Sprintf("executors were lost with the run %d times in a row, without a step committed in between; the limit is %d: see what it does to its process", losses, limit),
			Code:   codeRunLost,
		})
	}
	err := r.resolve(ctx)
	if errors.Is(err, errAbsent) {
		return r.orphaned(ctx)
	}
	if err != nil {
		return err
	}
	defer r.timed()()
	if err := r.open(ctx); err != nil {
		return err
	}
	start, err := r.start(ctx)
	if err != nil {
		return err
	}
	refusal := r.beforeRun(ctx, start.Journal)
	r.planner = loop.New(start)
	if refusal != nil {
		return r.fail(ctx, *refusal)
	}
	if err := r.entered(ctx, start.Journal); err != nil {
		return err
	}
	return r.loop(ctx)
}

// resolve asks for the run's agent.
func (r *runner) resolve(ctx context.Context) (err error) {
	r.agent, err = foreign(ctx, r.worker, r.code("the factory"), resolveTimeout, func(ctx context.Context) (Agent, error) {
		return r.worker.peers.Agents.Resolve(ctx, For{
			AgentType: r.started.GetAgentType(), Tenant: r.ref.GetTenant(), SessionID: r.ref.GetSessionId(),
			RunID: r.ref.GetRunId(), UserID: r.session.GetUserId(),
		})
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case fault.ReasonOf(err) == "AGENT_NOT_FOUND":
		return errAbsent
	}
	return fmt.Errorf("make the agent %q: %w", r.started.GetAgentType(), err)
}

// orphaned ends a run whose agent is not here, where it is to stop or its time is over. Any
// other goes back to the queue.
func (r *runner) orphaned(ctx context.Context) error {
	stop, ends := r.halt.take()
	if at := r.deadline(); !ends && !at.IsZero() && !r.worker.peers.Now().Before(at) {
		stop, ends = loop.Stop{Kind: loop.StopDeadline}, true
	}
	if !ends {
		r.log.WarnContext(ctx, "the run's agent is not here; it goes back to the queue", "agent", r.started.GetAgentType())
		return errAbsent
	}
	r.log.InfoContext(ctx, "the run ends early, without its agent", "kind", stop.Kind, "reason", stop.Reason)
	return r.quit(ctx, stop.Outcome())
}

// drains reports whether the plan of the step in flight is that of calls of an earlier
// one.
func (r *runner) drains(plan agent.Message) bool {
	return loop.IsDrain(r.named(), int(r.step)+1, plan)
}

// answers reports whether the effect is the first that uses answers from outside.
func (r *runner) answers(effect loop.Effect) bool {
	switch e := effect.(type) {
	case loop.RunCalls:
		return e.Drain
	case loop.Commit:
		return e.Drain
	case loop.RecordPlan:
		return r.drains(e.Plan)
	}
	return false
}

func (r *runner) loop(ctx context.Context) error {
	if r.answers(r.planner.Next()) {
		r.worker.passed(ctx, PointDrained)
	}
	for {
		done, err := r.perform(ctx)
		if err != nil && isStop(ctx, err) {
			continue // the planner is told of the stop next
		}
		if done || err != nil {
			return err
		}
	}
}

// perform performs one effect, or tells the planner of a stop. It stops before an
// effect that begins something new when the executor stops.
func (r *runner) perform(ctx context.Context) (done bool, err error) {
	effect := r.planner.Next()
	if _, over := effect.(loop.Done); over {
		return true, nil
	}
	if r.noticeStop(ctx, nil) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // a function of the agent may have been cut: see loop.ErrCut
	}
	return false, r.effect(ctx, effect)
}

func (r *runner) effect(ctx context.Context, effect loop.Effect) error {
	switch e := effect.(type) {
	case loop.CallModel:
		if r.stopping() {
			return errStop
		}
		return r.callModel(ctx, e)
	case loop.Compact:
		if r.stopping() {
			return errStop
		}
		return r.compact(ctx, e)
	case loop.Wait:
		return r.wait(ctx, e)
	case loop.Guard:
		return r.judge(ctx, e)
	case loop.RecordPlan:
		return r.recordPlan(ctx, e)
	case loop.RunCalls:
		return r.runCalls(ctx, e)
	case loop.Commit:
		return r.commit(ctx, e)
	case loop.Finish:
		if err := r.finish(ctx, e.Outcome); err != nil {
			return err
		}
		r.planner.Finished()
		return nil
	}
	return fmt.Errorf("the planner wants the unknown effect %T", effect)
}

// wait lets the time before a retry pass. When the executor stops, the next owner
// need not wait for it.
func (r *runner) wait(ctx context.Context, e loop.Wait) error {
	r.log.WarnContext(ctx, "the model call failed and is made again", "step", e.Step, "wait", e.For, "code", e.Cause.Code, "error", e.Cause.Detail)
	ctx, end := r.halt.within(ctx)
	defer end()
	timer := time.NewTimer(e.For)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.planner.Waited()
		return nil
	case <-r.stop:
		return errStop
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
