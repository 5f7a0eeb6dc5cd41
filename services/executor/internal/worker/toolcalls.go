package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// maxStepResults bounds the sum of a step's results in bytes, so that the commit fits into one message with the
// reply.
const maxStepResults = 8 << 20

// outcome is the end of a call.
type outcome struct {
	loop.Ended
	usage    []*eventv1.UsageEntry
	recorded bool // the journal has it, with its usage
}

// fail makes the call a failed one without writes. The model reads problem.
func (o *outcome) fail(problem string) {
	o.Result = agent.ToolResult{CallID: o.Result.CallID, Name: o.Result.Name, Synthetic: true, Error: problem}
	o.Ops, o.Store = nil, nil
	o.Context = nil
	o.Awaits = nil
	for _, u := range o.usage {
		if t := u.GetTool(); t != nil {
			t.Success = false
		}
	}
}

// asRecorded returns the end of the call as the journal has it.
func (o *outcome) asRecorded() loop.Recorded {
	r := loop.Recorded{Result: o.Result, Ops: o.Ops, Context: o.Context}
	if o.Awaits != nil {
		r.Until = o.Awaits.Until
	}
	return r
}

// toolCaller runs the calls of steps: their tools, with the hooks around them. It records and shows the results.
type toolCaller struct {
	worker   *Worker
	claimed  claimedRun
	hooks    *hookRunner
	recorder *recorder
	view     *view
	log      *slog.Logger
	rows     atomic.Int32 // of context, added by the calls of the step in flight
}

// admitRow counts a row of context. TooLarge (CONTEXT_TOO_MANY) if the step has too many.
func (t *toolCaller) admitRow() error {
	if n := t.rows.Add(1); n > agent.MaxContextRows {
		return agent.TooManyContextRows(int(n))
	}
	return nil
}

