package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// abandoned begins the errors of calls that a new message has taken the place of. It is
// the specification's.
const abandoned = "client_tool_abandoned"

// IsDrain reports whether a recorded plan is that of a step that runs calls of an
// earlier one. Such a plan is no message of the conversation, and its calls were told
// by the step that they are of.
func IsDrain(run Run, step int, plan agent.Message) bool {
	return plan.ID == messageID(run, step, "drain", 0)
}

// sort keeps what there is to do about the calls that went outside. One whose question
// is not in the conversation, as behind a rewind, or is answered there, is nothing to do.
func (p *Planner) sort(asked []Asked) {
	answered := answeredIDs(p.transcript)
	for _, a := range asked {
		if !a.Taken && p.taken[a.CallID] && !answered[a.CallID] {
			p.pending = append(p.pending, a)
		}
		if a.Late != nil {
			p.late = append(p.late, a)
		}
		p.taken[a.CallID] = true
	}
}

// drain begins a step that takes answers which have come, or goes on with it where a
// former owner has left its plan. Where nothing but open calls is left the run suspends
// again. Nil where nobody was asked anything.
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

// answered gives the work of a step that takes the answers to the calls of one
// message, and the calls that are open.
func (p *Planner) answered(transcript []agent.Message, pending []Asked, j *Journal) (w work, open []Asked) {
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
		if !slices.ContainsFunc(m.Calls(), func(c agent.ToolCall) bool { return askedOf(pending, c.ID) != nil }) {
			continue
		}
		if w = p.drainWork(m, spoken(transcript[i+1:]), pending, done, j); len(w.tasks) > 0 {
			return w, open
		}
	}
	return work{}, open
}

// drainWork is what a step does about the calls of one message. Calls that finish the
// run wait for the last answer. A journal says which calls the step is about.
func (p *Planner) drainWork(m agent.Message, overtaken bool, pending []Asked, done map[string]bool, j *Journal) work {
	w := work{message: m, drain: true, planned: j != nil}
	var last []*task // calls that nobody was asked about, and that have waited
	for _, call := range m.Calls() {
		if askedOf(pending, call.ID) != nil || done[call.ID] {
			continue
		}
		// Others were given up with the run that asked. What is planned was to run.
		if t := p.classify(call, j != nil && j.has(call.ID)); t.class == classLast {
			last = append(last, t)
		}
	}
	waits := slices.ContainsFunc(last, func(t *task) bool { return !j.has(t.ID) })
	for _, call := range m.Calls() {
		asked := askedOf(pending, call.ID)
		switch {
		case asked == nil:
			if i := slices.IndexFunc(last, func(t *task) bool { return t.ID == call.ID }); i >= 0 && j.has(call.ID) {
				w.tasks = append(w.tasks, last[i])
			}
		case asked.Answer == nil, !j.has(call.ID) && (waits || !asked.unapproved()):
			waits = true
		default:
			w.tasks = append(w.tasks, p.take(call, asked))
		}
	}
	if overtaken {
		overtake(w.tasks)
	}
	if j != nil {
		w.restore(j.Results)
	}
	giveBack(w.tasks)
	if waits {
		w.tasks = slices.DeleteFunc(w.tasks, func(t *task) bool { return t.finishes && !t.Recorded && !t.begun })
	}
	return w
}

// giveBack is for calls that were to run, with a yes or as planned, and whose tool is answered from
// outside by now: the agent has changed since, and there is nothing to run.
func giveBack(tasks []*task) {
	for _, t := range tasks {
		switch {
		case t.Tool == nil || !t.Tool.Client:
			continue
		case t.begun:
			t.fail(errUnknown)
		default:
			t.fail(errOutside)
		}
		t.class = classKnown
	}
}

// has reports whether a step is about a call: any, where there is no plan.
func (j *Journal) has(id string) bool {
	return j == nil || slices.ContainsFunc(j.Plan.Calls(), func(c agent.ToolCall) bool { return c.ID == id })
}

// unapproved reports whether a call that needs a yes has an answer that is neither yes
// nor no. A real answer may still take its place, and so no plan has such a call.
func (a *Asked) unapproved() bool {
	return a.Approval && a.Answer != nil && (a.Answer.Error != "" || a.Answer.TimedOut)
}

// spoken reports whether a user has said something.
func spoken(messages []agent.Message) bool {
	return slices.ContainsFunc(messages, func(m agent.Message) bool { return m.Role == agent.RoleUser && !m.Hidden })
}

// overtake is for calls of a message behind which a user has spoken: what was to end the
// former run does not end this one.
func overtake(tasks []*task) {
	for _, t := range tasks {
		switch {
		case t.class == classLast && t.asked == nil:
			t.class = classKnown
			t.fail(errOvertaken)
		case t.class == classLast:
			t.class = classServer // with its yes it runs
		}
		t.finishes = false
	}
}

// take makes a task of an answered call.
func (p *Planner) take(call agent.ToolCall, asked *Asked) *task {
	answer := asked.Answer
	t := p.takeAnswer(call, *answer, asked.Approval)
	t.asked = asked
	t.Decision = asked.decision()
	return t
}

// decision is what somebody has decided about the call; nil where nobody has.
func (a *Asked) decision() *Decision {
	if !a.Approval || a.Answer == nil || a.unapproved() {
		return nil
	}
	return &Decision{ApprovalID: a.ApprovalID, Approved: a.Answer.Approved, Reason: a.Answer.Reason}
}

func (p *Planner) takeAnswer(call agent.ToolCall, answer Answer, approval bool) *task {
	switch {
	case answer.TimedOut:
		return p.known(call, errTimedOut)
	case answer.Error != "" && approval:
		return p.known(call, errNotExecuted+": "+answer.Error)
	case answer.Error != "":
		t := p.known(call, answer.Error)
		t.Result.Synthetic = strings.HasPrefix(answer.Error, abandoned)
		return t
	case !approval:
		return p.clientResult(call, answer)
	case answer.Approved:
		return p.classify(call, true)
	}
	return p.known(call, refused(answer.Reason))
}

// clientResult is a call that a client has answered with a result.
func (p *Planner) clientResult(call agent.ToolCall, answer Answer) *task {
	tool := p.tools.tools[call.Name]
	if tool != nil && len(tool.OutputSchema) > 0 {
		if s := compile(tool.OutputSchema); s != nil {
			if err := s.Check(answer.Result); err != nil {
				return p.known(call, "the result does not fit: "+err.Error())
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

// plan is the message that is recorded before calls run: the model's own, or what a
// drain is about.
func (p *Planner) plan() agent.Message {
	w := &p.work
	if !w.drain {
		return w.message
	}
	plan := agent.Message{ID: p.messageID("drain", 0), Role: agent.RoleAssistant}
	for _, t := range w.tasks {
		if t.asked == nil || !t.asked.unapproved() {
			plan.Parts = append(plan.Parts, t.ToolCall)
		}
	}
	return plan
}
