package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// hookRunner calls the hooks of an agent. A failing hook changes nothing, except BeforeRun. One goroutine uses
// it; many may use call at once.
type hookRunner struct {
	worker      *Worker
	claimed     claimedRun
	hooks       agent.Hooks
	context     func(ctx context.Context, h *agent.HookCall, v agent.StepView) ([]agent.ContextRow, error)
	stateSchema *agent.Schema // nil if any state fits
	log         *slog.Logger
	emitter     func(step int32) tool.Emit // shows readers the events of a hook in a step
	state       *stateWrites               // of hooks outside of tool calls
	usage       *account                   // of hooks outside of tool calls

	messaged idSet          // OnMessage's messages and calls of the step
	running  sync.WaitGroup // AfterRun
}

// hookEffects has the writes and the usage of a hook.
type hookEffects struct {
	ops   []agent.Op
	usage []*eventv1.UsageEntry
}

// call calls a hook of a step within the time limit. Step 0 is outside of steps. The hook sees state, and emit
// shows readers its events. It logs a failure and drops the hook's writes.
func (h *hookRunner) call(ctx context.Context, name string, step int, state agent.State, emit tool.Emit,
	f func(ctx context.Context, c *agent.HookCall) error,
) (hookEffects, error) {
	host := tool.NewHost(state, h.stateSchema, h.worker.config.MaxStateBytes, emit)
	host.Trace = hookSpan{trace.SpanFromContext(ctx)}
	ref, session, run := h.claimed.ref, h.claimed.session, h.claimed.run
	c := &agent.HookCall{
		Tenant: ref.GetTenant(), SessionID: ref.GetSessionId(), RunID: ref.GetRunId(), AgentType: run.GetAgentType(),
		ParentSessionID: session.GetParentSessionId(), UserID: session.GetUserId(), Tags: slices.Clone(session.GetTags()),
		Metadata: maps.Clone(session.GetMetadata()), Turn: int(run.GetTurn()), Step: step, Host: host,
	}
	_, err := callReachable(ctx, h.worker.sandbox, h.claimed.codeName(name), h.worker.config.HookTimeout,
		func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx, c) })
	ops, counted := host.End()
	effects := hookEffects{ops: ops}
	if err != nil {
		h.log.WarnContext(ctx, "a hook has failed; its writes are dropped", "hook", name, "step", step, "error", err)
		effects.ops = nil
	}
	for _, u := range counted {
		effects.usage = append(effects.usage, customUsage("agent", u.Kind, u.Name, u.Value))
	}
	return effects, err
}

// neverFails adapts a hook without an error result.
func neverFails(f func(ctx context.Context, c *agent.HookCall)) func(context.Context, *agent.HookCall) error {
	return func(ctx context.Context, c *agent.HookCall) error {
		f(ctx, c)
		return nil
	}
}

// callForStep calls a hook outside of tool calls, and OnStateChange if it has written. Step 0 is the begin of the run,
// where hooks do not see the recorded writes of an earlier owner.
func (h *hookRunner) callForStep(ctx context.Context, name string, step int, f func(ctx context.Context, c *agent.HookCall) error) error {
	begin := step == 0
	emit := h.emitter(int32(step))
	seen := h.state.merged
	if begin {
		emit = h.emitter(h.claimed.session.GetStepCount())
		seen = func() agent.State { return h.state.through(atBegin) }
	}
	effects, err := h.call(ctx, name, step, seen(), emit, f)
	if err != nil {
		return err
	}
	h.usage.add(effects.usage...)
	h.state.add(begin, effects.ops)
	changed := h.hooks.OnStateChange
	if changed == nil || len(effects.ops) == 0 {
		return nil
	}
	more, err := h.call(ctx, "OnStateChange", step, seen(), emit, neverFails(func(ctx context.Context, c *agent.HookCall) {
		changed(ctx, c, effects.ops)
	}))
	if err == nil {
		h.usage.add(more.usage...)
		h.state.add(begin, more.ops)
	}
	return nil
}

// notify calls a hook outside of tool calls. It cannot fail the run.
func (h *hookRunner) notify(ctx context.Context, name string, step int, f func(ctx context.Context, c *agent.HookCall)) {
	_ = h.callForStep(ctx, name, step, neverFails(f)) // call has logged the error
}

