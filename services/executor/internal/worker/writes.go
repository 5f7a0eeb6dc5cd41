package worker

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// writes is the custom state of a run: as the last step has left it, and what the step in
// flight does to it. The states are never changed, but replaced. The runner's goroutine owns
// it, but for what mu guards.
type writes struct {
	kept  agent.State // as the state service has it
	state agent.State // the same, with the defaults of the schema where no step is committed yet
	// defaulted says that the schema has defaults, and the session has no step.
	defaulted bool

	before []agent.Op            // of hooks before the calls of the step, which see them
	calls  map[string][]agent.Op // of the calls that have ended, by id
	hooks  []agent.Op            // of hooks since
	plan   agent.Message         // in the order of whose calls they are merged
	// dropped says that writes of hooks which readers may have heard of do not count.
	dropped bool
	// found is what a former owner has recorded of the step in flight, as long as the
	// calls were not run, or gone through, here.
	found *loop.Journal

	mu   sync.Mutex
	told agent.State // as readers have it
}

// again forgets what the calls of the step have written, and what readers have heard of it:
// what is in the journal counts.
func (w *writes) again(journal *loop.Journal) {
	w.calls, w.plan, w.found = nil, agent.Message{}, journal
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = w.kept
}

// begin makes what hooks have written a part of what the calls of the plan see.
func (w *writes) begin(plan agent.Message) {
	w.plan, w.found = plan, nil
	if w.calls == nil {
		w.before, w.hooks = slices.Concat(w.before, w.hooks), nil
	}
}

// take gives what was recorded of the calls whose ends the messages carry, and that was
// not gone through here: a stop came first. From now on the writes count it.
func (w *writes) take(messages []agent.Message) []loop.Recorded {
	if w.found == nil {
		return nil
	}
	var taken []loop.Recorded
	for _, m := range messages {
		for _, result := range m.Results() {
			i := slices.IndexFunc(w.found.Results, func(r loop.Recorded) bool { return r.Result.CallID == result.CallID })
			if i >= 0 {
				taken = append(taken, w.found.Results[i])
			}
		}
	}
	w.begin(w.found.Plan)
	for _, r := range taken {
		w.ended(loop.Ended{Result: r.Result, Ops: r.Ops})
	}
	return taken
}

// called is what the calls see.
func (w *writes) called() agent.State { return applied(w.state, w.before) }

// withCalls gives the state behind the writes of the calls, in the order of the plan.
func (w *writes) withCalls(state agent.State) agent.State {
	for _, c := range w.plan.Calls() {
		state = applied(state, w.calls[c.ID])
	}
	return state
}

// merged is the state as it is, and as the step leaves it if nothing more is written: what
// the next hook and the planner see.
func (w *writes) merged() agent.State { return applied(w.withCalls(w.called()), w.hooks) }

// changes reports whether the step leaves another state than it has found.
func (w *writes) changes() bool { return w.owns() || len(w.calls) > 0 }

// owns reports whether the commit may have to write something itself.
func (w *writes) owns() bool { return w.defaulted || len(w.before)+len(w.hooks) > 0 }

// own are the writes of the commit itself: what it takes to come from the state that the
// journal's writes make to the one that the step leaves.
func (w *writes) own() []agent.Op {
	if !w.owns() {
		return nil
	}
	return agent.Diff(w.withCalls(w.kept), w.merged())
}

// drop forgets what hooks have written, and reports whether that was anything.
func (w *writes) drop() bool {
	some := len(w.before)+len(w.hooks) > 0
	w.before, w.hooks = nil, nil
	w.dropped = w.dropped || some
	return some
}

// commit makes the state that of the committed step.
func (w *writes) commit() {
	w.state = w.merged()
	w.kept, w.defaulted = w.state, false
	w.before, w.hooks, w.calls, w.plan, w.dropped, w.found = nil, nil, nil, agent.Message{}, false, nil
}

// ended takes what a call has written.
func (w *writes) ended(e loop.Ended) {
	if e.Stopped || len(e.Ops) == 0 {
		return
	}
	if w.calls == nil {
		w.calls = map[string][]agent.Op{}
	}
	w.calls[e.Result.CallID] = e.Ops
}

// applied leaves a state as it is that the writes cannot be applied to: they were
// written by agent.Diff, or taken by the state service, and always can.
func applied(state agent.State, ops []agent.Op) agent.State {
	if len(ops) == 0 {
		return state
	}
	after, err := state.Apply(ops)
	if err != nil {
		return state
	}
	return after
}

// tellWrites tells readers of writes to the custom state, with the end of their call
// behind it, where there is one to tell.
func (r *runner) tellWrites(ctx context.Context, step int32, ops []agent.Op, end *agent.ToolResult) error {
	w := &r.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	patch, err := w.told.Patch(ops)
	if err != nil {
		return err
	}
	w.told = applied(w.told, ops)
	chunks := writesChunks(ops, patch)
	if end != nil {
		chunks = append(chunks, toolEnd(*end))
	}
	return r.tell(ctx, step, chunks...)
}

// tellMerged tells readers of what the step does to the state besides the writes of calls
// that they know of, or in another order.
func (r *runner) tellMerged(ctx context.Context, step int32) error {
	w := &r.writes
	if !w.changes() && !w.dropped {
		return nil
	}
	if ops := agent.Diff(w.told, w.merged()); len(ops) > 0 {
		return r.tellWrites(ctx, step, ops, nil)
	}
	return nil
}
