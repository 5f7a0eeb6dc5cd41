package loop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// calls is the step in flight so far: a message of the model, and the state of its calls.
type calls struct {
	run       *run
	message   agent.Message
	finish    model.FinishReason // for a message without calls
	answering bool               // the message belongs to an earlier step with open calls
	planned   bool               // the plan is recorded
	tasks     []*task            // the calls of the step, in the order of the message
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
	// waits means that the call waits for a client in the recorded plan.
	waits bool
	// disabled means that the call has failed because its tool is disabled.
	disabled bool
}

// setEnd records the end of a call and reports whether a stop ended it.
func (t *task) setEnd(end Ended) (stopped bool) {
	switch {
	case end.Awaits != nil:
		t.class = classOpen
		t.Awaits = end.Awaits
		t.begun = true
		return false
	case t.Recorded:
		end.Ops = t.Ops
		end.Context = t.Context
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

// context returns the rows that a successful call adds to the conversation.
func (t *task) context() []agent.ContextRow {
	switch result := t.result(); {
	case result == nil || !result.Success:
		return nil
	case t.end != nil:
		return t.end.Context
	}
	return t.Context
}

func (t *task) fail(reason string) {
	result := failedResult(t.ToolCall, reason)
	t.Tool = nil
	t.Result = &result
}

// unfinished returns the tasks of some classes that have not ended.
func (c *calls) unfinished(classes ...class) []*task {
	var tasks []*task
	for _, t := range c.tasks {
		if t.end == nil && slices.Contains(classes, t.class) {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// open returns the tasks that wait for clients.
func (c *calls) open() []*task { return c.unfinished(classOpen) }

// needsPlan reports whether the step runs a tool that may have effects. A plan is also needed for any tool
// beside open calls, because clients learn of those at once, and for an answer. Tools that finish the run do not
// begin in a step with open calls.
func (c *calls) needsPlan() bool {
	open := len(c.open()) > 0
	for _, t := range c.tasks {
		runs := t.Tool != nil && t.end == nil && (t.class == classServer || t == c.finishingCall() && !open)
		if runs && (!t.Tool.ReadOnly || open || c.answering) {
			return true
		}
	}
	return false
}

// Metadata of a recorded plan, which only the journal has. Both list calls, as a JSON array of their indexes in the message:
// indexes stay within the state service's limit, however long the ids are.
const (
	metadataAsks     = "asks"     // the calls that wait for clients
	metadataDisabled = "disabled" // the calls of tools that were disabled
)

// withFates adds to the plan which calls wait for clients, and so have not run, and which are of disabled tools. A new owner
// cannot learn this from the agent and the conversation, because both may have changed.
func (c *calls) withFates(plan agent.Message) agent.Message {
	var asks, disabled []int
	for _, t := range c.tasks {
		at := slices.IndexFunc(plan.Calls(), func(c agent.ToolCall) bool { return c.ID == t.ID })
		if t.end == nil && t.class == classOpen {
			asks = append(asks, at)
		}
		if t.disabled && at >= 0 {
			disabled = append(disabled, at)
		}
	}
	for name, indexes := range map[string][]int{metadataAsks: asks, metadataDisabled: disabled} {
		if len(indexes) == 0 {
			continue
		}
		text, err := json.Marshal(indexes)
		if err != nil { // numbers always marshal
			panic(fmt.Sprintf("loop: the calls of a plan: %v", err))
		}
		plan.Metadata = maps.Clone(plan.Metadata)
		if plan.Metadata == nil {
			plan.Metadata = map[string]string{}
		}
		plan.Metadata[name] = string(text)
	}
	return plan
}

// ConversationMessage returns the message of a plan for the conversation.
func ConversationMessage(plan agent.Message) agent.Message {
	message, _, _ := splitPlan(plan)
	return message
}

// splitPlan splits a recorded plan into the message, the ids of the calls for clients, and the ids of the calls of disabled
// tools. A plan of an earlier version has ids in place of indexes.
func splitPlan(plan agent.Message) (message agent.Message, asks, disabled []string) {
	listed := func(name string) (ids []string) {
		text, ok := plan.Metadata[name]
		if !ok {
			return nil
		}
		var indexes []int
		switch calls := plan.Calls(); {
		case json.Unmarshal([]byte(text), &indexes) == nil:
			for _, i := range indexes {
				if i >= 0 && i < len(calls) {
					ids = append(ids, calls[i].ID)
				}
			}
		case json.Unmarshal([]byte(text), &ids) != nil:
			ids = nil
		}
		return ids
	}
	asks, disabled = listed(metadataAsks), listed(metadataDisabled)
	if len(plan.Metadata) == 0 {
		return plan, asks, disabled
	}
	plan.Metadata = maps.Clone(plan.Metadata)
	delete(plan.Metadata, metadataAsks)
	if delete(plan.Metadata, metadataDisabled); len(plan.Metadata) == 0 {
		plan.Metadata = nil
	}
	return plan, asks, disabled
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
func (c *calls) restore(results []Recorded) {
	recorded := map[string]Recorded{}
	for _, r := range results {
		if _, repeated := recorded[r.Result.CallID]; !repeated {
			recorded[r.Result.CallID] = r
		}
	}
	for _, t := range c.tasks {
		r, ok := recorded[t.ID]
		if !ok {
			continue
		}
		t.Tool = nil
		t.Ops = r.Ops
		t.Context = r.Context
		t.Recorded = true
		if r.Until != 0 {
			t.Awaits = &Awaited{Until: r.Until}
			t.class = classKnown
			continue
		}
		t.Result = &r.Result
		if t.class == classOpen {
			t.class = classKnown
		}
	}
	first := !slices.ContainsFunc(c.tasks, func(t *task) bool {
		return !t.Recorded && (t.plannedClass() == classServer || t.class == classKnown && !c.answering)
	})
	for _, t := range c.tasks {
		was := t.plannedClass()
		if t.Tool == nil || was != classServer && (was != classLast || !first || t.class == classLast && t != c.finishingCall()) {
			continue
		}
		t.begun = true
		if !t.Tool.Repeatable() {
			t.fail(OutcomeUnknown)
			if t.class == classOpen {
				t.class = classKnown
			}
		}
	}
}

// finishingCall returns the call that ends the run if it succeeds: a successful one, otherwise the first of its kind,
// or nil.
func (c *calls) finishingCall() *task {
	var first *task
	for _, t := range c.tasks {
		if !t.finishes {
			continue
		}
		if t.class == classKnown && t.Result != nil && t.Result.Success {
			return t
		}
		if first == nil && t.class == classLast {
			first = t
		}
	}
	return first
}

// next returns the plan to record, or the calls that run or are known before the step suspends or ends. It returns
// nil if there are none.
func (c *calls) next() Effect {
	if known := c.unfinished(classKnown); c.answering && len(known) > 0 {
		return c.runCalls(known, false)
	}
	if !c.planned && c.needsPlan() {
		return RecordPlan{Step: c.run.step, Plan: c.withFates(c.plan())}
	}
	if first := c.unfinished(classKnown, classServer); len(first) > 0 {
		return c.runCalls(first, c.planned)
	}
	return nil
}

// plan returns the message to record before calls run: the model's own, or the calls of an earlier step.
func (c *calls) plan() agent.Message {
	if !c.answering {
		return c.message
	}
	plan := agent.Message{ID: c.run.messageID(planOfAnswers, 0), Role: agent.RoleAssistant}
	for _, t := range c.tasks {
		if t.asked == nil || !t.asked.isUndecided() {
			plan.Parts = append(plan.Parts, t.ToolCall)
		}
	}
	return plan
}

func (c *calls) runCalls(tasks []*task, planned bool) Effect {
	e := RunCalls{Step: c.run.step, Plan: c.plan(), Planned: planned, Answering: c.answering, Carries: planned && c.commitFollows(tasks)}
	for _, t := range tasks {
		e.Calls = append(e.Calls, t.Call)
	}
	return e
}

// commitFollows reports whether the commit directly follows calls that are about to run. Without a record, the state
// service must not refuse that commit: it does so if one of the answers in it has changed.
func (c *calls) commitFollows(tasks []*task) bool {
	a := c.run.start.Agent
	mayChange := slices.ContainsFunc(c.tasks, func(t *task) bool { return t.asked.mayChange() })
	if mayChange || a.StopWhen != nil || a.Hooks.OnMessage != nil {
		return false
	}
	finishing := c.unfinished(classLast)
	if len(finishing) == 0 {
		return true
	}
	if a.Guard.OnOutput != nil {
		return false
	}
	runs := slices.ContainsFunc(finishing, func(t *task) bool { return t.Tool != nil })
	return !runs || slices.Contains(tasks, finishing[0])
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

// newCalls classifies the calls of a message. disabled reports whether the tool of a call is disabled.
func newCalls(r *run, message agent.Message, disabled func(callID string) bool) calls {
	c := calls{run: r, message: message}
	most := cmp.Or(r.start.MaxCalls, DefaultMaxCalls)
	mostSubAgents := cmp.Or(r.start.Agent.MaxSubAgents, agent.DefaultMaxSubAgents)
	made, subAgents := message.Calls(), 0
	for i, call := range made {
		if i >= most {
			c.tasks = append(c.tasks, r.knownTask(call, fmt.Sprintf(errTooManyCalls, most)))
			continue
		}
		if disabled(call.ID) {
			t := r.knownTask(call, errToolDisabled)
			t.disabled = true
			c.tasks = append(c.tasks, t)
			continue
		}
		t := r.classify(call, false)
		if isForced(message) && (len(made) != 1 || !r.tools.finishes(call.Name)) {
			t = r.knownTask(call, errNotOneFinish)
		}
		if t.Tool != nil && t.Tool.SubAgent != "" {
			subAgents++
			switch {
			case r.start.Depth >= r.start.MaxDepth:
				t.class = classKnown
				t.fail(fmt.Sprintf(errTooDeep, r.start.MaxDepth))
			case subAgents > mostSubAgents:
				t.class = classKnown
				t.fail(fmt.Sprintf(errTooManySubAgents, mostSubAgents))
			}
		}
		c.tasks = append(c.tasks, t)
	}
	return c
}

// callName returns the tool of a call of the message.
func callName(message agent.Message, callID string) string {
	for _, call := range message.Calls() {
		if call.ID == callID {
			return call.Name
		}
	}
	return ""
}

func (r *run) newTask(call agent.ToolCall) *task {
	return &task{Call: Call{ToolCall: call, Key: idempotencyKey(r.start.Run, r.step, call)}}
}

// knownTask returns a call that is not executed.
func (r *run) knownTask(call agent.ToolCall, reason string) *task {
	t := r.newTask(call)
	t.fail(reason)
	return t
}

// classify decides how to handle a call. The model receives an error for an impossible call. allowed means that
// a needed approval exists.
func (r *run) classify(call agent.ToolCall, allowed bool) *task {
	tool, finishes := r.tools.tools[call.Name], r.tools.finishes(call.Name)
	if tool == nil && !finishes {
		return r.knownTask(call, fmt.Sprintf(errNoTool+"%q", call.Name))
	}
	if problem := checkArguments(r.tools.input(call.Name), call.Arguments); problem != "" {
		return r.knownTask(call, problem)
	}
	t := r.newTask(call)
	t.Tool, t.finishes = tool, finishes
	switch {
	case tool != nil && !allowed && (isAnsweredElsewhere(tool) || r.needsApproval(tool, call)):
		t.class = classOpen
	case finishes:
		t.class = classLast
	default:
		t.class = classServer
	}
	return t
}
