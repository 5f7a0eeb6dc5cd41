package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// traces are what a hook has left behind.
type traces struct {
	ops   []agent.Op
	usage []*statev1.UsageEntry
}

// hook calls a hook of the step, within the time limit; 0 is outside of steps. It sees
// the state and shows readers events by emit. What it has written counts unless it fails, which
// is logged.
func (r *runner) hook(ctx context.Context, name string, step int, state agent.State, emit tool.Emit,
	f func(ctx context.Context, h *agent.HookCall) error,
) (traces, error) {
	host := tool.NewHost(state, r.worker.config.MaxStateBytes, emit)
	h := &agent.HookCall{
		Tenant: r.ref.GetTenant(), SessionID: r.ref.GetSessionId(), RunID: r.ref.GetRunId(), AgentType: r.started.GetAgentType(),
		ParentSessionID: r.session.GetParentSessionId(), UserID: r.session.GetUserId(), Tags: slices.Clone(r.session.GetTags()),
		Metadata: maps.Clone(r.session.GetMetadata()), Turn: int(r.started.GetTurn()), Step: step, Host: host,
	}
	_, err := foreign(ctx, r.worker, r.code(name), r.worker.config.HookTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx, h)
	})
	ops, counted := host.End()
	t := traces{ops: ops}
	if err != nil {
		r.log.WarnContext(ctx, "a hook has failed, which changes nothing", "hook", name, "step", step, "error", err)
		t.ops = nil
	}
	for _, u := range counted {
		t.usage = append(t.usage, customUsage("agent", u.Kind, u.Name, u.Value))
	}
	return t, err
}

// emits shows what a tool or a hook of the step emits.
func (r *runner) emits(step int32) tool.Emit {
	return func(ctx context.Context, event tool.Event) error { return r.emit(ctx, step, event) }
}

// stepHook calls a hook beside the calls of a step, and keeps what it has written for
// the next commit.
func (r *runner) stepHook(ctx context.Context, name string, step int, f func(ctx context.Context, h *agent.HookCall)) {
	t, err := r.hook(ctx, name, step, r.writes.seen(step), r.emits(r.beside(step)), func(ctx context.Context, h *agent.HookCall) error {
		f(ctx, h)
		return nil
	})
	if err == nil {
		r.wrote(ctx, step, t)
	}
}

// beside is the step that the chunks of a hook of the step carry.
func (r *runner) beside(step int) int32 {
	if step == 0 {
		return r.step // between two steps
	}
	return int32(step)
}

// wrote keeps what a hook has written for the next commit, and shows it to the hook that
// sees changes.
func (r *runner) wrote(ctx context.Context, step int, t traces) {
	r.pending = append(r.pending, t.usage...)
	if len(t.ops) == 0 {
		return
	}
	r.writes.hooked(step, t.ops)
	f := r.agent.Hooks.OnStateChange
	if f == nil {
		return
	}
	changed, err := r.hook(ctx, "OnStateChange", step, r.writes.seen(step), r.emits(r.beside(step)), func(ctx context.Context, h *agent.HookCall) error {
		f(ctx, h, t.ops)
		return nil
	})
	if err != nil {
		return
	}
	r.pending = append(r.pending, changed.usage...)
	r.writes.hooked(step, changed.ops)
}

// beforeRun asks the hook whether the run may be taken up, and gives the failure of one
// that may not. What it counts is kept once: of a run with a step or a journal that of a
// former owner is.
func (r *runner) beforeRun(ctx context.Context, journal *loop.Journal) *loop.Failure {
	f := r.agent.Hooks.BeforeRun
	if f == nil {
		return nil
	}
	t, err := r.hook(ctx, "BeforeRun", 0, r.writes.seen(0), r.emits(r.beside(0)), f)
	switch {
	case ctx.Err() != nil:
		return nil // the run is cut, which is not the hook's word
	case crashed(err):
		return &loop.Failure{Error: "Something went wrong on our side.", Detail: "the hook BeforeRun has failed: " + err.Error(), Code: codeRefused}
	case err != nil:
		return &loop.Failure{Error: err.Error(), Detail: "the hook BeforeRun refuses the run: " + err.Error(), Code: codeRefused}
	}
	r.wrote(ctx, 0, t)
	if r.started.GetStepCount() > 0 || journal != nil {
		r.pending = nil
	}
	return nil
}

