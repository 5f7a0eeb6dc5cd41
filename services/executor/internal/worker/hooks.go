package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// hookRunner calls the hooks of an agent. A hook that fails changes nothing, except BeforeRun.
// One goroutine uses it; around and call may be called by many at once.
type hookRunner struct {
	claimed    claimed
	hooks      agent.Hooks
	sandbox    *sandbox
	timeout    time.Duration // of one call
	stateBytes int           // what one call may write to the custom state
	now        func() time.Time
	log        *slog.Logger
	emits      func(step int32) tool.Emit // shows readers the events of a hook of the step
	writes     *writes                    // of hooks beside calls
	usage      *account                   // of hooks beside calls

	announced once           // the messages and results of the step in flight for which OnMessage was called
	after     sync.WaitGroup // of AfterRun
}

// hookEffects is what a hook has written and counted.
type hookEffects struct {
	ops   []agent.Op
	usage []*statev1.UsageEntry
}

// call calls a hook of the step within the time limit; step 0 is outside of steps. The hook
// sees the state, and emit shows readers its events. A failure is logged, and the writes of the
// hook are dropped.
func (h *hookRunner) call(ctx context.Context, name string, step int, state agent.State, emit tool.Emit,
	f func(ctx context.Context, c *agent.HookCall) error,
) (hookEffects, error) {
	host := tool.NewHost(state, h.stateBytes, emit)
	c := h.claimed.hookCall(step, host)
	_, err := foreign(ctx, h.sandbox, h.claimed.code(name), h.timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx, c)
	})
	ops, counted := host.End()
	effects := hookEffects{ops: ops}
	if err != nil {
		h.log.WarnContext(ctx, "a hook has failed, which changes nothing", "hook", name, "step", step, "error", err)
		effects.ops = nil
	}
	for _, u := range counted {
		effects.usage = append(effects.usage, customUsage("agent", u.Kind, u.Name, u.Value))
	}
	return effects, err
}

// unfailing adapts a hook without an error result.
func unfailing(f func(ctx context.Context, c *agent.HookCall)) func(context.Context, *agent.HookCall) error {
	return func(ctx context.Context, c *agent.HookCall) error {
		f(ctx, c)
		return nil
	}
}

// beside calls a hook beside the calls of a step. Its writes wait for the commit.
func (h *hookRunner) beside(ctx context.Context, name string, step int, f func(ctx context.Context, c *agent.HookCall) error) error {
	emit := h.emits(int32(step))
	if step == 0 { // between two steps
		emit = h.emits(h.claimed.session.GetStepCount())
	}
	effects, err := h.call(ctx, name, step, h.writes.seen(step), emit, f)
	if err != nil {
		return err
	}
	h.usage.add(effects.usage...)
	if len(effects.ops) == 0 {
		return nil
	}
	h.writes.hooked(step, effects.ops)
	changed := h.hooks.OnStateChange
	if changed == nil {
		return nil
	}
	more, err := h.call(ctx, "OnStateChange", step, h.writes.seen(step), emit, unfailing(func(ctx context.Context, c *agent.HookCall) { changed(ctx, c, effects.ops) }))
	if err == nil {
		h.usage.add(more.usage...)
		h.writes.hooked(step, more.ops)
	}
	return nil
}

// run calls a hook beside the calls of a step. It cannot fail the run.
func (h *hookRunner) run(ctx context.Context, name string, step int, f func(ctx context.Context, c *agent.HookCall)) {
	_ = h.beside(ctx, name, step, unfailing(f)) // call has logged the error
}

