package worker

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// stateWrites tracks the custom state of a run: after the last step, and the writes of the step in flight. Each write
// becomes durable at one of three moments:
//
//   - with the plan (forPlan): those of hooks before the reply,
//   - with the result of a call: those of its tool, and of the hooks around it (callHooks, addCall),
//   - with the commit (forCommit): all others.
//
// States are replaced, never changed. One goroutine owns it.
type stateWrites struct {
	stored agent.State // at the state service
	state  agent.State // stored, with the schema's defaults before the first step
	// defaulted: the state has the schema's defaults, and no step has stored them.
	defaulted bool

	hooks    [hookPlaces][]agent.Op // of hooks outside of calls
	calls    map[string][]agent.Op  // of ended calls, by id
	progress []agent.Op             // of package remote
	plan     agent.Message          // has the order of calls
	planned  bool                   // the journal has the plan, and the writes before the reply
	calling  bool                   // the calls of the step have begun
	dropped  bool                   // readers may have seen dropped writes of hooks
	// recovered is the journal of an earlier owner, until its calls run here.
	recovered *loop.Journal
}

// The places of hooks outside of calls, in the order of an undisturbed run. Calls come before afterCalls.
const (
	atBegin     = iota // of the run: each owner of a first step calls these hooks
	beforeReply        // their writes are recorded with the plan: the hooks are not called again for a recorded reply
	afterReply
	afterCalls
	hookPlaces
)

// start sets the custom state of the session. schema has the defaults of a state without steps, which the first
// step writes; nil after a step.
func (w *stateWrites) start(state agent.State, schema json.RawMessage) error {
	w.stored, w.state = state, state
	if schema == nil {
		return nil
	}
	withDefaults, err := applyDefaults(schema, state)
	if err != nil {
		return fmt.Errorf("fill the defaults of the custom state: %w", err)
	}
	w.state = withDefaults
	w.defaulted = true
	return nil
}

func applyDefaults(stateSchema json.RawMessage, state agent.State) (agent.State, error) {
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
	w.recovered = journal
	w.hooks[beforeReply] = ops
	w.planned = true
}

// restart drops the writes of the step's calls. Only those in the journal count.
func (w *stateWrites) restart(journal *loop.Journal) {
	w.calls = nil
	w.plan = agent.Message{}
	w.recovered = journal
}

// add adds the writes of a hook outside of calls. atBegin is for hooks at the begin of the run.
func (w *stateWrites) add(begin bool, ops []agent.Op) {
	moment := afterReply
	switch {
	case begin:
		moment = atBegin
	case w.calling:
		moment = afterCalls
	}
	w.hooks[moment] = append(w.hooks[moment], ops...)
}

// callModel prepares for a model call. The hook writes of the step so far precede its reply.
func (w *stateWrites) callModel() {
	w.hooks[beforeReply] = slices.Concat(w.hooks[beforeReply], w.hooks[afterReply], w.hooks[afterCalls])
	w.hooks[afterReply] = nil
	w.hooks[afterCalls] = nil
}

// forPlan returns the writes to record with the plan.
func (w *stateWrites) forPlan() []agent.Op {
	if len(w.hooks[beforeReply]) == 0 {
		return nil
	}
	return agent.Diff(w.through(atBegin), w.through(beforeReply))
}

// planRecorded notes that the plan was recorded. dropped means without its writes.
func (w *stateWrites) planRecorded(dropped bool) {
	if dropped {
		w.hooks[beforeReply] = nil
	}
	w.planned = true
}

// beginCalls prepares for calls. They see the hook writes so far.
func (w *stateWrites) beginCalls(plan agent.Message) {
	w.plan = plan
	w.recovered = nil
	w.calling = true
	if w.calls == nil {
		w.hooks[afterReply] = slices.Concat(w.hooks[afterReply], w.hooks[afterCalls])
		w.hooks[afterCalls] = nil
	}
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

// takeRecovered counts the writes of the recorded results of an earlier owner in the messages of a commit, if a stop came
// before their calls were continued here.
func (w *stateWrites) takeRecovered(messages []agent.Message) {
	if w.recovered == nil {
		return
	}
	recorded := w.recovered.Results
	w.beginCalls(w.recovered.Plan)
	for _, m := range messages {
		for _, result := range m.Results() {
			i := slices.IndexFunc(recorded, func(r loop.Recorded) bool { return r.Result.CallID == result.CallID })
			if i >= 0 {
				w.addCall(loop.Ended{Result: recorded[i].Result, Ops: recorded[i].Ops})
			}
		}
	}
}

// through returns the state after the writes of hooks up to the moment. Calls see that after afterReply.
func (w *stateWrites) through(moment int) agent.State {
	state := w.state
	for at, ops := range w.hooks[:moment+1] {
		if at == afterCalls {
			state = w.withCalls(state)
		}
		state = applied(state, ops)
	}
	return state
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
func (w *stateWrites) merged() agent.State { return applied(w.through(afterCalls), w.progress) }

// changes reports whether the step may change the state.
func (w *stateWrites) changes() bool { return w.mayDiffer() || len(w.calls) > 0 }

// mayDiffer reports whether the commit may need writes of its own.
func (w *stateWrites) mayDiffer() bool {
	return w.defaulted || len(w.progress) > 0 || slices.ContainsFunc(w.hooks[:], func(ops []agent.Op) bool { return len(ops) > 0 })
}

// forCommit returns the writes of the commit itself. They lead from the state after the recorded calls to the
// state at the end of the step, so they include the writes recorded with the plan.
func (w *stateWrites) forCommit() []agent.Op {
	if !w.mayDiffer() {
		return nil
	}
	return agent.Diff(w.withCalls(w.stored), w.merged())
}

// drop drops the writes of hooks, and reports whether there were any. In an interrupted step, those in the journal remain.
func (w *stateWrites) drop(interrupted bool) bool {
	before := w.hooks
	w.hooks = [hookPlaces][]agent.Op{}
	if interrupted && w.planned {
		w.hooks[beforeReply] = before[beforeReply]
	}
	some := slices.ContainsFunc(before[:], func(ops []agent.Op) bool { return len(ops) > 0 })
	w.dropped = w.dropped || some
	return some
}

// commit makes the current state the stored one. The next step begins.
func (w *stateWrites) commit() {
	state := w.merged()
	*w = stateWrites{stored: state, state: state}
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