// entered calls the hooks whose writes are not durable: of the begin of a run that has no
// step yet, and of the reply that a former owner has recorded as a plan, which it shows
// again. The call of the model is not known any more, so BeforeModel is not called again:
// what it has written was recorded with the plan. What the hooks count is in the journal.
func (r *runner) entered(ctx context.Context, journal *loop.Journal) error {
	counted := len(r.pending)
	if r.started.GetStepCount() == 0 {
		r.begun(ctx)
	}
	if journal == nil {
		return nil
	}
	if err := r.showPlan(ctx, journal.Plan); err != nil {
		return err
	}
	if !r.drains(journal.Plan) {
		step, reply := int(r.step)+1, loop.Said(journal.Plan)
		if f := r.agent.Hooks.AfterModel; f != nil {
			r.stepHook(ctx, "AfterModel", step, func(ctx context.Context, h *agent.HookCall) { f(ctx, h, agent.ModelCall{}, reply, nil) })
		}
		r.onMessages(ctx, step, reply)
	}
	r.pending = r.pending[:counted]
	return nil
}

func (r *runner) begun(ctx context.Context) {
	name, f := "OnStart", r.agent.Hooks.OnStart
	if r.goesOn() {
		name, f = "OnResume", r.agent.Hooks.OnResume
	}
	if f != nil {
		r.stepHook(ctx, name, 0, f)
	}
}

// beforeModel calls the hook before a call of the model. What it writes has led to the reply,
// and so has what the hooks around the failed calls of the step have written.
func (r *runner) beforeModel(ctx context.Context, e loop.CallModel) {
	if f := r.agent.Hooks.BeforeModel; f != nil {
		r.stepHook(ctx, "BeforeModel", e.Step, func(ctx context.Context, h *agent.HookCall) { f(ctx, h, modelCall(e)) })
	}
	r.writes.ask()
}

func (r *runner) afterModel(ctx context.Context, e loop.CallModel, reply *loop.Reply, failed error) {
	if f := r.agent.Hooks.AfterModel; f != nil {
		message := agent.Message{Role: agent.RoleAssistant, Parts: reply.Parts()}
		r.stepHook(ctx, "AfterModel", e.Step, func(ctx context.Context, h *agent.HookCall) { f(ctx, h, modelCall(e), message, failed) })
	}
}

func modelCall(e loop.CallModel) agent.ModelCall {
	call := agent.ModelCall{Model: e.Model, Attempt: e.Attempt, System: e.Request.System, Messages: e.Request.Messages}
	for _, t := range e.Request.Tools {
		call.Tools = append(call.Tools, t.Name)
	}
	return call
}

// onMessages shows the hook the messages of the step, each once.
func (r *runner) onMessages(ctx context.Context, step int, messages ...agent.Message) {
	f := r.agent.Hooks.OnMessage
	if f == nil {
		return
	}
	for _, m := range messages {
		id := m.ID
		if results := m.Results(); len(results) > 0 {
			id = results[0].CallID
		}
		if r.once.first(announced, id) {
			r.stepHook(ctx, "OnMessage", step, func(ctx context.Context, h *agent.HookCall) { f(ctx, h, m) })
		}
	}
}

// ended calls the hook of the run's end. The runner waits for it.
func (r *runner) ended(ctx context.Context, o loop.Outcome) {
	f := r.agent.Hooks.AfterRun
	if f == nil {
		return
	}
	end := agent.RunEnd{Status: string(o.Status), Output: slices.Clone(o.Output), Steps: int(r.started.GetStepCount() + r.step - r.session.GetStepCount())}
	if o.Failure != nil {
		end.Error, end.Code = o.Failure.Error, o.Failure.Code
	}
	if at := r.started.GetStartedAt(); at > 0 {
		end.Duration = r.worker.peers.Now().Sub(time.UnixMilli(at))
	}
	state := r.writes.state
	r.after.Go(func() {
		// Its writes and usage have no step to go with.
		_, _ = r.hook(ctx, "AfterRun", 0, state, nil, func(ctx context.Context, h *agent.HookCall) error {
			f(ctx, h, end)
			return nil
		})
	})
}
