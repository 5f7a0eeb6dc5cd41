package loop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// work is the step in flight so far: a message of the model, and the state of its calls.
type work struct {
	message agent.Message
	finish  model.FinishReason // for a message without calls
	drain   bool               // the message belongs to an earlier step with open calls
	planned bool               // the plan is recorded
	tasks   []*task            // the calls of the step, in the order of the message
	verdict *verdict           // the guard's verdict, if any
}

// task is a call of the step in flight.
type task struct {
	Call
	class class
	// finishes means that a successful call ends the run.
	finishes bool
	// asked is the call's question to a client, if any.
	asked *ClientCall
	end   *Ended
	// begun means that the tool may have begun without a recorded end.
	begun bool
	// waits means that the recorded plan left the call to a client.
	waits bool
	// awaits is the companion that answers the call, if any.
	awaits *Awaited
}

// setEnd records the end of a call and reports whether a stop has cut it.
func (t *task) setEnd(end Ended) (cut bool) {
	switch {
	case t.Recorded:
		end.Ops = t.Ops
	case end.Awaits != nil:
		t.class, t.awaits, t.begun = classOpen, end.Awaits, true
		return false
	case end.Stopped && t.Result != nil:
		end = Ended{Result: *t.Result}
	case end.Stopped:
		t.begun = t.begun || end.Begun
		return true
	}
	t.end = &end
	return false
}

// result returns the present or certain result of the call, or nil while it is open.
func (t *task) result() *agent.ToolResult {
	if t.end != nil {
		return &t.end.Result
	}
	return t.Result
}

func (t *task) fail(reason string) {
	result := failedResult(t.ToolCall, reason)
	t.Tool, t.Result = nil, &result
}

func (w *work) task(id string) *task {
	return w.tasks[slices.IndexFunc(w.tasks, func(t *task) bool { return t.ID == id })]
}