// beforeRun calls BeforeRun. It returns the run's failure if the hook refuses the run. counted means that an earlier
// owner has counted the hook's usage.
func (h *hookRunner) beforeRun(ctx context.Context, counted bool) *loop.Failure {
	f := h.hooks.BeforeRun
	if f == nil {
		return nil
	}
	mark := h.usage.mark()
	err := h.callForStep(ctx, "BeforeRun", 0, f)
	switch {
	case ctx.Err() != nil:
		return nil // a stop has interrupted the hook
	case isCrash(err):
		detail := "the hook BeforeRun has failed: " + err.Error()
		return &loop.Failure{Error: "Something went wrong on our side.", Detail: detail, Code: codeRefused}
	case err != nil:
		shown := cmp.Or(agent.PublicText(err), err.Error())
		return &loop.Failure{Error: shown, Detail: "the hook BeforeRun refuses the run: " + err.Error(), Code: codeRefused}
	}
	if counted {
		h.usage.dropSince(mark)
	}
	return nil
}

// onBegin calls OnStart or OnResume of a run without a committed step.
func (h *hookRunner) onBegin(ctx context.Context) {
	if h.claimed.run.GetStepCount() > 0 {
		return
	}
	name, f := "OnStart", h.hooks.OnStart
	if h.claimed.continues() {
		name, f = "OnResume", h.hooks.OnResume
	}
	if f != nil {
		h.notify(ctx, name, 0, f)
	}
}

// onRecovered calls the hooks after a reply for the plan of an earlier owner: the journal does not have their
// writes. The arguments of the model call are unknown. It does not call BeforeModel, whose writes were recorded
// with the plan.
func (h *hookRunner) onRecovered(ctx context.Context, step int, plan agent.Message) {
	if h.claimed.isAnswering(step, plan.ID) {
		return
	}
	reply := loop.ConversationMessage(plan)
	if f := h.hooks.AfterModel; f != nil {
		h.notify(ctx, "AfterModel", step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, agent.ModelCall{}, reply, nil) })
	}
	h.onMessages(ctx, step, reply)
}

// beforeModel calls BeforeModel. Its writes precede the reply, as do the writes of the hooks around the failed
// model calls of the step.
func (h *hookRunner) beforeModel(ctx context.Context, e loop.CallModel) {
	if f := h.hooks.BeforeModel; f != nil {
		h.notify(ctx, "BeforeModel", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, modelCall(e)) })
	}
	h.state.callModel()
}

// stepContext calls the agent's StepContext. Its error is that of the function, or the fault of a row.
func (h *hookRunner) stepContext(ctx context.Context, e loop.StepContext) (rows []agent.ContextRow, err error) {
	answers := make(chan []agent.ContextRow, 1) // a function that was abandoned may answer later
	err = h.callForStep(ctx, "StepContext", e.Step, func(ctx context.Context, c *agent.HookCall) error {
		given, err := h.context(ctx, c, e.View)
		if err == nil {
			err = agent.CheckContext(given)
		}
		if err == nil {
			answers <- given
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-answers, nil
}

// afterModel calls AfterModel. failed is the error of the model call; nil if there is a reply.
func (h *hookRunner) afterModel(ctx context.Context, e loop.CallModel, reply *loop.Reply, failed error) {
	if f := h.hooks.AfterModel; f != nil {
		message := agent.Message{Role: agent.RoleAssistant, Parts: reply.Parts()}
		h.notify(ctx, "AfterModel", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, modelCall(e), message, failed) })
	}
}

func modelCall(e loop.CallModel) agent.ModelCall {
	call := agent.ModelCall{Model: e.Model, Attempt: e.Attempt, System: e.Request.System, Messages: e.Request.Messages}
	for _, t := range e.Request.Tools {
		call.Tools = append(call.Tools, t.Name)
	}
	return call
}

// onMessages calls OnMessage with the messages of the step, once each.
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
		if h.messaged.add(id) {
			h.notify(ctx, "OnMessage", step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, m) })
		}
	}
}

