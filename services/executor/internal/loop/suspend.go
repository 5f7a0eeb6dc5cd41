package loop

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// suspend commits the ended calls and leaves the rest to clients. A call that finishes the run stays unanswered:
// the step that applies the last answer executes it.
func (p *Planner) suspend() Effect {
	c := p.commit(p.work.tasks)
	c.Outcome = &Outcome{Status: StatusSuspendedClientTool, FinishReason: model.FinishToolCalls}
	for _, t := range p.work.tasks {
		if t.end != nil {
			c.Outcome.Status = StatusSuspendedPartial
		}
	}
	for _, t := range p.work.open() {
		call := OpenCall{ToolCall: t.ToolCall, AnswerWithin: Millis((t.Tool.AnswerWithin + 999_999) / 1_000_000)} // rounded up: 0 means no limit
		if !t.Tool.Client {
			call.Approval, call.ApprovalID = true, approvalID(p.start.Run, p.step, t.ID)
		}
		c.Suspend = append(c.Suspend, call)
	}
	return c
}

// suspendedAgain returns the outcome of a run that still waits for calls of an earlier step.
func suspendedAgain(transcript []agent.Message, open []ClientCall) *Outcome {
	status := StatusSuspendedClientTool
	answered := answeredIDs(transcript)
	for _, m := range transcript {
		calls := m.Calls()
		waits := slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return findClientCall(open, c.ID) != nil })
		if waits && slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return answered[c.ID] }) {
			status = StatusSuspendedPartial
		}
	}
	return &Outcome{Status: status, FinishReason: model.FinishToolCalls}
}

// findClientCall returns the question of a call, or nil.
func findClientCall(asked []ClientCall, id string) *ClientCall {
	for i := range asked {
		if asked[i].CallID == id {
			return &asked[i]
		}
	}
	return nil
}
