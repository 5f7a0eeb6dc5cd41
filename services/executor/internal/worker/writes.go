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

	entry   []agent.Op            // of the hooks of the run's begin, which each owner of a first step calls
	asked   []agent.Op            // of the hooks that have led to the reply, which nobody calls again for a recorded one
	before  []agent.Op            // of hooks that have seen the reply, before the calls of the step, which see them
	calls   map[string][]agent.Op // of the calls that have ended, by id
	hooks   []agent.Op            // of hooks since
	plan    agent.Message         // in the order of whose calls they are merged
	planned bool                  // the journal has asked, beside the plan
	// dropped says that writes of hooks which readers may have seen do not count.
	dropped bool
	// found is what a former owner has recorded of the step in flight, as long as the
	// calls were not run, or gone through, here.
	found *loop.Journal

	mu    sync.Mutex
	shown agent.State // as readers have it
}

// again forgets what the calls of the step have written, and what readers have seen of it:
// what is in the journal counts.
func (w *writes) again(journal *loop.Journal) {
	w.calls, w.plan, w.found = nil, agent.Message{}, journal
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown = w.kept
}

// ask makes what hooks have written in the step so far a part of what has led to its reply.
func (w *writes) ask() { w.asked, w.hooks = slices.Concat(w.asked, w.hooks), nil }

// ofPlan are the writes that the plan is recorded with.
func (w *writes) ofPlan() []agent.Op {
	if len(w.asked) == 0 {
		return nil
	}
	return agent.Diff(w.entered(), applied(w.entered(), w.asked))
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

// entered is what the hooks of the run's begin see.
func (w *writes) entered() agent.State { return applied(w.state, w.entry) }

// called is what the calls see.
func (w *writes) called() agent.State { return applied(applied(w.entered(), w.asked), w.before) }

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

// seen is what a hook beside calls sees: of the step, or with 0 one of the run's begin, which
// comes before whatever a former owner has recorded.
func (w *writes) seen(step int) agent.State {
	if step == 0 {
		return w.entered()
	}
	return w.merged()
}

// hooked takes what a hook beside calls has written.
func (w *writes) hooked(step int, ops []agent.Op) {
	if step == 0 {
		w.entry = append(w.entry, ops...)
		return
	}
	w.hooks = append(w.hooks, ops...)
}

// ofHooks is how many writes of hooks beside calls there are.
func (w *writes) ofHooks() int { return len(w.entry) + len(w.asked) + len(w.before) + len(w.hooks) }

// changes reports whether the step leaves another state than it has found.
func (w *writes) changes() bool { return w.owns() || len(w.calls) > 0 }

// owns reports whether the commit may have to write something itself.
func (w *writes) owns() bool { return w.defaulted || w.ofHooks() > 0 }

// own are the writes of the commit itself: what it takes to come from the state that the
// writes of the recorded calls make to the one that the step leaves. So they do what those of
// the recorded plan are to do.
func (w *writes) own() []agent.Op {
	if !w.owns() {
		return nil
	}
	return agent.Diff(w.withCalls(w.kept), w.merged())
}

// drop forgets what hooks have written, and reports whether that was anything.
func (w *writes) drop() bool {
	some := w.ofHooks() > 0
	w.entry, w.asked, w.before, w.hooks = nil, nil, nil, nil
	w.dropped = w.dropped || some
	return some
}

// cut forgets what hooks have written and the journal does not have.
func (w *writes) cut() {
	asked := w.asked
	if w.drop(); w.planned {
		w.asked = asked
	}
}

// commit makes the state that of the committed step.
func (w *writes) commit() {
	w.state = w.merged()
	w.kept, w.defaulted = w.state, false
	w.entry, w.asked, w.before, w.hooks, w.calls = nil, nil, nil, nil, nil
	w.plan, w.planned, w.dropped, w.found = agent.Message{}, false, false, nil
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

// showWrites shows readers writes to the custom state, with the end of their call behind
// them, where there is one to show.
func (r *runner) showWrites(ctx context.Context, step int32, ops []agent.Op, end *agent.ToolResult) error {
	w := &r.writes
	w.mu.Lock()
	defer w.mu.Unlock()
	patch, err := w.shown.Patch(ops)
	if err != nil {
		return err
	}
	w.shown = applied(w.shown, ops)
	chunks := writesChunks(ops, patch)
	if end != nil {
		chunks = append(chunks, toolEnd(*end))
	}
	return r.show(ctx, step, chunks...)
}

// showMerged shows readers what the step does to the state besides the writes of calls
// that they have seen, or in another order.
func (r *runner) showMerged(ctx context.Context, step int32) error {
	w := &r.writes
	if !w.changes() && !w.dropped {
		return nil
	}
	if ops := agent.Diff(w.shown, w.merged()); len(ops) > 0 {
		return r.showWrites(ctx, step, ops, nil)
	}
	return nil
}
