package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// Codes of failures detected by the worker.
const (
	codeRunLost = "framework_run_lost"
	codeRefused = "framework_run_refused"
)

// resolveTimeout bounds the time of a factory.
const resolveTimeout = time.Minute

// errNoAgent means that this executor does not have the run's agent, or no longer.
var errNoAgent = errors.New("the agent is not here")

// execute performs the planner's effects until the run has ended.
func (r *runner) execute(ctx context.Context) error {
	r.peers.Passed(ctx, PointClaimed)
	if isClosed(r.draining) {
		return errDraining
	}
	if losses, limit := int(r.claimed.run.GetLosses()), r.config.MaxLosses; losses >= limit {
		return r.fail(ctx, loop.Failure{
			Error:  "Something went wrong on our side.",
			Detail: fmt.Sprintf("executors were lost with the run %d times in a row, without a step committed in between; the limit is %d: see what it does to its process", losses, limit),
			Code:   codeRunLost,
		})
	}
	err := r.resolveAgent(ctx)
	if errors.Is(err, errNoAgent) {
		return r.endWithoutAgent(ctx)
	}
	if err != nil {
		return err
	}
	now := r.claimed.stateTime(r.peers.Now())
	defer r.stopper.stopAt(r.claimed.deadline(r.code.agent.RunTimeout, now), now)()
	if err := r.view.showBegin(ctx, r.step); err != nil {
		return err
	}
	if r.code.agent.Remote != nil {
		return r.executeRemote(ctx)
	}
	start, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	refusal := r.hooks.beforeRun(ctx, r.claimed.run.GetStepCount() > 0 || start.Journal != nil)
	r.planner = loop.New(start)
	if refusal != nil {
		return r.fail(ctx, *refusal)
	}
	if err := r.callEntryHooks(ctx, start.Journal); err != nil {
		return err
	}
	return r.performAll(ctx)
}

// resolveAgent finds the run's agent.
func (r *runner) resolveAgent(ctx context.Context) error {
	found, err := callFunction(ctx, r.sandbox, r.claimed.codeName("the factory"), resolveTimeout, func(ctx context.Context) (catalog.Agent, error) {
		return r.peers.Agents.Resolve(ctx, catalog.For{
			AgentType: r.claimed.run.GetAgentType(), Tenant: r.claimed.ref.GetTenant(), SessionID: r.claimed.ref.GetSessionId(),
			RunID: r.claimed.ref.GetRunId(), UserID: r.claimed.session.GetUserId(),
		})
	})
	switch {
	case err == nil:
		r.useAgent(found)
		return nil
	case ctx.Err() != nil:
		return err
	case fault.ReasonOf(err) == "AGENT_NOT_FOUND":
		return errNoAgent
	}
	return fmt.Errorf("make the agent %q: %w", r.claimed.run.GetAgentType(), err)
}

// endWithoutAgent ends a run without its agent, if the run is to stop or its deadline has passed. Otherwise the
// run returns to the queue.
func (r *runner) endWithoutAgent(ctx context.Context) error {
	stop, ends := r.stopper.takeNew()
	now := r.claimed.stateTime(r.peers.Now())
	if at := r.claimed.deadline(0, now); !ends && !at.IsZero() && !now.Before(at) {
		stop, ends = loop.Stop{Kind: loop.StopDeadline}, true
	}
	if !ends {
		r.log.WarnContext(ctx, "the run's agent is not here; the run returns to the queue", "agent", r.claimed.run.GetAgentType())
		return errNoAgent
	}
	r.log.InfoContext(ctx, "the run ends early, without its agent", "kind", stop.Kind, "reason", stop.Reason)
	return r.giveUp(ctx, stop.Outcome())
}

// callEntryHooks calls the hooks without durable writes: the hooks of the run's begin in its first step, and with a
// journal the hooks after its reply, which it shows again. The journal already has the usage of all these hooks.
func (r *runner) callEntryHooks(ctx context.Context, journal *loop.Journal) error {
	counted := r.usage.mark()
	r.hooks.onBegin(ctx)
	if journal == nil {
		return nil
	}
	step := r.step + 1
	if err := r.view.showPlan(ctx, step, journal.Plan, r.planner); err != nil {
		return err
	}
	r.hooks.onRecovered(ctx, int(step), journal.Plan)
	r.usage.dropSince(counted)
	return nil
}

func (r *runner) performAll(ctx context.Context) error {
	if r.claimed.beginsDrain(r.planner.Next()) {
		r.peers.Passed(ctx, PointDrained)
	}
	for {
		done, err := r.perform(ctx)
		if err != nil && isStop(ctx, err) {
			continue // the next effect follows the stop
		}
		if done || err != nil {
			return err
		}
	}
}

// perform performs one effect, or passes a stop on to the planner. When the executor stops, it performs no
// effect that begins something new.
func (r *runner) perform(ctx context.Context) (done bool, err error) {
	effect := r.planner.Next()
	if _, over := effect.(loop.Done); over {
		return true, nil
	}
	if r.passStop(ctx, nil) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // a stop may have cut a function of the agent: see loop.ErrAbandoned
	}
	return false, r.effect(ctx, effect)
}

// passStop passes a new stop on to the planner, and reports whether there was one. reply has the part of a reply
// received before the stop; it may be nil.
func (r *runner) passStop(ctx context.Context, reply *loop.Reply) bool {
	if !r.stopper.hasNew() {
		return false
	}
	r.peers.Passed(ctx, PointStopSeen)
	stop, _ := r.stopper.takeNew() // a stronger stop may have come meanwhile
	r.log.InfoContext(ctx, "the run ends early", "kind", stop.Kind, "reason", stop.Reason)
	r.planner.Stopped(stop, reply)
	return true
}

func (r *runner) effect(ctx context.Context, effect loop.Effect) error {
	switch e := effect.(type) {
	case loop.CallModel:
		if isClosed(r.draining) {
			return errDraining
		}
		return r.callModel(ctx, e)
	case loop.Compact:
		if isClosed(r.draining) {
			return errDraining
		}
		return r.compact(ctx, e)
	case loop.Wait:
		return r.wait(ctx, e)
	case loop.Guard:
		return r.guard(ctx, e)
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
	return fmt.Errorf("the planner returned an effect of the unknown type %T", effect)
}
