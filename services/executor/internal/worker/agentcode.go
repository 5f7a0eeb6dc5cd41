package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// modelFailure is an error of a model. Other errors come from the run or the stream.
type modelFailure struct{ err error }

func (e modelFailure) Error() string { return e.err.Error() }

// agentCode calls the models and functions of one agent, with time limits.
type agentCode struct {
	worker   *Worker
	claimed  claimedRun
	agent    catalog.Agent
	draining <-chan struct{} // closed when the executor stops
	log      *slog.Logger
}

// modelRequest is one model call.
type modelRequest struct {
	step, attempt int
	model         string // provider/name
	request       model.Request
	reply         *loop.Reply               // receives the events
	each          func([]model.Event) error // called with the events accepted by the reply; may be nil
}

// generate makes one model call. After a modelFailure the planner decides how to continue. After any other error
// the run cannot continue here. The time limit begins when the limits of the provider allow the call.
func (a *agentCode) generate(ctx context.Context, c modelRequest) (err error) {
	content := a.worker.config.TraceContent
	ctx, span := startModelSpan(ctx, a.worker.peers.Tracer, a.claimed.ref.GetSessionId(), c, content)
	defer func() { endModelSpan(span, c.reply, content, err) }()

	engine, err := a.agent.FindModel(c.model)
	if err != nil {
		return err
	}
	lease, err := a.worker.govern.acquire(ctx, a.log, c.model, a.agent.Governors[c.model], c.request, a.draining)
	if err != nil {
		return err
	}
	defer func() { lease.end(ctx, c.reply.Usage(), err) }()
	messages, release, err := a.worker.files.load(ctx, a.claimed.ref, c.request.Messages)
	if _, unusable := errors.AsType[*model.Error](err); unusable || err != nil && ctx.Err() != nil {
		return a.classify(ctx, ctx, err)
	}
	if err != nil {
		return err
	}
	defer release()
	c.request.Messages = messages
	limited, cancel := context.WithTimeout(ctx, a.worker.config.ModelTimeout) // loading files may wait for other model calls
	defer cancel()
	failed := func(err error) error { return a.classify(ctx, limited, err) }
	call := a.worker.meters.callModel(c.model, a.worker.peers.Now)
	defer func() { call.end(ctx, c.reply.Usage(), err) }()
	first := true
	err = a.worker.sandbox.receiveReply(limited, c.model, engine, c.request, func(event model.Event, err error) error {
		if err != nil {
			return failed(err)
		}
		if first {
			first = false
			call.received(limited)
			a.worker.peers.Passed(limited, PointModelCalled)
		}
		events, err := c.reply.Add(event)
		if err != nil {
			return modelFailure{err}
		}
		if c.each == nil {
			return nil
		}
		return c.each(events)
	})
	switch {
	case errors.Is(err, errTooLong):
		return failed(err)
	case err != nil:
		return err
	case !c.reply.IsComplete():
		return failed(&model.Error{Code: model.CodeInvalidResponse, Retryable: true, Message: "the reply stopped before its end"})
	}
	return nil
}

// classify returns the cause of a failed call: the end of the run, the time limit, or the model.
func (a *agentCode) classify(parent, limited context.Context, err error) error {
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case limited.Err() != nil:
		// Not retryable: a user would wait for the full limit a second time, at the same model. Its fallback is asked.
		return modelFailure{&model.Error{
			Code: model.CodeTimeout, Err: err,
			Message: fmt.Sprintf("the reply was not complete within %v", a.worker.config.ModelTimeout),
		}}
	}
	return modelFailure{err}
}

// summarize calls the agent's own summary function, or else its model. reply receives the model's reply, also if
// the call fails.
func (a *agentCode) summarize(ctx context.Context, e loop.Compact, reply *loop.Reply) (string, error) {
	if f := a.agent.Context.Compact; f != nil {
		return callReachable(ctx, a.worker.sandbox, a.claimed.codeName("Compact"), a.worker.config.ModelTimeout,
			func(ctx context.Context) (string, error) { return f(ctx, &e.Run, e.Older) })
	}
	if err := a.generate(ctx, modelRequest{step: e.Step, attempt: 1, model: e.Model, request: e.Request, reply: reply}); err != nil {
		return "", err
	}
	if reply.FinishReason() == model.FinishError {
		return "", errors.New("the provider ended the summary with an error")
	}
	return agent.Message{Parts: reply.Parts()}.Text(), nil
}

// guard asks the agent's guard for a verdict about the end of the run.
func (a *agentCode) guard(ctx context.Context, e loop.Guard) (agent.Verdict, error) {
	f := a.agent.Guard.OnOutput
	if e.Reply {
		f = a.agent.Guard.OnReply
	}
	limit := a.worker.config.GuardTimeout
	verdict, err := callReachable(ctx, a.worker.sandbox, a.claimed.codeName("the guard"), limit,
		func(ctx context.Context) (agent.Verdict, error) { return f(ctx, e.Ending) })
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("the agent's guard has not answered within %v", limit)
	}
	return verdict, err
}

// function calls a function of the agent for the planner, with the time limit of hooks. It is the worker's
// loop.Start.CallFunction: if ctx has ended, it returns loop.ErrAbandoned. It logs other errors.
func (a *agentCode) function(ctx context.Context, what string, f func(ctx context.Context) (any, error)) (any, error) {
	if ctx.Err() != nil {
		return nil, loop.ErrAbandoned
	}
	limit := a.worker.config.HookTimeout
	answer, err := callReachable(ctx, a.worker.sandbox, a.claimed.codeName(what), limit, f)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return nil, loop.ErrAbandoned
	case errors.Is(err, errTooLong):
		err = fmt.Errorf("it did not return within %v", limit)
	}
	a.log.WarnContext(ctx, "a function of the agent has failed", "function", what, "error", err)
	return nil, err
}
