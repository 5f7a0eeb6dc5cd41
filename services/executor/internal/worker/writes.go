package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// writes is the custom state of a run: as the last step has left it, and what the step in
// flight does to it. The states are never changed, but replaced. One goroutine owns it.
type writes struct {
	kept  agent.State // as the state service has it
	state agent.State // the same, with the defaults of the schema where no step is committed yet
	// defaulted says that the schema has defaults, and the session has no step.
	defaulted bool

	entry   []agent.Op            // of the hooks of the run's begin: each owner of a first step calls them
	asked   []agent.Op            // of the hooks that have led to the reply: for a recorded reply they are not called again
	before  []agent.Op            // of the hooks between the reply and the calls of the step
	calls   map[string][]agent.Op // of the calls that have ended, by id
	hooks   []agent.Op            // of hooks since
	plan    agent.Message         // its calls are merged in its order
	planned bool                  // the journal has asked, beside the plan
	dropped bool                  // readers may have seen writes of hooks that do not count
	// found is the journal of a former owner, until its calls are taken over or run here.
	found *loop.Journal
}

// start begins with the custom state of the session. Where no step has led to it, schema gives
// its defaults, which the run's first step writes; else schema is nil.
func (w *writes) start(state agent.State, schema json.RawMessage) error {
	w.kept, w.state = state, state
	if schema == nil {
		return nil
	}
	whole, err := withDefaults(schema, state)
	if err != nil {
		return fmt.Errorf("fill the defaults of the custom state: %w", err)
	}
	w.state, w.defaulted = whole, true
	return nil
}

func withDefaults(stateSchema json.RawMessage, state agent.State) (agent.State, error) {
	schema, err := agent.CompileSchema(stateSchema)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	if text, err = schema.ApplyDefaults(text); err != nil {
		return nil, err
	}
	return agent.ParseState(text)
}

// recover takes up the journal of a former owner; ops are the writes of its plan.
func (w *writes) recover(journal *loop.Journal, ops []agent.Op) {
	w.found, w.asked, w.planned = journal, ops, true
}

// restart forgets the writes of the calls of the step: only the journal counts.
func (w *writes) restart(journal *loop.Journal) {
	w.calls, w.plan, w.found = nil, agent.Message{}, journal
}

// ask is for a call of the model. The writes of hooks so far have led to its reply.
func (w *writes) ask() { w.asked, w.hooks = slices.Concat(w.asked, w.hooks), nil }

// ofPlan are the writes that the plan is recorded with.
func (w *writes) ofPlan() []agent.Op {
	if len(w.asked) == 0 {
		return nil
	}
	return agent.Diff(w.entered(), applied(w.entered(), w.asked))
}

// recorded is for a plan that was recorded, without the writes for it where they were dropped.
func (w *writes) recorded(dropped bool) {
	if dropped {
		w.asked = nil
	}
	w.planned = true
}

// begin is for calls that are about to run. They see the writes of hooks so far.
func (w *writes) begin(plan agent.Message) {
	w.plan, w.found = plan, nil
	if w.calls == nil {
		w.before, w.hooks = slices.Concat(w.before, w.hooks), nil
	}
}

// take gives the recorded results of a former owner that the messages carry, where a stop came
// before the calls were taken over here. From now on the writes count them.
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

// merged is the state with all writes so far. The next hook and the planner see it, and the step
// leaves it if nothing more is written.
func (w *writes) merged() agent.State { return applied(w.withCalls(w.called()), w.hooks) }

// seen is the state for a hook beside calls. A hook of the run's begin has step 0, and does not
// see the recorded writes of a former owner.
func (w *writes) seen(step int) agent.State {
	if step == 0 {
		return w.entered()
	}
	return w.merged()
}

// hooked takes the writes of a hook beside calls.
func (w *writes) hooked(step int, ops []agent.Op) {
	if step == 0 {
		w.entry = append(w.entry, ops...)
		return
	}
	w.hooks = append(w.hooks, ops...)
}

// ofHooks is how many writes of hooks beside calls there are.
func (w *writes) ofHooks() int { return len(w.entry) + len(w.asked) + len(w.before) + len(w.hooks) }

// changes reports whether the step may leave another state than it has found.
func (w *writes) changes() bool { return w.owns() || len(w.calls) > 0 }

// owns reports whether the commit may have to write something itself.
func (w *writes) owns() bool { return w.defaulted || w.ofHooks() > 0 }

// own are the writes of the commit itself. They lead from the state after the writes of the
// recorded calls to the state that the step leaves. So they include the writes of the recorded
// plan.
func (w *writes) own() []agent.Op {
	if !w.owns() {
		return nil
	}
	return agent.Diff(w.withCalls(w.kept), w.merged())
}

// drop forgets the writes of hooks, and reports whether there were any.
func (w *writes) drop() bool {
	some := w.ofHooks() > 0
	w.entry, w.asked, w.before, w.hooks = nil, nil, nil, nil
	w.dropped = w.dropped || some
	return some
}

// cut forgets the writes of hooks, except those in the journal.
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

// ended takes the writes of a call.
func (w *writes) ended(e loop.Ended) {
	if e.Stopped || len(e.Ops) == 0 {
		return
	}
	if w.calls == nil {
		w.calls = map[string][]agent.Op{}
	}
	w.calls[e.Result.CallID] = e.Ops
}

// applied gives the state after the writes. They come from agent.Diff or were accepted by the
// state service, so they can always be applied; otherwise the state stays as it is.
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