// unfinished returns the tasks of some classes that have not ended.
func (w *work) unfinished(classes ...class) []*task {
	var tasks []*task
	for _, t := range w.tasks {
		if t.end == nil && slices.Contains(classes, t.class) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// open returns the tasks that wait for clients.
func (w *work) open() []*task { return w.unfinished(classOpen) }

// needsPlan reports whether the step runs a tool that may have effects. A plan is also needed for any tool
// beside open calls, because clients learn of those at once, and for an answer. Tools that finish the run do not
// begin in a step with open calls.
func (w *work) needsPlan() bool {
	open := len(w.open()) > 0
	for _, t := range w.tasks {
		runs := t.Tool != nil && t.end == nil && (t.class == classServer || t == w.finishingCall() && !open)
		if runs && (!t.Tool.ReadOnly || open || w.drain) {
			return true
		}
	}
	return false
}

// metadataAsks lists the calls of a recorded plan that wait for clients, as a JSON array of their indexes in the
// message. Indexes stay within the state service's limit, however long the ids are. Only the journal has this
// metadata.
const metadataAsks = "asks"

// withAsks adds to the plan which calls wait for clients and so have not run. A new owner cannot learn this from
// the agent, because the agent may decide differently later.
func (w *work) withAsks(plan agent.Message) agent.Message {
	var places []int
	calls := plan.Calls()
	for _, t := range w.open() {
		places = append(places, slices.IndexFunc(calls, func(c agent.ToolCall) bool { return c.ID == t.ID }))
	}
	if len(places) == 0 {
		return plan
	}
	text, err := json.Marshal(places)
	if err != nil { // numbers always marshal
		panic(fmt.Sprintf("loop: the calls of a plan that are asked: %v", err))
	}
	plan.Metadata = maps.Clone(plan.Metadata)
	if plan.Metadata == nil {
		plan.Metadata = map[string]string{}
	}
	plan.Metadata[metadataAsks] = string(text)
	return plan
}

// ConversationMessage returns the message of a plan for the conversation.
func ConversationMessage(plan agent.Message) agent.Message {
	message, _ := splitPlan(plan)
	return message
}

// splitPlan splits a recorded plan into the message and the ids of the calls for clients. A plan of an earlier
// version has ids in place of indexes.
func splitPlan(plan agent.Message) (message agent.Message, ids []string) {
	text, ok := plan.Metadata[metadataAsks]
	if !ok {
		return plan, nil
	}
	var places []int
	switch calls := plan.Calls(); {
	case json.Unmarshal([]byte(text), &places) == nil:
		for _, place := range places {
			if place >= 0 && place < len(calls) {
				ids = append(ids, calls[place].ID)
			}
		}
	case json.Unmarshal([]byte(text), &ids) != nil:
		ids = nil
	}
	plan.Metadata = maps.Clone(plan.Metadata)
	if delete(plan.Metadata, metadataAsks); len(plan.Metadata) == 0 {
		plan.Metadata = nil
	}
	return plan, ids
}

// restoreAsks restores the questions of a recorded plan, regardless of the agent's current rules. Call it for a whole
// plan, before restore.
func (w *work) restoreAsks(ids []string) {
	for _, t := range w.tasks {
		t.waits = slices.Contains(ids, t.ID)
		if t.waits && t.Tool != nil {
			t.class = classOpen
		}
	}
}

// plannedClass returns the class of a call at the time of its plan.
func (t *task) plannedClass() class {
	switch {
	case t.class != classOpen || t.waits:
		return t.class
	case t.finishes:
		return classLast
	}
	return classServer
}

// restore applies the recorded ends. An unrecorded call may have begun if everything before it has ended: the
// outcome of an unsafe tool is then unknown, even if the agent would ask a client about it now.
func (w *work) restore(results []Recorded) {
	recorded := map[string]Recorded{}
	for _, r := range results {
		if _, repeated := recorded[r.Result.CallID]; !repeated {
			recorded[r.Result.CallID] = r
		}
	}
	for _, t := range w.tasks {
		if r, ok := recorded[t.ID]; ok {
			t.Tool, t.Result, t.Ops, t.Recorded = nil, &r.Result, r.Ops, true
			if t.class == classOpen {
				t.class = classKnown
			}
		}
	}
	first := !slices.ContainsFunc(w.tasks, func(t *task) bool {
		return !t.Recorded && (t.plannedClass() == classServer || t.class == classKnown && !w.drain)
	})
	for _, t := range w.tasks {
		was := t.plannedClass()
		if t.Tool == nil || was != classServer && (was != classLast || !first || t.class == classLast && t != w.finishingCall()) {
			continue
		}
		t.begun = true
		if !t.Tool.Repeatable() {
			t.fail(errUnknown)
			if t.class == classOpen {
				t.class = classKnown
			}
		}
	}
}

// finishingCall returns the call that ends the run if it succeeds: a successful one, otherwise the first of its kind,
// or nil.
func (w *work) finishingCall() *task {
	var first *task
	for _, t := range w.tasks {
		if !t.finishes {
			continue
		}
		if t.class == classKnown && t.Result.Success {
			return t
		}
		if first == nil && t.class == classLast {
			first = t
		}
	}
	return first
}

// proceed returns the next effect for the calls of the step in flight.
func (p *Planner) proceed() Effect {
	w := &p.work
	if known := w.unfinished(classKnown); w.drain && len(known) > 0 {
		return p.runCalls(known, false)
	}
	if !w.planned && w.needsPlan() {
		return RecordPlan{Step: p.step, Plan: w.withAsks(p.plan())}
	}
	if first := w.unfinished(classKnown, classServer); len(first) > 0 {
		return p.runCalls(first, w.planned)
	}
	if len(w.open()) > 0 {
		return p.suspend()
	}
	if last := w.unfinished(classLast); len(last) > 0 {
		return p.runFinishing(last)
	}
	return p.settle()
}

func (p *Planner) runCalls(tasks []*task, planned bool) Effect {
	e := RunCalls{Step: p.step, Plan: p.plan(), Planned: planned, Drain: p.work.drain, Carries: planned && p.commitFollows(tasks)}
	for _, t := range tasks {
		e.Calls = append(e.Calls, t.Call)
	}
	return e
}

// commitFollows reports whether the commit directly follows calls that are about to run. Answers to calls of an
// earlier step may change until they are recorded or committed.
func (p *Planner) commitFollows(tasks []*task) bool {
	a := p.start.Agent
	if p.work.drain || a.StopWhen != nil || a.Hooks.OnMessage != nil {
		return false
	}
	finishing := p.work.unfinished(classLast)
	if len(finishing) == 0 {
		return true
	}
	if a.Guard.OnOutput != nil {
		return false
	}
	runs := slices.ContainsFunc(finishing, func(t *task) bool { return t.Tool != nil })
	return !runs || slices.Contains(tasks, finishing[0])
}

// results returns the tool messages of the step.
func (p *Planner) results(tasks []*task) []agent.Message {
	var messages []agent.Message
	for n, t := range tasks {
		if result := t.result(); result != nil {
			messages = append(messages, agent.Message{ID: p.messageID("tool", n), Role: agent.RoleTool, Parts: []agent.Part{*result}})
		}
	}
	return messages
}

// commit returns the commit of the step, with its messages before and after the model's message.
func (p *Planner) commit(tasks []*task, notes ...agent.Message) Commit {
	w := &p.work
	c := Commit{Step: p.step, Drain: w.drain}
	if !w.drain {
		c.Messages, c.Reported = p.preface()
		if hasContent(w.message) {
			c.Messages = append(c.Messages, w.message)
		}
	}
	c.Messages = append(append(c.Messages, p.results(tasks)...), notes...)
	for _, t := range tasks {
		if t.asked == nil || t.result() == nil {
			continue
		}
		c.Consumed = append(c.Consumed, Consumed{t.ID, t.asked.Revision})
		if t.Decision != nil {
			if c.Decisions == nil {
				c.Decisions = map[string]Decision{}
			}
			c.Decisions[t.ID] = *t.Decision
		}
	}
	return c
}

// settle commits a step whose calls have ended.
func (p *Planner) settle() Effect {
	w := &p.work
	var notes []agent.Message
	var outcome *Outcome
	if winner := w.finishingCall(); winner != nil && winner.result() != nil {
		if p.asksOutput() && winner.Name != agent.FinishTool && winner.result().Success && w.verdict == nil && p.outputMismatch(winner) == "" {
			return p.consultGuard(false, winner.result().Result)
		}
		var feedback string
		if outcome, feedback = p.finishOutcome(winner); feedback != "" {
			notes = append(notes, p.note(0, feedback, nil))
		}
	}
	c := p.commit(w.tasks, notes...)
	if outcome == nil {
		var note *agent.Message
		if outcome, note = p.afterStep(c); note != nil {
			c.Messages = append(c.Messages, *note)
		}
	}
	c.Outcome = outcome
	return c
}

// note returns a hidden message of the runtime to the model, the n-th of the step.
func (p *Planner) note(n int, text string, metadata map[string]string) agent.Message {
	return agent.Message{ID: p.messageID("note", n), Role: agent.RoleUser, Hidden: true, Metadata: metadata, Parts: []agent.Part{agent.Text{Text: text}}}
}

// hasContent reports whether a model message has content: providers refuse one with neither text nor a call.
func hasContent(m agent.Message) bool {
	return slices.ContainsFunc(m.Parts, func(part agent.Part) bool {
		switch part := part.(type) {
		case agent.Text:
			return part.Text != ""
		case agent.ToolCall, agent.File:
			return true
		}
		return false
	})
}
