package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// compact asks for a summary: of the agent's own function, or of its model. No reader
// hears of it. Without one the step goes on.
func (r *runner) compact(ctx context.Context, e loop.Compact) error {
	cuttable, end := r.halt.within(ctx)
	defer end()
	summary, err := r.summary(cuttable, e)
	switch {
	case cuttable.Err() != nil:
		return context.Cause(cuttable)
	case err != nil:
		r.log.WarnContext(ctx, "the conversation could not be summed up; its oldest turns are left out", "step", e.Step, "error", err)
		r.planner.CompactFailed(err)
	default:
		r.planner.Compacted(summary)
	}
	return nil
}

func (r *runner) summary(ctx context.Context, e loop.Compact) (string, error) {
	if f := r.agent.Context.Compact; f != nil {
		return foreign(ctx, r.worker, r.code("Compact"), r.worker.config.ModelTimeout, func(ctx context.Context) (string, error) { return f(ctx, e.Older) })
	}
	reply := r.planner.NewReply()
	err := r.generate(ctx, e.Step, 1, e.Model, e.Request, &listener{reply: reply})
	r.spent(e.Model, reply.Usage())
	if err != nil {
		return "", err
	}
	if reply.FinishReason() == model.FinishError {
		return "", errors.New("the provider ended the summary with an error")
	}
	return agent.Message{Parts: reply.Parts()}.Text(), nil
}

// apart calls a function of the agent for the planner, within the time limit of hooks. A stop
// cuts it as the end of the run does. What it has done instead of an answer is logged.
func (r *runner) apart(ctx context.Context, what string, f func() any) (any, error) {
	cuttable, end := r.halt.within(ctx)
	defer end()
	if cuttable.Err() != nil {
		return nil, loop.ErrCut
	}
	answer, err := foreign(cuttable, r.worker, r.code(what), r.worker.config.HookTimeout, func(context.Context) (any, error) { return f(), nil })
	switch {
	case err == nil:
		return answer, nil
	case cuttable.Err() != nil:
		return nil, loop.ErrCut
	case errors.Is(err, errTooLong):
		err = fmt.Errorf("it did not return within %v", r.worker.config.HookTimeout)
	}
	r.log.WarnContext(ctx, "a function of the agent has given no answer", "function", what, "error", err)
	return nil, err
}

// judge asks the agent's guard about the end of the run.
func (r *runner) judge(ctx context.Context, e loop.Guard) error {
	cuttable, end := r.halt.within(ctx)
	defer end()
	f := r.agent.Guard.OnOutput
	if e.Reply {
		f = r.agent.Guard.OnReply
	}
	if f == nil {
		r.planner.Judged(agent.Verdict{})
		return nil
	}
	verdict, err := foreign(cuttable, r.worker, r.code("the guard"), r.worker.config.GuardTimeout, func(ctx context.Context) (agent.Verdict, error) { return f(ctx, e.Ending) })
	switch {
	case cuttable.Err() != nil:
		return context.Cause(cuttable)
	case errors.Is(err, errTooLong):
		r.planner.GuardFailed(fmt.Errorf("the agent's guard has not answered within %v", r.worker.config.GuardTimeout))
	case err != nil:
		r.planner.GuardFailed(err)
	default:
		r.planner.Judged(verdict)
	}
	return nil
}
