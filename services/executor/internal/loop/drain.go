package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// abandoned begins the errors of calls replaced by a new message, as in the specification.
const abandoned = "client_tool_abandoned"

// IsDrain reports whether a recorded plan belongs to a step that runs calls of an earlier one. Such a plan is
// not a message of the conversation, and the earlier step has already streamed its calls.
func IsDrain(run Run, step int, plan agent.Message) bool {
	return plan.ID == MessageID(run, step, "drain", 0)
}

// collectClientCalls collects the work on calls that wait for clients. A call needs no work if it is not in the conversation,
// as after a rewind, or is answered there.
func (p *Planner) collectClientCalls(asked []ClientCall) {
	answered := answeredIDs(p.transcript)
	for _, a := range asked {
		if !a.Applied && p.taken[a.CallID] && !answered[a.CallID] {
			p.pending = append(p.pending, a)
		}
		if a.Late != nil {
			p.late = append(p.late, a)
		}
		p.taken[a.CallID] = true
	}
}

// drain begins a step that applies answers, or continues such a step from a former owner's plan. If only open
// calls remain, the run suspends again. It returns nil without any calls for clients.
func (p *Planner) drain(j *Journal) Effect {
	w, open := p.answered(p.transcript, p.pending, j)
	switch {
	case len(w.tasks) > 0:
		p.work = w
		return p.proceed()
	case len(open) > 0:
		return Commit{Step: p.step, Drain: true, Outcome: suspendedAgain(p.transcript, open)}
	}
	return nil
}

// answered returns the work of a step that applies the answers to the calls of one message, and the open calls.
func (p *Planner) answered(transcript []agent.Message, pending []ClientCall, j *Journal) (w work, open []ClientCall) {
	for _, a := range pending {
		if a.Answer == nil {
			open = append(open, a)
		}
	}
	if len(pending) == 0 {
		return w, nil
	}
	done := answeredIDs(transcript)
	for i, m := range transcript {
		if !slices.ContainsFunc(m.Calls(), func(c agent.ToolCall) bool { return findClientCall(pending, c.ID) != nil }) {
			continue
		}
		if w = p.drainWork(m, hasUserMessage(transcript[i+1:]), pending, done, j); len(w.tasks) > 0 {
			return w, open
		}
	}
	return work{}, open
}

// drainWork returns a step's work on the calls of one message. Calls that finish the run wait for the last
// answer. A journal restricts the step to its calls.
func (p *Planner) drainWork(m agent.Message, overtaken bool, pending []ClientCall, done map[string]bool, j *Journal) work {
	w := work{message: m, drain: true, planned: j != nil}
	var last []*task // calls without a question that waited for the others
	for _, call := range m.Calls() {
		if findClientCall(pending, call.ID) != nil || done[call.ID] {
			continue
		}
		// The others were abandoned with the run that asked. Planned calls were to run.
		if t := p.classify(call, j != nil && j.has(call.ID)); t.class == classLast {
			last = append(last, t)
		}
	}
	waits := slices.ContainsFunc(last, func(t *task) bool { return !j.has(t.ID) })
	for _, call := range m.Calls() {
		asked := findClientCall(pending, call.ID)
		switch {
		case asked == nil:
			if i := slices.IndexFunc(last, func(t *task) bool { return t.ID == call.ID }); i >= 0 && j.has(call.ID) {
				w.tasks = append(w.tasks, last[i])
			}
		case asked.Answer == nil, !j.has(call.ID) && (waits || !asked.isUndecided()):
			waits = true
		default:
			w.tasks = append(w.tasks, p.answeredTask(call, asked))
		}
	}
	if overtaken {
		cancelFinishing(w.tasks)
	}
	if j != nil {
		w.restore(j.Results)
	}
	returnToClients(w.tasks)
	if waits {
		w.tasks = slices.DeleteFunc(w.tasks, func(t *task) bool { return t.finishes && !t.Recorded && !t.begun })
	}
	return w
}

