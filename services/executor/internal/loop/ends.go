package loop

import (
	"cmp"
	"context"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Message metadata for a new owner: the output is owed, and how often the model has missed it.
const (
	metadataCompletion = "completion"
	completionOwed     = "owed"   // on the note that begins the forced phase
	completionForced   = "forced" // on each reply of the forced phase
	// metadataReason is the completion reason if a limit began the forced phase.
	metadataReason = "completion_reason"
	// metadataReply marks the note that replaces an empty reply.
	metadataReply = "reply"
	replyEmpty    = "empty"
)

// maxMisses is the number of replies in the forced phase that may miss the output.
const maxMisses = 3

// Completion reasons, as in the specification.
const (
	ReasonMaxSteps = "max_steps"
	ReasonStopWhen = "stop_when"
	// A call of agent.FinishTool, or of a tool with FinishWith.
	ReasonFinishTool = "finish_tool"
	ReasonFinishWith = "finish_with"
)

func isForced(m agent.Message) bool { return m.Metadata[metadataCompletion] == completionForced }

// isReply reports whether a message is a reply of the model or replaces one. A failed reply does not count.
func isReply(m agent.Message) bool {
	return m.Role == agent.RoleAssistant && !hasFailed(m) || m.Metadata[metadataReply] == replyEmpty
}

func count(messages []agent.Message, is func(agent.Message) bool) (n int) {
	for _, m := range messages {
		if is(m) {
			n++
		}
	}
	return n
}

// ends decides how a step ends: with the next step, a suspension, or an outcome of the run.
type ends struct {
	run     *run
	answers *answers
	calls   *calls
	verdict *verdict // the guard's verdict on the step, if any
	stop    *Stop    // ends the run early, if set
}

// commit returns the commit of the step, with its messages before and after the model's message.
func (e *ends) commit(tasks []*task, notes ...agent.Message) Commit {
	c := Commit{Step: e.run.step, Answering: e.calls.answering}
	if !c.Answering {
		c.Messages, c.Reported = e.answers.notices()
		if hasContent(e.calls.message) {
			c.Messages = append(c.Messages, e.calls.message)
		}
	}
	for n, t := range tasks {
		result := t.result()
		if result != nil {
			c.Messages = append(c.Messages, agent.Message{ID: e.run.messageID("tool", n), Role: agent.RoleTool, Parts: []agent.Part{*result}})
		}
		if t.asked == nil || result == nil && t.Awaits == nil {
			continue
		}
		c.Consumed = append(c.Consumed, Consumed{t.ID, t.asked.Revision})
		decision := t.Decision
		if t.asked.Callback && t.asked.ApprovalID != "" { // the call had been approved before it ran
			decision = &Decision{ApprovalID: t.asked.ApprovalID, Approved: true}
		}
		if decision != nil && result != nil {
			if c.Decisions == nil {
				c.Decisions = map[string]Decision{}
			}
			c.Decisions[t.ID] = *decision
		}
	}
	var rows []agent.ContextRow
	for _, t := range tasks {
		rows = append(rows, t.context()...)
	}
	c.Messages = append(c.Messages, e.run.contextMessages(agent.ContextOfTool, rows)...)
	c.Messages = append(c.Messages, notes...)
	return c
}

// settle commits a step whose calls have ended.
func (e *ends) settle() Effect {
	var notes []agent.Message
	var outcome *Outcome
	if winner := e.calls.finishingCall(); winner != nil && winner.result() != nil {
		judges := e.run.start.Agent.Guard.OnOutput != nil && e.verdict == nil && winner.Name != agent.FinishTool
		if judges && winner.result().Success && e.outputMismatch(winner) == "" {
			return e.consultGuard(false, winner.result().Result)
		}
		var feedback string
		if outcome, feedback = e.finishOutcome(winner); feedback != "" {
			notes = append(notes, e.run.note(0, feedback, nil))
		}
	}
	c := e.commit(e.calls.tasks, notes...)
	if outcome == nil {
		var note *agent.Message
		if outcome, note = e.afterStep(c); note != nil {
			c.Messages = append(c.Messages, *note)
		}
	}
	c.Outcome = outcome
	return c
}

// completionReason returns the limit that began the forced phase.
func (e *ends) completionReason(transcript []agent.Message) string {
	for _, m := range e.run.messages(transcript) {
		if reason := m.Metadata[metadataReason]; reason != "" {
			return reason
		}
	}
	if e.run.owed(transcript) && !e.run.inForcedPhase(transcript) {
		return ReasonMaxSteps
	}
	return ""
}

// checkLimits returns the outcome if the conversation has reached a limit. If the step limit only begins the forced
// phase, it returns the reason instead.
func (e *ends) checkLimits(transcript []agent.Message) (o *Outcome, reason string) {
	capped := e.run.replyCount(transcript) >= e.run.maxSteps()
	switch {
	case e.run.owed(transcript) && count(e.run.messages(transcript), isForced) >= maxMisses:
		failure := missedFailure()
		return &Outcome{
			Status: StatusFailed, FinishReason: model.FinishError, Failure: &failure, CompletionReason: e.completionReason(transcript),
		}, ""
	case capped && e.run.hasOutput():
		return nil, ReasonMaxSteps
	case capped:
		o := MaxStepsOutcome(e.run.maxSteps())
		return &o, ""
	}
	return nil, ""
}

// MaxStepsOutcome is the end of a run that has used up its steps.
func MaxStepsOutcome(most int) Outcome {
	failure := maxStepsFailure(most)
	return Outcome{Status: StatusFailed, FinishReason: model.FinishToolCalls, Failure: &failure, CompletionReason: ReasonMaxSteps}
}

// afterStep decides the next effect after a step without an end of its own: an outcome, the note before the forced
// phase, or nothing.
func (e *ends) afterStep(c Commit) (o *Outcome, note *agent.Message) {
	transcript := e.run.with(c.Messages)
	if answered, open := e.answers.answered(transcript, e.answers.after(c), nil); len(answered.tasks) > 0 {
		return nil, nil // the next step handles them
	} else if len(open) > 0 {
		return stillSuspended(transcript, open), nil
	}
	forced := e.run.inForcedPhase(transcript)
	stops, err := false, error(nil)
	if !forced {
		stops, err = e.stopsWhen(transcript)
	}
	if err != nil && e.run.maxSteps() == agent.NoMaxSteps { // no other limit might ever end the run
		failure := InternalFailure(err)
		return &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: &failure}, nil
	}
	if stops {
		if !e.run.hasOutput() {
			return &Outcome{
				Status: StatusCompleted, Output: quote(e.calls.message.Text()), FinishReason: cmp.Or(e.calls.finish, model.FinishToolCalls),
				CompletionReason: ReasonStopWhen,
			}, nil
		}
		return nil, e.oweNote(ReasonStopWhen)
	}
	o, reason := e.checkLimits(transcript)
	if o == nil && reason != "" && !forced {
		return nil, e.oweNote(reason)
	}
	return o, nil
}