// aroundSubAgents calls AfterSubAgent with the answers that the step takes in, and BeforeSubAgent for the calls that it leaves open
// for sub-agents.
func (h *hookRunner) aroundSubAgents(ctx context.Context, e loop.Commit, asked subAgentCalls) {
	if f := h.hooks.AfterSubAgent; f != nil {
		for _, m := range e.Messages {
			for _, result := range m.Results() {
				call := asked[result.CallID]
				if call == nil {
					continue
				}
				answered := agent.SubAgentCall{
					ToolCall:  agent.ToolCall{ID: call.GetToolCallId(), Name: call.GetToolName(), Arguments: json.RawMessage(call.GetInput())},
					AgentType: subAgentType(call), SessionID: cmp.Or(call.GetAnswer().GetChild().GetSessionId(), call.GetSubSessionId()),
				}
				h.notify(ctx, "AfterSubAgent", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, answered, result) })
			}
		}
	}
	if f := h.hooks.BeforeSubAgent; f != nil {
		for _, open := range e.Suspend {
			if open.SubAgent != "" {
				call := agent.SubAgentCall{ToolCall: open.ToolCall, AgentType: open.SubAgent, SessionID: open.SessionID}
				h.notify(ctx, "BeforeSubAgent", e.Step, func(ctx context.Context, c *agent.HookCall) { f(ctx, c, call) })
			}
		}
	}
}

// afterRun starts AfterRun; wait waits for it. steps counts the committed steps of the session. The hook's
// writes and usage are dropped, since no step follows. The run has ended, so the end of ctx does not interrupt the hook: its
// time limit does.
func (h *hookRunner) afterRun(ctx context.Context, o loop.Outcome, steps int32) {
	f := h.hooks.AfterRun
	if f == nil {
		return
	}
	run := h.claimed.run
	end := agent.RunEnd{
		Status: string(o.Status), Output: slices.Clone(o.Output),
		Steps: int(run.GetStepCount() + steps - h.claimed.session.GetStepCount()),
	}
	if o.Failure != nil {
		end.Error = o.Failure.Error
		end.Code = o.Failure.Code
	}
	if at := run.GetStartedAt(); at > 0 {
		end.Duration = h.claimed.stateTime(h.worker.peers.Now()).Sub(time.UnixMilli(at))
	}
	state := h.state.state
	ctx = context.WithoutCancel(ctx)
	h.running.Go(func() {
		_, _ = h.call(ctx, "AfterRun", 0, state, nil, neverFails(func(ctx context.Context, c *agent.HookCall) { f(ctx, c, end) }))
	})
}

func (h *hookRunner) wait() { h.running.Wait() }

// callHooks calls the hooks around one call, one at a time. Their writes become durable with those of the call, in
// the order of the hooks.
type callHooks struct {
	runner   *hookRunner
	step     int
	toolCall agent.ToolCall
	state    agent.State // with the writes so far
	ops      []agent.Op
	usage    []*eventv1.UsageEntry
}

func (h *callHooks) call(ctx context.Context, name string, f func(ctx context.Context, c *agent.HookCall)) {
	effects, err := h.runner.call(ctx, name, h.step, h.state, h.runner.emitter(int32(h.step)), neverFails(f))
	h.usage = append(h.usage, effects.usage...)
	if err == nil {
		h.add(effects.ops)
	}
}

func (h *callHooks) add(ops []agent.Op) {
	h.ops = append(h.ops, ops...)
	h.state = applied(h.state, ops)
}

func (h *callHooks) before(ctx context.Context) {
	if f := h.runner.hooks.BeforeTool; f != nil {
		h.call(ctx, "BeforeTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.toolCall) })
	}
}

// after calls the hooks after the tool, in the order of the specification. Those of the result are not called if the call
// has none yet.
func (h *callHooks) after(ctx context.Context, ran tool.Outcome) {
	hooks := h.runner.hooks
	h.add(ran.Ops)
	if f := hooks.OnStateChange; f != nil && len(h.ops) > 0 {
		written := slices.Clone(h.ops)
		h.call(ctx, "OnStateChange", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, written) })
	}
	if ran.Awaits != nil {
		return
	}
	if f := hooks.OnMessage; f != nil && h.runner.messaged.add(h.toolCall.ID) {
		message := agent.Message{Role: agent.RoleTool, Parts: []agent.Part{ran.Result}}
		h.call(ctx, "OnMessage", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, message) })
	}
	if f := hooks.AfterTool; f != nil {
		h.call(ctx, "AfterTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.toolCall, ran.Result) })
	}
}