// callBatch has the concurrent calls of a step.
type callBatch struct {
	loop.RunCalls
	state     agent.State   // at the begin of the calls
	storePlan func() error  // records the plan
	planning  chan struct{} // has a token while a call records the plan
	running   atomic.Int32  // running and pending tools
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

// run runs the calls of a batch, in parallel except for those of companions. It records results, if needed, before it
// shows them. When interruptible ends, running tools are interrupted and other calls do not start.
func (t *toolCaller) run(ctx, interruptible context.Context, e *callBatch) ([]outcome, error) {
	outcomes := make([]outcome, len(e.Calls))
	run := func(ctx, tools context.Context, i int) error {
		return withoutPanics(ctx, t.log, func(ctx context.Context) (err error) {
			outcomes[i], err = t.runCall(ctx, tools, e, e.Calls[i])
			return err
		})
	}
	if len(e.Calls) == 1 {
		return outcomes, run(ctx, interruptible, 0)
	}
	group, grouped := errgroup.WithContext(ctx)
	group.SetLimit(t.worker.config.ParallelCalls)
	tools, endTools := context.WithCancelCause(grouped)
	defer endTools(nil)
	defer context.AfterFunc(interruptible, func() { endTools(context.Cause(interruptible)) })()
	var inOrder []int // calls for companions: their messages arrive in the order of the reply, and a wait finds a new companion
	for i, c := range e.Calls {
		if strings.HasPrefix(c.Name, agent.CompanionPrefix) {
			inOrder = append(inOrder, i)
		}
	}
	group.Go(func() error {
		for _, i := range inOrder {
			if err := run(grouped, tools, i); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range e.Calls {
		if !slices.Contains(inOrder, i) {
			group.Go(func() error { return run(grouped, tools, i) })
		}
	}
	return outcomes, group.Wait()
}

// runCall runs one call, unless an earlier owner has. tools is the context of the tool. A stop also ends it.
func (t *toolCaller) runCall(ctx, tools context.Context, e *callBatch, c loop.Call) (outcome, error) {
	if err := t.view.showDecision(tools, int32(e.Step), c.ID, c.Decision); err != nil {
		return outcome{}, err
	}
	var o outcome
	last := false
	switch {
	case c.Result != nil:
		o.Result, o.Ops, o.recorded = *c.Result, c.Ops, c.Recorded
	case c.Awaits != nil:
		o.Result.CallID, o.Result.Name = c.ID, c.Name
		o.Awaits, o.Ops, o.recorded = c.Awaits, c.Ops, c.Recorded
	case canceledByStop(tools):
		o.Stopped = true
		return o, nil
	case tools.Err() != nil:
		return o, context.Cause(tools) // the run was lost or interrupted before the call started
	default:
		o = t.runTool(tools, e, c)
		last = e.running.Add(-1) == 0
		switch {
		case o.Stopped && canceledByStop(tools):
			return o, nil
		case o.Stopped:
			return o, context.Cause(tools) // the result of an interrupted call is meaningless
		case o.Awaits != nil && o.Awaits.Until == 0:
			return o, nil
		}
	}
	t.worker.peers.Passed(ctx, PointCallEnded)
	if err := t.record(ctx, e, c, &o, last); err != nil {
		return o, err
	}
	err := t.view.showEnd(tools, int32(e.Step), o.Ended)
	if err == nil {
		t.worker.peers.Passed(ctx, PointCallReported)
	}
	return o, err
}

// record records the end of a call if it needs a record. Otherwise the commit carries it. last means that all
// other tools of the batch have ended.
func (t *toolCaller) record(ctx context.Context, e *callBatch, c loop.Call, o *outcome, last bool) error {
	switch {
	case c.Recorded:
		return nil
	case !e.Records(c, o.Ended, last):
		t.recorder.journal.add(o.asRecorded())
		return nil
	}
	if err := t.ensurePlan(ctx, e); err != nil {
		return err
	}
	if err := t.recorder.result(ctx, e.Step, o, c.Decision); err != nil {
		return err
	}
	o.recorded = true
	t.worker.peers.Passed(ctx, PointCallRecorded)
	return nil
}

// ensurePlan records the plan of the step unless it is recorded. Only one call of the batch does so at a time.
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

// runTool runs the tool of a call with the hooks around it. The outcome has the writes of all.
func (t *toolCaller) runTool(ctx context.Context, e *callBatch, c loop.Call) (o outcome) {
	content := t.worker.config.TraceContent
	ctx, span := startToolSpan(ctx, t.worker.peers.Tracer, t.claimed.ref.GetSessionId(), c.ToolCall, content)
	defer func() { endToolSpan(span, o, content) }()
	hooks := &callHooks{runner: t.hooks, step: e.Step, toolCall: c.ToolCall, state: e.state}
	hooks.before(ctx)
	t.worker.peers.Passed(ctx, PointCallBegins)
	begin := t.worker.peers.Now()
	call := t.claimed.toolCall(e.Step, c)
	if c.Tool.LaterWithin > 0 {
		call.Callback = t.claimed.callback(c, t.worker.config.PublicURL, begin)
	}
	ran := t.worker.tools.Execute(ctx, *c.Tool, call, tool.Scope{
		State: hooks.state, ResultBytes: min(t.worker.config.MaxResultBytes, maxStepResults/len(e.Calls)),
		StateSchema: t.hooks.stateSchema, StateBytes: t.worker.config.MaxStateBytes, Store: t.recorder.storeReader(),
		Emit: t.view.emitter(int32(e.Step)), AdmitRow: t.admitRow,
	})
	took := t.worker.peers.Now().Sub(begin)
	o = outcome{Ended: loop.Ended{Result: ran.Result, Stopped: ran.Canceled, Begun: ran.Begun}}
	if ran.Awaits != nil {
		o.Awaits = &loop.Awaited{SessionID: ran.Awaits.SessionID, AgentType: ran.Awaits.AgentType, Until: ran.Awaits.Until}
	}
	t.worker.meters.calledTool(ctx, t.claimed.run.GetAgentType(), c.Name, o, took)
	if o.Awaits != nil && o.Awaits.Until == 0 {
		return o
	}
	o.usage = append(o.usage, toolUsage(c.Name, ran.Result.Success || o.Awaits != nil, took.Milliseconds()))
	for _, u := range ran.Usage {
		o.usage = append(o.usage, customUsage("tool", u.Kind, u.Name, u.Value))
	}
	if !ran.Canceled {
		hooks.after(ctx, ran)
		o.Ops, o.Store = hooks.ops, ran.Store
		o.Context = ran.Context
	}
	o.usage = append(o.usage, hooks.usage...)
	return o
}
