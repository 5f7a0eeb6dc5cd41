package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// maxStepResults bounds the results of one step together, in bytes, so that its
// commit fits into a message of the RPC layer beside the reply.
const maxStepResults = 8 << 20

// Reasons for which the state service keeps no result, and the call fails instead.
const (
	reasonResultTooLarge    = "RESULT_TOO_LARGE"
	reasonStateSizeExceeded = "STATE_SIZE_EXCEEDED"
	reasonStateInvalid      = "STATE_INVALID"
)

// outcome is how a call of a step has ended.
type outcome struct {
	loop.Ended
	usage    []*statev1.UsageEntry
	recorded bool // the journal has it, with its usage
}

// runCalls runs the calls of a step at the same time. Each result is recorded, then
// shown. A stop cuts those whose tools run, and keeps the others from beginning.
func (r *runner) runCalls(ctx context.Context, e loop.RunCalls) error {
	cuttable, end := r.halt.within(ctx)
	defer end()
	if !e.Drain {
		r.onMessages(cuttable, e.Step, e.Plan)
	}
	r.writes.begin(e.Plan)
	outcomes := make([]outcome, len(e.Calls))
	group, grouped := errgroup.WithContext(ctx)
	group.SetLimit(r.worker.config.ParallelCalls)
	tools, endTools := context.WithCancelCause(grouped)
	defer endTools(nil)
	defer context.AfterFunc(cuttable, func() { endTools(context.Cause(cuttable)) })()
	for i, c := range e.Calls {
		group.Go(func() error {
			return r.guard(grouped, func(ctx context.Context) (err error) {
				outcomes[i], err = r.runCall(ctx, tools, e, c)
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	results := make([]loop.Ended, len(outcomes))
	for i, o := range outcomes {
		results[i] = o.Ended
		if !o.recorded {
			r.pending = append(r.pending, o.usage...)
		}
		r.writes.ended(o.Ended)
	}
	r.worker.passed(ctx, PointCallsEnded)
	r.planner.Ended(results)
	return nil
}

// runCall runs one call as far as a former owner has not. tools is the context of
// tools, which a stop ends as well. It uses of the runner what does not change while
// calls run.
func (r *runner) runCall(ctx, tools context.Context, e loop.RunCalls, c loop.Call) (outcome, error) {
	if err := r.showDecision(tools, int32(e.Step), c.ID, c.Decision); err != nil {
		return outcome{}, err
	}
	var o outcome
	switch {
	case c.Result != nil:
		o.Result, o.Ops, o.recorded = *c.Result, c.Ops, c.Recorded
	case cutByStop(tools):
		o.Stopped = true
		return o, nil
	case tools.Err() != nil:
		return o, context.Cause(tools) // the run was lost or cut before the call began
	default:
		o = r.runTool(tools, e, c)
		switch {
		case o.Stopped && cutByStop(tools):
			return o, nil
		case o.Stopped:
			return o, context.Cause(tools) // cut: how it ended means nothing
		}
	}
	r.worker.passed(ctx, PointCallEnded)
	if e.Planned && !c.Recorded {
		if err := r.recordResult(ctx, e.Step, &o, c.Decision); err != nil {
			return o, err
		}
		o.recorded = true
		r.worker.passed(ctx, PointCallRecorded)
	}
	err := r.showEnd(tools, int32(e.Step), o.Ended)
	if err == nil {
		r.worker.passed(ctx, PointCallTold)
	}
	return o, err
}

// showDecision shows how the approval of a call was decided, once; nothing where it was
// not.
func (r *runner) showDecision(ctx context.Context, step int32, callID string, d *loop.Decision) error {
	if d == nil || !r.once.first(decided, callID) {
		return nil
	}
	return r.show(ctx, step, approvalResponse(callID, *d))
}

// showEnd shows how a call has ended, and what it has written before, once.
func (r *runner) showEnd(ctx context.Context, step int32, e loop.Ended) error {
	if !r.once.first(ended, e.Result.CallID) {
		return nil
	}
	return r.showWrites(ctx, step, e.Ops, &e.Result)
}

// runTool runs the tool of a call with the hooks around it. What they write goes with
// the result.
func (r *runner) runTool(ctx context.Context, e loop.RunCalls, c loop.Call) outcome {
	ctx, span := r.worker.peers.Tracer.Start(ctx, "holdfast.tool", trace.WithAttributes(
		attribute.String("tool.name", c.Name), attribute.String("tool.call_id", c.ID),
	))
	defer span.End()
	hooks := &callHooks{runner: r, step: e.Step, call: c.ToolCall, state: r.writes.called()}
	hooks.before(ctx)
	r.worker.passed(ctx, PointCallBegins)
	begin := r.worker.peers.Now()
	ran := r.worker.tools.Execute(ctx, *c.Tool, r.agentCall(e, c), tool.Scope{
		State: hooks.state, ResultBytes: min(r.worker.config.MaxResultBytes, maxStepResults/len(e.Calls)),
		StateBytes: r.worker.config.MaxStateBytes, Emit: r.emits(int32(e.Step)),
	})
	o := outcome{Ended: loop.Ended{Result: ran.Result, Stopped: ran.Cut, Begun: ran.Begun}}
	o.usage = append(o.usage, toolUsage(c.Name, ran.Result.Success, r.worker.peers.Now().Sub(begin).Milliseconds()))
	for _, u := range ran.Usage {
		o.usage = append(o.usage, customUsage("tool", u.Kind, u.Name, u.Value))
	}
	if !ran.Cut {
		hooks.after(ctx, ran)
		o.Ops = hooks.ops
	}
	o.usage = append(o.usage, hooks.usage...)
	span.SetAttributes(attribute.Bool("success", ran.Result.Success))
	return o
}

// agentCall is the call as its tool sees it.
func (r *runner) agentCall(e loop.RunCalls, c loop.Call) *agent.Call {
	return &agent.Call{
		ID: c.ID, Tool: c.Name, IdempotencyKey: c.Key, Tenant: r.ref.GetTenant(), SessionID: r.ref.GetSessionId(),
		RunID: r.ref.GetRunId(), AgentType: r.started.GetAgentType(), UserID: r.session.GetUserId(),
		Tags: slices.Clone(r.session.GetTags()), Metadata: maps.Clone(r.session.GetMetadata()), Step: e.Step, Input: c.Arguments,
	}
}

// recordResult makes the result durable. One that the state service cannot keep, or
// whose writes it cannot, becomes a failed one.
func (r *runner) recordResult(ctx context.Context, step int, o *outcome, decided *loop.Decision) error {
	record := func() error {
		result := fromResult(o.Result)
		result.Approval = fromDecision(decided)
		_, err := call(ctx, r, func(ctx context.Context) (*statev1.RecordResultResponse, error) {
			return r.worker.peers.Work.RecordResult(ctx, &statev1.RecordResultRequest{
				Run: r.ref, Step: int32(step),
				Result: &statev1.CallResult{Result: result, Ops: fromOps(o.Ops), Usage: o.usage},
			})
		})
		return err
	}
	err := record()
	if problem := unkept(err, *o); problem != "" {
		o.Result = agent.ToolResult{CallID: o.Result.CallID, Name: o.Result.Name, Synthetic: true, Error: problem}
		o.Ops = nil
		for _, u := range o.usage {
			if t := u.GetTool(); t != nil {
				t.Success = false
			}
		}
		err = record()
	}
	if err != nil {
		return fmt.Errorf("record the result of call %s: %w", o.Result.CallID, err)
	}
	r.kept.record(loop.Recorded{Result: o.Result, Ops: o.Ops})
	return nil
}

// unkept says why the state service keeps no such result, for the model; empty where it
// does, or where the reason is not in the result.
func unkept(err error, o outcome) string {
	f, ok := fault.From(err)
	if !ok {
		return ""
	}
	switch {
	case f.Reason == reasonStateSizeExceeded:
		return "state_size_exceeded: what the tool writes to the state is more than can be kept (" + f.Detail + "); nothing of it was written"
	case f.Reason == reasonStateInvalid:
		return "what the tool writes to the state cannot be kept (" + f.Detail + "); nothing of it was written"
	case f.Reason == reasonResultTooLarge || f.Kind == fault.TooLarge:
		return fmt.Sprintf("result_too_large: the tool's result has %d bytes, more than can be kept; ask for less", len(o.Result.Result))
	}
	return ""
}

// callHooks are the hooks around one call, one after another. What they write comes with
// the writes of the call, in the order of their calls.
type callHooks struct {
	runner *runner
	step   int
	call   agent.ToolCall
	state  agent.State // with what was written so far
	ops    []agent.Op
	usage  []*statev1.UsageEntry
}

// one calls a hook.
func (h *callHooks) one(ctx context.Context, name string, f func(ctx context.Context, c *agent.HookCall)) {
	r := h.runner
	t, err := r.hook(ctx, name, h.step, h.state, r.emits(int32(h.step)), func(ctx context.Context, c *agent.HookCall) error {
		f(ctx, c)
		return nil
	})
	h.usage = append(h.usage, t.usage...)
	if err == nil {
		h.write(t.ops)
	}
}

func (h *callHooks) write(ops []agent.Op) {
	h.ops = append(h.ops, ops...)
	h.state = applied(h.state, ops)
}

func (h *callHooks) before(ctx context.Context) {
	if f := h.runner.agent.Hooks.BeforeTool; f != nil {
		h.one(ctx, "BeforeTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.call) })
	}
}

// after calls the hooks behind the tool, in the order of the specification.
func (h *callHooks) after(ctx context.Context, ran tool.Outcome) {
	hooks := h.runner.agent.Hooks
	h.write(ran.Ops)
	if f := hooks.OnStateChange; f != nil && len(h.ops) > 0 {
		written := slices.Clone(h.ops)
		h.one(ctx, "OnStateChange", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, written) })
	}
	if f := hooks.OnMessage; f != nil && h.runner.once.first(announced, h.call.ID) {
		message := agent.Message{Role: agent.RoleTool, Parts: []agent.Part{ran.Result}}
		h.one(ctx, "OnMessage", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, message) })
	}
	if f := hooks.AfterTool; f != nil {
		h.one(ctx, "AfterTool", func(ctx context.Context, c *agent.HookCall) { f(ctx, c, h.call, ran.Result) })
	}
}
