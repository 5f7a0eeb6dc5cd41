package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// stateWrites tracks the custom state of a run: after the last step, and the writes of the step in flight.
// States are replaced, never changed. One goroutine owns it.
type stateWrites struct {
	stored agent.State // at the state service
	state  agent.State // stored, with the schema's defaults before the first step
	// defaulted: the state has the schema's defaults, and no step has stored them.
	defaulted bool

	entry       []agent.Op            // of hooks at the begin of the run: each owner of a first step calls them
	beforeReply []agent.Op            // of hooks before the reply: not called again for a recorded reply
	afterReply  []agent.Op            // of hooks between the reply and the calls
	calls       map[string][]agent.Op // of ended calls, by id
	late        []agent.Op            // of later hooks
	plan        agent.Message         // has the order of calls
	planned     bool                  // the journal has the plan and beforeReply
	dropped     bool                  // readers may have seen dropped writes of hooks
	// recovered is the journal of an earlier owner, until its calls run here.
	recovered *loop.Journal
}

// start sets the custom state of the session. schema has the defaults of a state without steps, which the first
// step writes; nil after a step.
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

// recover sets the journal of an earlier owner. ops are the writes recorded with its plan.
func (w *stateWrites) recover(journal *loop.Journal, ops []agent.Op) {
	w.recovered, w.beforeReply, w.planned = journal, ops, true
}

// restart drops the writes of the step's calls. Only those in the journal count.
func (w *stateWrites) restart(journal *loop.Journal) {
	w.calls, w.plan, w.recovered = nil, agent.Message{}, journal
}

// callModel prepares for a model call. The hook writes so far precede its reply.
func (w *stateWrites) callModel() { w.beforeReply, w.late = slices.Concat(w.beforeReply, w.late), nil }

// forPlan returns the writes to record with the plan.
func (w *stateWrites) forPlan() []agent.Op {
	if len(w.beforeReply) == 0 {
		return nil
	}
	return agent.Diff(w.afterEntry(), applied(w.afterEntry(), w.beforeReply))
}

// planRecorded notes that the plan was recorded. dropped means without its writes.
func (w *stateWrites) planRecorded(dropped bool) {
	if dropped {
		w.beforeReply = nil
	}
	w.planned = true
}

// beginCalls prepares for calls. They see the hook writes so far.
func (w *stateWrites) beginCalls(plan agent.Message) {
	w.plan, w.recovered = plan, nil
	if w.calls == nil {
		w.afterReply, w.late = slices.Concat(w.afterReply, w.late), nil
	}
}

// takeRecovered returns the recorded results of an earlier owner in the messages of a commit, if a stop came
// before their calls were continued here. Their writes count from then on.
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

// afterEntry is the state for hooks at the begin of the run.
func (w *stateWrites) afterEntry() agent.State { return applied(w.state, w.entry) }

// seenByCalls is the state for calls.
func (w *stateWrites) seenByCalls() agent.State {
	return applied(applied(w.afterEntry(), w.beforeReply), w.afterReply)
}

// withCalls returns the state after the writes of the calls, in the order of the plan.
func (w *stateWrites) withCalls(state agent.State) agent.State {
	for _, c := range w.plan.Calls() {
		state = applied(state, w.calls[c.ID])
	}
	return state
}

// merged is the state after all writes so far, for the planner and the next hook. Without further writes the
// step leaves it.
func (w *stateWrites) merged() agent.State { return applied(w.withCalls(w.seenByCalls()), w.late) }

// seenByHook is the state for a hook outside of calls. Step 0 is the begin of the run, where hooks do not see
// the recorded writes of an earlier owner.
func (w *stateWrites) seenByHook(step int) agent.State {
	if step == 0 {
		return w.afterEntry()
	}
	return w.merged()
}

// addHook adds the writes of a hook outside of calls.
func (w *stateWrites) addHook(step int, ops []agent.Op) {
	if step == 0 {
		w.entry = append(w.entry, ops...)
		return
	}
	w.late = append(w.late, ops...)
}

// hookCount counts the writes of hooks outside of calls.
func (w *stateWrites) hookCount() int {
	return len(w.entry) + len(w.beforeReply) + len(w.afterReply) + len(w.late)
}

// changes reports whether the step may change the state.
func (w *stateWrites) changes() bool { return w.mayDiffer() || len(w.calls) > 0 }

// mayDiffer reports whether the commit may need writes of its own.
func (w *stateWrites) mayDiffer() bool { return w.defaulted || w.hookCount() > 0 }

// forCommit returns the writes of the commit itself. They lead from the state after the recorded calls to the
// state at the end of the step, so they include the writes recorded with the plan.
func (w *stateWrites) forCommit() []agent.Op {
	if !w.mayDiffer() {
		return nil
	}
	return agent.Diff(w.withCalls(w.stored), w.merged())
}

// drop drops the writes of hooks, and reports whether there were any.
func (w *stateWrites) drop() bool {
	some := w.hookCount() > 0
	w.entry, w.beforeReply, w.afterReply, w.late = nil, nil, nil, nil
	w.dropped = w.dropped || some
	return some
}

// cutStep drops the writes of hooks, except those in the journal.
func (w *stateWrites) cutStep() {
	asked := w.beforeReply
	if w.drop(); w.planned {
		w.beforeReply = asked
	}
}

// commit makes the current state the stored one.
func (w *stateWrites) commit() {
	w.state = w.merged()
	w.stored, w.defaulted = w.state, false
	w.entry, w.beforeReply, w.afterReply, w.late, w.calls = nil, nil, nil, nil, nil
	w.plan, w.planned, w.dropped, w.recovered = agent.Message{}, false, false, nil
}

// addCall adds the writes of a call.
func (w *stateWrites) addCall(e loop.Ended) {
	if e.Stopped || len(e.Ops) == 0 {
		return
	}
	if w.calls == nil {
		w.calls = map[string][]agent.Op{}
	}
	w.calls[e.Result.CallID] = e.Ops
}

// applied returns the state after the writes. The writes come from agent.Diff or were accepted by the state
// service, so they always apply. If they do not, the state stays the same.
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