// beforeRun asks the hook whether the run may be taken up. Otherwise it gives the run's failure.
// counted says that a former owner has counted the usage of the hook.
func (h *hookRunner) beforeRun(ctx context.Context, counted bool) *loop.Failure {
	f := h.hooks.BeforeRun
	if f == nil {
		return nil
	}
	mark := h.usage.mark()
	err := h.beside(ctx, "BeforeRun", 0, f)
	switch {
	case ctx.Err() != nil:
		return nil // the hook was cut
	case crashed(err):
		return &loop.Failure{Error: "Something went wrong on our side.", Detail: "the hook BeforeRun has failed: " + err.Error(), Code: codeRefused}
	case err != nil:
		return &loop.Failure{Error: err.Error(), Detail: "the hook BeforeRun refuses the run: " + err.Error(), Code: codeRefused}
	}
	if counted {
		h.usage.forgetSince(mark)
	}
	return nil
}

// begin calls OnStart or OnResume, for a run that has no step yet.
func (h *hookRunner) begin(ctx context.Context) {
	if h.claimed.run.GetStepCount() > 0 {
		return
	}
	name, f := "OnStart", h.hooks.OnStart
	if h.claimed.continues() {
		name, f = "OnResume", h.hooks.OnResume
	}
	if f != nil {
		h.run(ctx, name, 0, f)
	}
}

// recovered calls the hooks behind a reply again, for a plan of a former owner: the journal does
// not have their writes. The call of the model is not known any more. BeforeModel is not called:
// its writes were recorded with the plan.
func (h *hookRunner) recovered(ctx context.Context, step int, plan agent.Message) {
	if h.claimed.drains(step, plan) {
		return
	}
	reply := loop.Said(plan)
	if f := h.hooks.AfterModel; f != nil {
		h.run(ctx, "AfterModel", step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, agent.ModelCall{}, reply, nil) })
	}
	h.onMessages(ctx, step, reply)
}

// beforeModel calls the hook before a call of the model. What it writes has led to the reply,
// and so has what the hooks around the failed calls of the step have written.
func (h *hookRunner) beforeModel(ctx context.Context, e loop.CallModel) {
	if f := h.hooks.BeforeModel; f != nil {
		h.run(ctx, "BeforeModel", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, modelCall(e)) })
	}
	h.writes.ask()
}

// afterModel calls the hook behind a call of the model; failed is nil where it has a reply.
func (h *hookRunner) afterModel(ctx context.Context, e loop.CallModel, reply *loop.Reply, failed error) {
	if f := h.hooks.AfterModel; f != nil {
		message := agent.Message{Role: agent.RoleAssistant, Parts: reply.Parts()}
		h.run(ctx, "AfterModel", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, modelCall(e), message, failed) })
	}
}

func modelCall(e loop.CallModel) agent.ModelCall {
	call := agent.ModelCall{Model: e.Model, Attempt: e.Attempt, System: e.Request.System, Messages: e.Request.Messages}
	for _, t := range e.Request.Tools {
		call.Tools = append(call.Tools, t.Name)
	}
	return call
}

// onMessages shows OnMessage the messages of the step, each once.
func (h *hookRunner) onMessages(ctx context.Context, step int, messages ...agent.Message) {
	f := h.hooks.OnMessage
	if f == nil {
		return
	}
	for _, m := range messages {
		id := m.ID
		if results := m.Results(); len(results) > 0 {
			id = results[0].CallID
		}
		if h.announced.first(id) {
			h.run(ctx, "OnMessage", step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, m) })
		}
	}
}

// afterRun starts the hook of the run's end; wait waits for it. steps counts the committed steps
// of the session. The writes and the usage of the hook are dropped: there is no step for them.
func (h *hookRunner) afterRun(ctx context.Context, o loop.Outcome, steps int32) {
	f := h.hooks.AfterRun
	if f == nil {
		return
	}
	end, state := h.claimed.end(o, steps, h.now()), h.writes.state
	h.after.Go(func() {
		_, _ = h.call(ctx, "AfterRun", 0, state, nil, unfailing(func(ctx context.Context, c *agent.HookCall) { f(ctx, c, end) }))
	})
}

func (h *hookRunner) wait() { h.after.Wait() }
