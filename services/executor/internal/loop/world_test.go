package loop_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// world holds the state service's data of a run, the input of a new owner.
type world struct {
	start   loop.Start
	outcome *loop.Outcome // the run has ended
	// entered counts the executions of tools by call id.
	entered map[string]int
	wrote   []agent.Op // by hooks in the step in flight
	// children counts the sessions of sub-agents.
	children int
}

// newStart returns the start of a new owner. Its Now reflects later changes of the world.
func (w *world) newStart() loop.Start {
	w.wrote = nil
	s := w.copy().start
	s.Now = w.now
	s.NewSessionID = func() string {
		w.children++
		return fmt.Sprintf("child%d", w.children)
	}
	return s
}

// now returns the custom state after the writes so far.
func (w *world) now() agent.State {
	return must(w.merged().Apply(w.wrote))
}

// merged returns the custom state after the recorded writes of calls, in the order of the plan.
func (w *world) merged() agent.State {
	state := w.start.State
	if j := w.start.Journal; j != nil {
		for _, call := range j.Plan.Calls() {
			for _, r := range j.Results {
				if r.Result.CallID == call.ID {
					state = must(state.Apply(r.Ops))
				}
			}
		}
	}
	return state
}

func newWorld(start loop.Start) *world {
	start.CallFunction = callDirectly
	return &world{start: start, entered: map[string]int{}}
}

// copy returns a deep copy.
func (w *world) copy() *world {
	c := newWorld(w.start)
	c.outcome, c.children = w.outcome, w.children
	c.start.Transcript = slices.Clone(w.start.Transcript)
	c.start.Calls = slices.Clone(w.start.Calls)
	if j := w.start.Journal; j != nil {
		c.start.Journal = &loop.Journal{Plan: j.Plan, Results: slices.Clone(j.Results)}
	}
	for id, n := range w.entered {
		c.entered[id] = n
	}
	return c
}

func (w *world) recordPlan(e loop.RecordPlan) {
	if w.start.Journal == nil {
		w.start.Journal = &loop.Journal{Plan: e.Plan}
	}
}

// recordResult records the first result of a call.
func (w *world) recordResult(end loop.Ended) {
	j := w.start.Journal
	if !slices.ContainsFunc(j.Plan.Calls(), func(c agent.ToolCall) bool { return c.ID == end.Result.CallID }) {
		panic("the plan does not have the call " + end.Result.CallID)
	}
	if !slices.ContainsFunc(j.Results, func(r loop.Recorded) bool { return r.Result.CallID == end.Result.CallID }) {
		r := loop.Recorded{Result: end.Result, Ops: end.Ops, Context: end.Context}
		if end.Awaits != nil {
			r.Until = end.Awaits.Until
		}
		j.Results = append(j.Results, r)
	}
}

// recordEnds records the ends that must be recorded, in sequence. There may be fewer ends than calls if the
// owner is lost.
func (w *world) recordEnds(e loop.RunCalls, ends []loop.Ended) {
	for i := range ends {
		w.recordEnd(e, i, ends[i])
	}
}

// recordEnd records the end of the i-th call if required. Calls end in order.
func (w *world) recordEnd(e loop.RunCalls, i int, end loop.Ended) {
	last := !slices.ContainsFunc(e.Calls[i+1:], func(c loop.Call) bool { return c.Tool != nil })
	if end.Stopped || !e.Records(e.Calls[i], end, last) {
		return
	}
	if !e.Planned {
		w.recordPlan(loop.RecordPlan{Step: e.Step, Plan: e.Plan})
	}
	w.recordResult(end)
}

// commit applies a step like the state service.
func (w *world) commit(e loop.Commit) {
	s := &w.start
	s.State, w.wrote = w.now(), nil
	s.Journal = nil
	s.Transcript = append(s.Transcript, e.Messages...)
	s.SessionSteps++
	s.Calls = slices.DeleteFunc(s.Calls, func(a loop.ClientCall) bool {
		return slices.Contains(e.Reported, a.CallID) ||
			slices.ContainsFunc(e.Consumed, func(c loop.Consumed) bool { return c.CallID == a.CallID })
	})
	for _, call := range e.Suspend {
		s.Calls = append(s.Calls, loop.ClientCall{CallID: call.ID, Tool: call.Name, Approval: call.Approval, ApprovalID: call.ApprovalID, SubAgent: call.SubAgent != "", Callback: call.Until != 0})
	}
	w.outcome = e.Outcome
}

// hasOpenCall reports whether a call is unanswered.
func (w *world) hasOpenCall() bool {
	return slices.ContainsFunc(w.start.Calls, func(a loop.ClientCall) bool { return a.Answer == nil })
}

// answer applies a client's answer to a call.
func (w *world) answer(id string, answer loop.Answer) {
	for i := range w.start.Calls {
		if w.start.Calls[i].CallID == id {
			w.start.Calls[i].Answer = &answer
			w.start.Calls[i].Revision++
		}
	}
}

// next begins the next run of the session: a continuation, or a run with a message.
func (w *world) next(runID string, message string) {
	w.start.Run.RunID = runID
	w.start.Turn = max(w.start.Turn, 1) + 1
	w.outcome = nil
	if message != "" {
		w.start.Begin = len(w.start.Transcript)
		w.start.Transcript = append(w.start.Transcript, agent.Message{
			ID: "user-" + runID, Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: message}},
		})
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func replaceOp(key, value string) agent.Op {
	return agent.Op{Key: key, Kind: agent.OpReplace, Value: json.RawMessage(value)}
}