// returnToClients handles approved or planned calls whose tool is meanwhile for a client or a sub-agent: the agent
// has changed, and there is nothing to run.
func returnToClients(tasks []*task) {
	for _, t := range tasks {
		switch {
		case t.Tool == nil || !isAnsweredElsewhere(t.Tool):
			continue
		case t.begun:
			t.fail(errUnknown)
		default:
			t.fail(errOutside)
		}
		t.class = classKnown
	}
}

// has reports whether a step includes a call. Without a plan it includes all.
func (j *Journal) has(id string) bool {
	return j == nil || slices.ContainsFunc(j.Plan.Calls(), func(c agent.ToolCall) bool { return c.ID == id })
}

// isUndecided reports whether a call that needs approval has an answer other than a decision. A decision may
// still replace it, so no plan includes such a call.
func (a *ClientCall) isUndecided() bool {
	return a.Approval && a.Answer != nil && (a.Answer.Error != "" || a.Answer.TimedOut)
}

// hasUserMessage reports whether the messages include a user message.
func hasUserMessage(messages []agent.Message) bool {
	return slices.ContainsFunc(messages, func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden })
}

// cancelFinishing handles calls of a message followed by a user message: a call that would have finished the former run
// does not finish this one.
func cancelFinishing(tasks []*task) {
	for _, t := range tasks {
		switch {
		case t.class == classLast && t.asked == nil:
			t.class = classKnown
			t.fail(errOvertaken)
		case t.class == classLast:
			t.class = classServer // an approved call runs
		}
		t.finishes = false
	}
}

// answeredTask returns a task for an answered call.
func (p *Planner) answeredTask(call agent.ToolCall, asked *ClientCall) *task {
	answer := asked.Answer
	t := p.takeAnswer(call, *answer, asked.Approval)
	t.asked = asked
	t.Decision = asked.decision()
	return t
}

// decision returns the decision on the call, or nil.
func (a *ClientCall) decision() *Decision {
	if !a.Approval || a.Answer == nil || a.isUndecided() {
		return nil
	}
	return &Decision{ApprovalID: a.ApprovalID, Approved: a.Answer.Approved, Reason: a.Answer.Reason}
}

func (p *Planner) takeAnswer(call agent.ToolCall, answer Answer, approval bool) *task {
	switch {
	case answer.TimedOut:
		return p.knownTask(call, errTimedOut)
	case answer.Error != "" && approval:
		return p.knownTask(call, errNotExecuted+": "+answer.Error)
	case answer.Error != "":
		t := p.knownTask(call, answer.Error)
		t.Result.Synthetic = strings.HasPrefix(answer.Error, abandoned)
		return t
	case !approval:
		return p.clientResult(call, answer)
	case answer.Approved:
		return p.classify(call, true)
	}
	return p.knownTask(call, refused(answer.Reason))
}

// clientResult returns a call with the result from a client.
func (p *Planner) clientResult(call agent.ToolCall, answer Answer) *task {
	tool := p.tools.tools[call.Name]
	if tool != nil && len(tool.OutputSchema) > 0 {
		if s := compile(tool.OutputSchema); s != nil {
			if err := s.Check(answer.Result); err != nil {
				return p.knownTask(call, "the result does not fit: "+err.Error())
			}
		}
	}
	t := p.newTask(call)
	t.finishes = p.tools.finishes(call.Name)
	t.Result = &agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: answer.Result}
	return t
}

func refused(reason string) string {
	if reason == "" {
		return errRefused
	}
	return errRefused + ": " + reason
}

// plan returns the message to record before calls run: the model's own, or the subject of a drain.
func (p *Planner) plan() agent.Message {
	w := &p.work
	if !w.drain {
		return w.message
	}
	plan := agent.Message{ID: p.messageID("drain", 0), Role: agent.RoleAssistant}
	for _, t := range w.tasks {
		if t.asked == nil || !t.asked.isUndecided() {
			plan.Parts = append(plan.Parts, t.ToolCall)
		}
	}
	return plan
}
