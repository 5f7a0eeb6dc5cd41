package loop

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// suspend commits what has ended and leaves the rest to whoever is outside. A call
// that finishes the run stays unanswered: the step that takes the last answer does it.
func (p *Planner) suspend() Effect {
	c := p.commit(p.work.tasks)
	c.Outcome = &Outcome{Status: StatusSuspendedClientTool, FinishReason: model.FinishToolCalls}
	for _, t := range p.work.tasks {
		if t.end != nil {
			c.Outcome.Status = StatusSuspendedPartial
		}
	}
	for _, t := range p.work.open() {
		call := OpenCall{ToolCall: t.ToolCall, AnswerWithin: t.Tool.AnswerWithin}
		if !t.Tool.Client {
			call.Approval, call.ApprovalID = true, approvalID(p.start.Run, p.step, t.ID)
		}
		c.Suspend = append(c.Suspend, call)
	}
	return c
}

// suspendedAgain is the end of a run that waits for what an earlier step has left
// open, in the conversation as it is then.
func suspendedAgain(transcript []agent.Message, open []Asked) *Outcome {
	status := StatusSuspendedClientTool
	answered := answeredIDs(transcript)
	for _, m := range transcript {
		calls := m.Calls()
		waits := slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return askedOf(open, c.ID) != nil })
		if waits && slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return answered[c.ID] }) {
			status = StatusSuspendedPartial
		}
	}
	return &Outcome{Status: status, FinishReason: model.FinishToolCalls}
}

// askedOf gives the question of a call, nil where there is none.
func askedOf(asked []Asked, id string) *Asked {
	for i := range asked {
		if asked[i].CallID == id {
			return &asked[i]
		}
	}
	return nil
}
