package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// stateWrites is the custom state of a run: as the last step has left it, and what the step in
// flight does to it. The states are never changed, but replaced. One goroutine owns it.
type stateWrites struct {
	stored agent.State // as the state service has it
	state  agent.State // the same, with the defaults of the schema where no step is committed yet
	// defaulted says that the schema has defaults, and the session has no step.
	defaulted bool

	entry       []agent.Op            // of the hooks of the run's begin: each owner of a first step calls them
	beforeReply []agent.Op            // of the hooks that have led to the reply: for a recorded reply they are not called again
	afterReply  []agent.Op            // of the hooks between the reply and the calls of the step
	calls       map[string][]agent.Op // of the calls that have ended, by id
	late        []agent.Op            // of hooks since
	plan        agent.Message         // its calls are merged in its order
	planned     bool                  // the journal has asked, beside the plan
	dropped     bool                  // readers may have seen writes of hooks that do not count
	// found is the journal of a former owner, until its calls are taken over or run here.
	recovered *loop.Journal
}

// start begins with the custom state of the session. Where no step has led to it, schema gives
// its defaults, which the run's first step writes; else schema is nil.
func (w *stateWrites) start(state agent.State, schema json.RawMessage) error {
	w.stored, w.state = state, state
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
func (w *stateWrites) recover(journal *loop.Journal, ops []agent.Op) {
	w.recovered, w.beforeReply, w.planned = journal, ops, true
}

// restart forgets the writes of the calls of the step: only the journal counts.
func (w *stateWrites) restart(journal *loop.Journal) {
	w.calls, w.plan, w.recovered = nil, agent.Message{}, journal
}

// callModel is for a call of the model. The writes of hooks so far have led to its reply.
func (w *stateWrites) callModel() { w.beforeReply, w.late = slices.Concat(w.beforeReply, w.late), nil }

// forPlan are the writes that the plan is recorded with.
func (w *stateWrites) forPlan() []agent.Op {
	if len(w.beforeReply) == 0 {
		return nil
	}
	return agent.Diff(w.afterEntry(), applied(w.afterEntry(), w.beforeReply))
}

// planRecorded is for a plan that was recorded, without the writes for it where they were dropped.
func (w *stateWrites) planRecorded(dropped bool) {
	if dropped {
		w.beforeReply = nil
	}
	w.planned = true
}

// beginCalls is for calls that are about to run. They see the writes of hooks so far.
func (w *stateWrites) beginCalls(plan agent.Message) {
	w.plan, w.recovered = plan, nil
	if w.calls == nil {
		w.afterReply, w.late = slices.Concat(w.afterReply, w.late), nil
	}
}

// takeRecovered gives the recorded results of a former owner that the messages carry, where a stop came
// before the calls were taken over here. From now on the writes count them.
func (w *stateWrites) takeRecovered(messages []agent.Message) []loop.Recorded {
	if w.recovered == nil {
		return nil
	}
	var taken []loop.Recorded
	for _, m := range messages {
		for _, result := range m.Results() {
			i := slices.IndexFunc(w.recovered.Results, func(r loop.Recorded) bool { return r.Result.CallID == result.CallID })
			if i >= 0 {
				taken = append(taken, w.recovered.Results[i])
			}
		}
	}
	w.beginCalls(w.recovered.Plan)
	for _, r := range taken {
		w.addCall(loop.Ended{Result: r.Result, Ops: r.Ops})
	}
	return taken
}

// afterEntry is what the hooks of the run's begin see.
func (w *stateWrites) afterEntry() agent.State { return applied(w.state, w.entry) }

// seenByCalls is what the calls see.
func (w *stateWrites) seenByCalls() agent.State {
	return applied(applied(w.afterEntry(), w.beforeReply), w.afterReply)
}

// withCalls gives the state behind the writes of the calls, in the order of the plan.
func (w *stateWrites) withCalls(state agent.State) agent.State {
	for _, c := range w.plan.Calls() {
		state = applied(state, w.calls[c.ID])
	}
	return state
}

// merged is the state with all writes so far. The next hook and the planner see it, and the step
// leaves it if nothing more is written.
func (w *stateWrites) merged() agent.State { return applied(w.withCalls(w.seenByCalls()), w.late) }

// seenByHook is the state for a hook beside calls. A hook of the run's begin has step 0, and does not
// see the recorded writes of a former owner.
func (w *stateWrites) seenByHook(step int) agent.State {
	if step == 0 {
		return w.afterEntry()
	}
	return w.merged()
}

// addHook takes the writes of a hook beside calls.
func (w *stateWrites) addHook(step int, ops []agent.Op) {
	if step == 0 {
		w.entry = append(w.entry, ops...)
		return
	}
	w.late = append(w.late, ops...)
}

// hookCount is how many writes of hooks beside calls there are.
func (w *stateWrites) hookCount() int {
	return len(w.entry) + len(w.beforeReply) + len(w.afterReply) + len(w.late)
}

// changes reports whether the step may leave another state than it has found.
func (w *stateWrites) changes() bool { return w.mayDiffer() || len(w.calls) > 0 }

// mayDiffer reports whether the commit may have to write something itself.
func (w *stateWrites) mayDiffer() bool { return w.defaulted || w.hookCount() > 0 }

// forCommit are the writes of the commit itself. They lead from the state after the writes of the
// recorded calls to the state that the step leaves. So they include the writes of the recorded
// plan.
func (w *stateWrites) forCommit() []agent.Op {
	if !w.mayDiffer() {
		return nil
	}
	return agent.Diff(w.withCalls(w.stored), w.merged())
}

// drop forgets the writes of hooks, and reports whether there were any.
func (w *stateWrites) drop() bool {
	some := w.hookCount() > 0
	w.entry, w.beforeReply, w.afterReply, w.late = nil, nil, nil, nil
	w.dropped = w.dropped || some
	return some
}

// cutStep forgets the writes of hooks, except those in the journal.
func (w *stateWrites) cutStep() {
	asked := w.beforeReply
	if w.drop(); w.planned {
		w.beforeReply = asked
	}
}

// commit makes the state that of the committed step.
func (w *stateWrites) commit() {
	w.state = w.merged()
	w.stored, w.defaulted = w.state, false
	w.entry, w.beforeReply, w.afterReply, w.late, w.calls = nil, nil, nil, nil, nil
	w.plan, w.planned, w.dropped, w.recovered = agent.Message{}, false, false, nil
}

// addCall takes the writes of a call.
func (w *stateWrites) addCall(e loop.Ended) {
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
