package worker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// maxStepResults bounds the results of one step together, in bytes, so that its
// commit fits into a message of the RPC layer beside the reply.
const maxStepResults = 8 << 20

// outcome is how a call of a step has ended.
type outcome struct {
	loop.Ended
	usage    []*statev1.UsageEntry
	recorded bool // the journal has it, with its usage
}

// fail makes the call a failed one without writes; problem is for the model.
func (o *outcome) fail(problem string) {
	o.Result = agent.ToolResult{CallID: o.Result.CallID, Name: o.Result.Name, Synthetic: true, Error: problem}
	o.Ops = nil
	for _, u := range o.usage {
		if t := u.GetTool(); t != nil {
			t.Success = false
		}
	}
}

// toolCaller runs the calls of steps: it runs their tools with the hooks around them, has the
// results recorded, and shows them.
type toolCaller struct {
	claimed  claimedRun
	tools    *tool.Runner
	hooks    *hookRunner
	recorder *recorder
	view     *view
	tracer   trace.Tracer
	now      func() time.Time
	log      *slog.Logger
	passed   func(ctx context.Context, p Point)

	parallel                int // calls at once
	resultBytes, stateBytes int // bounds of what one call gives and writes
}

// callBatch is calls of a step that run at the same time.
type callBatch struct {
	loop.RunCalls
	state     agent.State   // what the calls see
	storePlan func() error  // records the plan
	planning  chan struct{} // has room for the one call that records the plan
	running   atomic.Int32  // the tools that have not ended
}

func newCallBatch(e loop.RunCalls, state agent.State, keepPlan func() error) *callBatch {
	b := &callBatch{RunCalls: e, state: state, storePlan: keepPlan, planning: make(chan struct{}, 1)}
	for _, c := range e.Calls {
		if c.Tool != nil {
			b.running.Add(1)
		}
	}
	return b
}

// run runs the calls of a batch. Results that have to be recorded are recorded, then shown. When
// cuttable ends, the running tools are cut and the other calls do not begin.
func (t *toolCaller) run(ctx, cuttable context.Context, e *callBatch) ([]outcome, error) {
	outcomes := make([]outcome, len(e.Calls))
	run := func(ctx, tools context.Context, i int) error {
		return withoutPanics(ctx, t.log, func(ctx context.Context) (err error) {
			outcomes[i], err = t.runCall(ctx, tools, e, e.Calls[i])
			return err
		})
	}
	if len(e.Calls) == 1 {
		return outcomes, run(ctx, cuttable, 0)
	}
	group, grouped := errgroup.WithContext(ctx)
	group.SetLimit(t.parallel)
	tools, endTools := context.WithCancelCause(grouped)
	defer endTools(nil)
	defer context.AfterFunc(cuttable, func() { endTools(context.Cause(cuttable)) })()
	for i := range e.Calls {
		group.Go(func() error { return run(grouped, tools, i) })
	}
	return outcomes, group.Wait()
}

// runCall runs one call, as far as a former owner has not. A stop also ends tools, the context of
// the tool.
func (t *toolCaller) runCall(ctx, tools context.Context, e *callBatch, c loop.Call) (outcome, error) {
	if err := t.view.showDecision(tools, int32(e.Step), c.ID, c.Decision); err != nil {
		return outcome{}, err
	}
	var o outcome
	last := false
	switch {
	case c.Result != nil:
		o.Result, o.Ops, o.recorded = *c.Result, c.Ops, c.Recorded
	case cutByStop(tools):
		o.Stopped = true
		return o, nil
	case tools.Err() != nil:
		return o, context.Cause(tools) // the run was lost or cut before the call began
	default:
		o = t.runTool(tools, e, c)
		last = e.running.Add(-1) == 0
		switch {
		case o.Stopped && cutByStop(tools):
			return o, nil
		case o.Stopped:
			return o, context.Cause(tools) // the result of a call that was cut means nothing
		}
	}
	t.passed(ctx, PointCallEnded)
	if err := t.record(ctx, e, c, &o, last); err != nil {
		return o, err
	}
	err := t.view.showEnd(tools, int32(e.Step), o.Ended)
	if err == nil {
		t.passed(ctx, PointCallTold)
	}
	return o, err
}

// record has the end of a call recorded if it has to be; otherwise the commit makes it durable. last
// says that all other tools of the batch have ended.
func (t *toolCaller) record(ctx context.Context, e *callBatch, c loop.Call, o *outcome, last bool) error {
	switch {
	case c.Recorded:
		return nil
	case !e.Records(c, o.Ended, last):
		t.recorder.journal.add(loop.Recorded{Result: o.Result, Ops: o.Ops})
		return nil
	}
	if err := t.ensurePlan(ctx, e); err != nil {
		return err
	}
	if err := t.recorder.result(ctx, e.Step, o, c.Decision); err != nil {
		return err
	}
	o.recorded = true
	t.passed(ctx, PointCallRecorded)
	return nil
}

// ensurePlan has the plan of the step recorded, where it is not. Calls of the batch wait for each other.
func (t *toolCaller) ensurePlan(ctx context.Context, e *callBatch) error {
	select {
	case e.planning <- struct{}{}:
		defer func() { <-e.planning }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if t.recorder.journal.hasPlan() {
		return nil
	}
	return e.storePlan()
}

// runTool runs the tool of a call with the hooks around it. The result carries their writes.
func (t *toolCaller) runTool(ctx context.Context, e *callBatch, c loop.Call) outcome {
	ctx, span := t.tracer.Start(ctx, "holdfast.tool", trace.WithAttributes(
		attribute.String("tool.name", c.Name), attribute.String("tool.call_id", c.ID),
	))
	defer span.End()
	hooks := &callHooks{hooks: t.hooks, step: e.Step, toolCall: c.ToolCall, state: e.state}
	hooks.before(ctx)
	t.passed(ctx, PointCallBegins)
	begin := t.now()
	ran := t.tools.Execute(ctx, *c.Tool, t.claimed.toolCall(e.Step, c), tool.Scope{
		State: hooks.state, ResultBytes: min(t.resultBytes, maxStepResults/len(e.Calls)),
		StateBytes: t.stateBytes, Emit: t.view.emitter(int32(e.Step)),
	})
	o := outcome{Ended: loop.Ended{Result: ran.Result, Stopped: ran.Cut, Begun: ran.Begun}}
	o.usage = append(o.usage, toolUsage(c.Name, ran.Result.Success, t.now().Sub(begin).Milliseconds()))
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
