package loop

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// suspend commits the ended calls and leaves the rest to clients and sub-agents. A call that finishes the run
// stays unanswered: the step that applies the last answer executes it.
func (e *ends) suspend() Effect {
	c := e.commit(e.calls.tasks)
	ended := slices.ContainsFunc(e.calls.tasks, func(t *task) bool { return t.end != nil })
	for _, t := range e.calls.open() {
		c.Suspend = append(c.Suspend, e.openCall(t))
	}
	asksClient := slices.ContainsFunc(c.Suspend, func(o OpenCall) bool { return o.SubAgent == "" && o.Until == 0 })
	c.Outcome = suspended(asksClient || slices.ContainsFunc(e.answers.pending, ClientCall.asksClient), ended)
	return c
}

// asksClient reports whether the call is open, for a client or a human.
func (c ClientCall) asksClient() bool { return c.Answer == nil && !c.SubAgent && !c.Callback }

func (e *ends) openCall(t *task) OpenCall {
	switch {
	case t.Awaits != nil && t.Awaits.isCallback():
		return OpenCall{ToolCall: t.ToolCall, Until: t.Awaits.Until}
	case t.Awaits != nil:
		return OpenCall{ToolCall: t.ToolCall, SubAgent: t.Awaits.AgentType, SessionID: t.Awaits.SessionID, Begun: true}
	}
	call := OpenCall{ToolCall: t.ToolCall, AnswerWithin: toMillis(t.Tool.AnswerWithin)}
	switch {
	case t.Tool.SubAgent != "":
		call.SubAgent = t.Tool.SubAgent
		call.SessionID = e.run.start.NewSessionID()
		call.Message = firstMessage(t.Arguments)
		call.AnswerWithin = toMillis(t.Tool.Timeout)
	case !t.Tool.Client:
		call.Approval = true
		call.ApprovalID = approvalID(e.run.start.Run, e.run.step, t.ID)
		call.Approvers = t.Tool.Approvers
	}
	return call
}

// firstMessage returns the first message of a sub-agent.
func firstMessage(arguments json.RawMessage) string {
	var members map[string]any
	if json.Unmarshal(arguments, &members) == nil && len(members) == 1 {
		if message, ok := members["message"].(string); ok {
			return message
		}
	}
	return string(arguments)
}

// toMillis converts a time.Duration and rounds up: 0 means no limit.
func toMillis[Duration ~int64](d Duration) Millis { return Millis((d + 999_999) / 1_000_000) }

// suspended returns the outcome of a suspension. asksClient means that one of the open calls waits for a client or a human:
// the others wait for sub-agents and other systems. ended means that other calls of the step have ended.
func suspended(asksClient, ended bool) *Outcome {
	status := StatusSuspendedClientTool
	switch {
	case !asksClient:
		status = StatusSuspendedChildren
	case ended:
		status = StatusSuspendedPartial
	}
	return &Outcome{Status: status, FinishReason: model.FinishToolCalls}
}

// stillSuspended returns the outcome of a run that still waits for calls of an earlier step.
func stillSuspended(transcript []agent.Message, open []ClientCall) *Outcome {
	ended, answered := false, answeredIDs(transcript)
	for _, m := range transcript {
		calls := m.Calls()
		waits := slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return findClientCall(open, c.ID) != nil })
		ended = ended || waits && slices.ContainsFunc(calls, func(c agent.ToolCall) bool { return answered[c.ID] })
	}
	return suspended(slices.ContainsFunc(open, ClientCall.asksClient), ended)
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
