package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// performAll performs the planner's effects until the run has ended.
func (r *runner) performAll(ctx context.Context) error {
	if r.claimed.beginsAnswering(r.planner.Next()) {
		r.passed(ctx, PointDrained)
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
	if _, ended := effect.(loop.Done); ended {
		return true, nil
	}
	if r.passStop(ctx, nil) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // a stop may have interrupted a function of the agent: see loop.ErrAbandoned
	}
	return false, r.effect(ctx, effect)
}

// passStop passes a new stop on to the planner, and reports whether there was one. reply has the part of a reply
// received before the stop; it may be nil.
func (r *runner) passStop(ctx context.Context, reply *loop.Reply) bool {
	if !r.stopper.hasNew() {
		return false
	}
	r.passed(ctx, PointStopSeen)
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
	case loop.StepContext:
		if isClosed(r.draining) {
			return errDraining
		}
		return r.stepContext(ctx, e)
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

// callModel makes one model call and shows its reply. If a stop interrupts the call, the planner decides about the
// incomplete reply.
func (r *runner) callModel(ctx context.Context, e loop.CallModel) error {
	step := int32(e.Step)
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	if err := r.view.beginReply(interruptible, step, e.Request.Output != nil, r.planner.Notices()); err != nil {
		return err
	}
	if interruptible.Err() != nil {
		return context.Cause(interruptible)
	}
	r.hooks.beforeModel(interruptible, e)
	reply := r.planner.NewReply()
	err := r.code.generate(interruptible, modelRequest{
		step: e.Step, attempt: e.Attempt, model: e.Model, request: e.Request, reply: reply,
		each: func(events []model.Event) error { return r.view.extendReply(interruptible, step, reply, events) },
	})
	r.usage.addTokens(e.Model, reply.Usage())
	r.hooks.afterModel(interruptible, e, reply, err)
	if canceledByStop(interruptible) {
		end()
		r.passStop(ctx, reply)
		return nil
	}
	if failed, ok := errors.AsType[modelFailure](err); ok {
		r.planner.Failed(reply, failed.err)
		if next, ok := r.planner.Next().(loop.Commit); ok && next.Notes && next.Outcome == nil {
			r.log.WarnContext(ctx, "the model has refused a request and is called without the refused part",
				"agent", r.claimed.run.GetAgentType(), "step", next.Step, "error", forLog(failed.Error()))
		}
		r.voidIfRetried(e)
		return nil
	}
	if err != nil {
		return err
	}
	r.planner.Replied(reply)
	for _, call := range reply.Calls() {
		if err := r.view.show(interruptible, step, r.view.starts(r.planner, fromCall(call))...); err != nil {
			return err
		}
	}
	r.passed(ctx, PointReplied)
	r.voidIfRetried(e)
	return nil
}

// voidIfRetried voids what readers have seen of the step if its model is called again, or if a refusal ends the step
// without the reply. It does so at once, so that a stop during the wait leaves nothing void in view.
func (r *runner) voidIfRetried(failed loop.CallModel) {
	switch next := r.planner.Next().(type) {
	case loop.Wait:
	case loop.CallModel:
		if next.Step != failed.Step {
			return
		}
	case loop.Commit:
		if !next.Notes || !r.view.reply.content {
			return
		}
	default:
		return
	}
	r.view.voidStep(r.writes.stored)
	r.hooks.messaged.reset()
}

// wait waits before a retry. When the executor stops, it returns: the next owner does not wait.
func (r *runner) wait(ctx context.Context, e loop.Wait) error {
	wait := time.Duration(e.For) * time.Millisecond
	r.log.WarnContext(ctx, "the model call failed and is retried", "step", e.Step, "wait", wait, "code", e.Cause.Code, "error", e.Cause.Detail)
	r.worker.meters.retried(ctx, r.claimed.run.GetAgentType(), e.Cause.Code)
	ctx, end := r.stopper.interruptible(ctx)
	defer end()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.planner.Waited()
		return nil
	case <-r.draining:
		return errDraining
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stepContext asks the agent for rows of context before a model call.
func (r *runner) stepContext(ctx context.Context, e loop.StepContext) error {
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	rows, err := r.hooks.stepContext(interruptible, e)
	switch {
	case interruptible.Err() != nil:
		return context.Cause(interruptible)
	case err != nil:
		r.planner.ContextFailed(err)
	default:
		r.passed(ctx, PointContextGiven)
		r.planner.Contexted(rows)
	}
	return nil
}

// compact asks for a summary, without showing it. Without a summary the step continues.
func (r *runner) compact(ctx context.Context, e loop.Compact) error {
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	reply := r.planner.NewReply()
	summary, err := r.code.summarize(interruptible, e, reply)
	r.usage.addTokens(e.Model, reply.Usage())
	switch {
	case interruptible.Err() != nil:
		return context.Cause(interruptible)
	case errors.Is(err, errDraining):
		return err
	case err != nil:
		r.log.WarnContext(ctx, "the conversation could not be summarized; its oldest turns are omitted", "step", e.Step, "error", err)
		r.planner.CompactFailed(err)
	default:
		r.planner.Compacted(summary)
	}
	return nil
}

// guard asks the agent's guard about the end of the run.
func (r *runner) guard(ctx context.Context, e loop.Guard) error {
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	verdict, err := r.code.guard(interruptible, e)
	switch {
	case interruptible.Err() != nil:
		return context.Cause(interruptible)
	case err != nil:
		r.planner.GuardFailed(err)
	default:
		r.planner.Judged(verdict)
	}
	return nil
}

// recordPlan calls the hooks of the plan's message and makes the plan durable.
func (r *runner) recordPlan(ctx context.Context, e loop.RecordPlan) error {
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	if !r.claimed.isAnswering(e.Step, e.Plan.ID) {
		r.hooks.onMessages(interruptible, e.Step, loop.ConversationMessage(e.Plan))
	}
	if interruptible.Err() != nil {
		return context.Cause(interruptible)
	}
	if err := r.storePlan(ctx, e.Step, e.Plan); err != nil {
		return err
	}
	r.planner.Recorded()
	return nil
}

// storePlan makes a plan durable, with the hook writes before it.
func (r *runner) storePlan(ctx context.Context, step int, plan agent.Message) error {
	if err := r.view.publisher.Confirm(ctx); err != nil {
		return err
	}
	dropped, err := r.recorder.plan(ctx, step, plan, r.writes.forPlan())
	if err != nil {
		return err
	}
	r.writes.planRecorded(dropped)
	r.passed(ctx, PointPlanRecorded)
	return nil
}

// runCalls runs the calls of a step. A stop interrupts the running tools and prevents the other calls from starting.
func (r *runner) runCalls(ctx context.Context, e loop.RunCalls) error {
	interruptible, end := r.stopper.interruptible(ctx)
	defer end()
	if err := r.view.publisher.Confirm(ctx); err != nil {
		return err
	}
	if !e.Answering {
		r.hooks.onMessages(interruptible, e.Step, e.Plan)
	}
	r.writes.beginCalls(e.Plan)
	calls := newCallBatch(e, r.writes.through(afterReply), func() error {
		return r.storePlan(ctx, e.Step, e.Plan) // safe: this goroutine waits for the calls
	})
	outcomes, err := r.tools.run(ctx, interruptible, calls)
	results := make([]loop.Ended, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Ended
		if !o.recorded {
			r.usage.add(o.usage...)
		}
	}
	if err != nil {
		return err
	}
	for _, end := range results {
		r.writes.addCall(end)
	}
	r.passed(ctx, PointCallsEnded)
	r.planner.Ended(results)
	return nil
}
