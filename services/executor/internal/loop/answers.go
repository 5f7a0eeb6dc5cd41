package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// callAbandoned begins the errors of calls replaced by a new message, as in the specification.
const callAbandoned = "client_tool_abandoned"

// IsAnswering reports whether a recorded plan belongs to a step that answers or runs calls of an earlier one. Such a
// plan is not a message of the conversation, and the earlier step has already streamed its calls.
func IsAnswering(run Run, step int, plan agent.Message) bool {
	return plan.ID == MessageID(run, step, planOfAnswers, 0)
}

// planOfAnswers is the kind of the plan's message. It is stored: an older executor derives the same id.
const planOfAnswers = "drain"

// answers knows the calls that clients and sub-agents answer: those without an applied answer, and the late answers
// that the model has not seen.
type answers struct {
	run     *run
	pending []ClientCall
	late    []ClientCall
}

// collect collects the calls that need work. A call needs none if it is not in the conversation, as after a rewind, or
// is answered there.
func (a *answers) collect(asked []ClientCall) {
	answered := answeredIDs(a.run.transcript)
	for _, call := range asked {
		if !call.Applied && a.run.callIDs[call.CallID] && !answered[call.CallID] {
			a.pending = append(a.pending, call)
		}
		if call.Late != nil {
			a.late = append(a.late, call)
		}
		a.run.callIDs[call.CallID] = true
	}
}

// after returns the pending calls after a commit.
func (a *answers) after(c Commit) []ClientCall {
	return slices.DeleteFunc(slices.Clone(a.pending), func(call ClientCall) bool {
		return slices.ContainsFunc(c.Consumed, func(consumed Consumed) bool { return consumed.CallID == call.CallID })
	})
}

// commit removes the calls that a committed step has answered or reported.
func (a *answers) commit(c Commit) {
	a.pending = a.after(c)
	a.late = slices.DeleteFunc(a.late, func(call ClientCall) bool { return slices.Contains(c.Reported, call.CallID) })
}

// answered returns the work of a step that applies the answers to the calls of one message, and the open calls.
func (a *answers) answered(transcript []agent.Message, pending []ClientCall, j *Journal) (work calls, open []ClientCall) {
	if len(pending) == 0 {
		return calls{}, nil
	}
	for _, call := range pending {
		if call.Answer == nil {
			open = append(open, call)
		}
	}
	done := answeredIDs(transcript)
	for i, m := range transcript {
		if !slices.ContainsFunc(m.Calls(), func(c agent.ToolCall) bool { return findClientCall(pending, c.ID) != nil }) {
			continue
		}
		if work = a.answeredIn(m, hasUserMessage(transcript[i+1:]), pending, done, j); len(work.tasks) > 0 {
			return work, open
		}
	}
	return calls{}, open
}

// answeredIn returns a step's work on the calls of one message. Calls that finish the run wait for the last
// answer. A user message after the calls makes them superseded. A journal restricts the step to its calls.
func (a *answers) answeredIn(m agent.Message, superseded bool, pending []ClientCall, done map[string]bool, j *Journal) calls {
	work := calls{run: a.run, message: m, answering: true, planned: j != nil}
	var last []*task // calls without a question that waited for the others
	for _, call := range m.Calls() {
		if findClientCall(pending, call.ID) != nil || done[call.ID] {
			continue
		}
		// The others were abandoned with the run that asked. Planned calls were to run.
		if t := a.run.classify(call, j != nil && j.has(call.ID)); t.class == classLast {
			last = append(last, t)
		}
	}
	waits := slices.ContainsFunc(last, func(t *task) bool { return !j.has(t.ID) })
	for _, call := range m.Calls() {
		asked := findClientCall(pending, call.ID)
		switch {
		case asked == nil:
			if i := slices.IndexFunc(last, func(t *task) bool { return t.ID == call.ID }); i >= 0 && j.has(call.ID) {
				work.tasks = append(work.tasks, last[i])
			}
		case asked.Answer == nil, !j.has(call.ID) && (waits || !asked.isUndecided()):
			waits = true
		default:
			t := a.taskFor(call, *asked)
			t.asked = asked
			t.Decision = asked.decision()
			work.tasks = append(work.tasks, t)
		}
	}
	if superseded {
		cancelFinishing(work.tasks)
	}
	if j != nil {
		work.restore(j.Results)
	}
	var disabled []string
	if j != nil {
		_, _, disabled = splitPlan(j.Plan)
	}
	for _, t := range work.tasks { // a recorded plan stays, whatever is disabled now
		if t.Tool != nil && (j == nil && a.run.isDisabled(t.Name) || slices.Contains(disabled, t.ID)) {
			t.fail(errDisabledSince)
			t.class = classKnown
			t.disabled = true
		}
	}
	// The agent may have changed: an approved or planned call whose tool is now for a client or a sub-agent has
	// nothing to run.
	for _, t := range work.tasks {
		if t.Tool == nil || !isAnsweredElsewhere(t.Tool) {
			continue
		}
		if t.begun {
			t.fail(OutcomeUnknown)
		} else {
			t.fail(errOutside)
		}
		t.class = classKnown
	}
	if waits {
		work.tasks = slices.DeleteFunc(work.tasks, func(t *task) bool { return t.finishes && !t.Recorded && !t.begun })
	}
	return work
}