// stopsWhen asks the agent whether to end the run after a step. An error means no.
func (e *ends) stopsWhen(transcript []agent.Message) (bool, error) {
	if e.run.start.Agent.StopWhen == nil {
		return false, nil
	}
	progress := &agent.Progress{
		RunView: e.run.view(e.run.currentState()), Steps: e.run.replyCountWith(e.calls.message), Reply: e.calls.message,
	}
	for _, call := range e.calls.message.Calls() {
		for _, m := range transcript {
			for _, result := range m.Results() {
				if result.CallID == call.ID {
					progress.Results = append(progress.Results, result)
				}
			}
		}
	}
	stopWhen := e.run.start.Agent.StopWhen
	return callFunction(e.run, "StopWhen", func(ctx context.Context) (bool, error) { return stopWhen(ctx, progress) })
}

// oweNote returns the note that begins the forced phase.
func (e *ends) oweNote(reason string) *agent.Message {
	metadata := map[string]string{metadataCompletion: completionOwed}
	if reason != "" {
		metadata[metadataReason] = reason
	}
	note := e.run.note(1, e.run.tools.outputInstruction(), metadata)
	return &note
}

// endText returns the effect after a reply without calls.
func (e *ends) endText() Effect {
	if e.run.hasOutput() {
		return e.endMissed()
	}
	text := quote(e.calls.message.Text())
	if e.run.start.Agent.Guard.OnReply != nil && e.verdict == nil {
		return e.consultGuard(true, text)
	}
	c := e.commit(nil)
	failure := e.verdict.failure()
	switch {
	case failure != nil:
		c.Outcome = &Outcome{Status: StatusFailed, FinishReason: model.FinishError, Failure: failure}
	case e.verdict != nil && e.verdict.Revise != "":
		note := e.run.note(0, e.verdict.Revise, nil)
		e.useNoteAsReply(&note)
		c.Messages = append(c.Messages, note)
		c.Outcome, _ = e.afterStep(c)
	default:
		c.Outcome = &Outcome{Status: StatusCompleted, Output: text, FinishReason: e.calls.finish}
	}
	return c
}

// endMissed returns the effect after a reply without calls in the forced phase.
func (e *ends) endMissed() Effect {
	c := e.commit(nil)
	switch {
	case !e.run.outputOwed():
		_, note := e.afterStep(c)
		if note == nil {
			note = e.oweNote("")
		}
		e.useNoteAsReply(note)
		c.Messages = append(c.Messages, *note)
	case !hasContent(e.calls.message):
		note := e.run.note(1, e.run.tools.outputInstruction(), map[string]string{metadataCompletion: completionForced})
		e.useNoteAsReply(&note)
		c.Messages = append(c.Messages, note)
	}
	c.Outcome, _ = e.checkLimits(e.run.with(c.Messages))
	return c
}

// useNoteAsReply lets a note count as the reply if the reply is empty and so has no message.
func (e *ends) useNoteAsReply(note *agent.Message) {
	if hasContent(e.calls.message) {
		return
	}
	if note.Metadata == nil {
		note.Metadata = map[string]string{}
	}
	note.Metadata[metadataReply] = replyEmpty
}