// has reports whether a step includes a call. Without a plan it includes all.
func (j *Journal) has(id string) bool {
	return j == nil || slices.ContainsFunc(j.Plan.Calls(), func(c agent.ToolCall) bool { return c.ID == id })
}

// isUndecided reports whether a call that needs approval has an answer other than a decision. A decision may
// still replace it, so no plan includes such a call.
func (c *ClientCall) isUndecided() bool {
	return c.Approval && c.Answer != nil && (c.Answer.Error != "" || c.Answer.TimedOut)
}

// mayChange reports whether another answer may replace that of the call: only a decision or a client's result is final.
// A nil call has none.
func (c *ClientCall) mayChange() bool {
	return c != nil && c.Answer != nil && (c.Answer.TimedOut || c.isUndecided())
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
			t.fail(errSupersededByUser)
		case t.class == classLast:
			t.class = classServer // an approved call runs
		}
		t.finishes = false
	}
}

// decision returns the decision on the call, or nil.
func (c *ClientCall) decision() *Decision {
	if !c.Approval || c.Answer == nil || c.isUndecided() {
		return nil
	}
	return &Decision{ApprovalID: c.ApprovalID, Approved: c.Answer.Approved, Reason: c.Answer.Reason}
}

// taskFor returns the task of an answered call.
func (a *answers) taskFor(call agent.ToolCall, asked ClientCall) *task {
	switch answer := *asked.Answer; {
	case answer.TimedOut && asked.Callback:
		return a.run.knownTask(call, errNoCallback)
	case answer.TimedOut:
		return a.run.knownTask(call, errTimedOut)
	case answer.Error != "" && asked.Approval:
		return a.run.knownTask(call, errNotExecuted+": "+answer.Error)
	case answer.Error != "":
		t := a.run.knownTask(call, answer.Error)
		t.Result.PublicError = answer.Public
		t.Result.Synthetic = strings.HasPrefix(answer.Error, callAbandoned)
		return t
	case !asked.Approval:
		return a.clientResult(call, answer)
	case answer.Approved:
		return a.run.classify(call, true)
	default:
		return a.run.knownTask(call, refused(answer.Reason))
	}
}

// clientResult returns a call with the result from a client, a sub-agent or another system.
func (a *answers) clientResult(call agent.ToolCall, answer Answer) *task {
	tool := a.run.tools.tools[call.Name]
	if tool != nil && len(tool.OutputSchema) > 0 {
		if s := compile(tool.OutputSchema); s != nil {
			if err := s.Check(answer.Result); err != nil {
				return a.run.knownTask(call, "the result does not fit: "+err.Error())
			}
		}
	}
	t := a.run.newTask(call)
	t.finishes = a.run.tools.finishes(call.Name)
	t.Result = &agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: answer.Result}
	return t
}

func refused(reason string) string {
	if reason == "" {
		return errRefused
	}
	return errRefused + ": " + reason
}

// notices returns messages that report late answers to the model, and their calls. They precede the model's message in
// the step.
func (a *answers) notices() (messages []agent.Message, reported []string) {
	for n, call := range a.late {
		messages = append(messages, agent.Message{
			ID: a.run.messageID("late", n), Role: agent.RoleContext, Hidden: true,
			Metadata: map[string]string{metadataSource: sourceLateAnswer}, Parts: []agent.Part{agent.Text{Text: lateNotice(call)}},
		})
		reported = append(reported, call.CallID)
	}
	return messages, reported
}

// metadataSource marks the origin of a context message.
const (
	metadataSource   = "source"
	sourceLateAnswer = "late-answer"
)

func lateNotice(c ClientCall) string {
	text := "The answer to the call " + c.CallID + " of " + c.Tool + " came after its deadline: "
	switch {
	case c.Late.Error != "":
		return text + c.Late.Error
	case !c.Approval:
		return text + string(c.Late.Result)
	case c.Late.Approved:
		return text + "it was approved. It was not executed, because no approval arrived in time."
	}
	return text + refused(c.Late.Reason)
}
