package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// OutcomeUnknown is the result of a call whose process was lost, or whose endpoint has not answered to the end.
const OutcomeUnknown = "the process that ran this call was lost, and it is not known whether the call took effect; " +
	"check before you call it again"

// Results of calls without a result of their tool. The words before a colon are the specification's causes.
const (
	errNotExecuted     = "not executed"
	errSuperseded      = "superseded_by_terminal_call: another call of the same reply finishes the run, so this one was not made"
	errStopped         = "run_stopped: the run was stopped before this call was made"
	errRunFailed       = "run_stopped: the run failed before this call was made"
	errStoppedUnderway = "run_stopped: the run was stopped while this call was under way, and it is not known whether it took effect; " +
		"check before you call it again"
	errSupersededByUser = "not executed: the user has sent a new message since"
	errOutside          = "not executed: the tool is a client tool or a sub-agent now, and was not when this call was approved"
	errRefused          = "a human has refused this call, so it was not made"
	errTimedOut         = "no answer to this call arrived in time"
	errNoCallback       = "callback_timeout: the system that took this call over has not sent its result in time, and it is not known whether " +
		"the call took effect; check before you call it again"
	errTooDeep          = "not executed: an agent at depth %d of its tree cannot call sub-agents; do the task without them"
	errTooManySubAgents = "not executed: one step may call %d sub-agents; call the others in a later step"
	errTooManyCalls     = errTooMany + "%d calls; make this one in a later reply"
	errToolDisabled     = errDisabled + "the tool is disabled at the moment, so this call was not made"
	errDisabledSince    = "not executed: tool_disabled: the tool was disabled after this call was made"
	errNotOneFinish     = "not executed: call exactly one tool that finishes the run, and no other tool"
)

// Prefixes of the errors of impossible calls.
const (
	errTooMany   = "not executed: one reply may make "
	errNoTool    = "there is no tool "
	errArguments = "the arguments "
	errDisabled  = "tool_disabled: " // the tool is disabled, and was when the model made the call
)

// IsRefused reports whether a call's result was known as soon as the model made the call: the tool does not exist or is
// disabled, the arguments are invalid, the reply has too many calls, or a stop or a failure interrupted the message. Such a call is
// never executed. The same holds for the stored result.
func IsRefused(message agent.Message, result agent.ToolResult) bool {
	if result.Success || !result.Synthetic {
		return false
	}
	return message.Metadata[agent.MetadataInterrupted] != "" || hasFailed(message) || result.Error == errNotOneFinish ||
		strings.HasPrefix(result.Error, errTooMany) || strings.HasPrefix(result.Error, errNoTool) ||
		strings.HasPrefix(result.Error, errArguments) || strings.HasPrefix(result.Error, errDisabled)
}

// conversation appends the transcript for a model to messages. The transcript contains the calls of all its results. Each
// assistant message with calls is followed by one tool message with the results of all its calls, in order. An
// unanswered call receives a synthetic result. An interrupted message loses its reasoning. A failed message is left out
// with its results, because it is not a reply of the model. The transcript itself does not change.
func conversation(messages, transcript []agent.Message) []agent.Message {
	results := resultsByCall(transcript)
	for _, m := range transcript {
		if m.Role == agent.RoleTool {
			continue // already behind its calls
		}
		if m.Metadata[agent.MetadataInterrupted] != "" {
			m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(part agent.Part) bool {
				_, thought := part.(agent.Reasoning)
				return thought
			})
		}
		if m.Role == agent.RoleAssistant && (!hasContent(m) || hasFailed(m)) {
			continue
		}
		messages = append(messages, m)
		if calls := m.Calls(); len(calls) > 0 {
			messages = append(messages, resultsMessage(m, calls, results))
		}
	}
	return messages
}

// resultsByCall returns the first result of each call.
func resultsByCall(transcript []agent.Message) map[string]agent.ToolResult {
	results := map[string]agent.ToolResult{}
	for _, m := range transcript {
		for _, part := range m.Parts {
			if r, ok := part.(agent.ToolResult); ok {
				if _, repeated := results[r.CallID]; !repeated {
					results[r.CallID] = r
				}
			}
		}
	}
	return results
}

// conversationCache caches the conversation of a growing transcript. The zero value is empty.
type conversationCache struct {
	messages []agent.Message // the conversation
	covered  int             // number of transcript messages covered
	summed   bool            // the covered messages include summaries
	taught   bool            // the covered messages include lessons of refusals
}

// of returns the conversation of a transcript that extends the previous one. It must not be modified.
func (c *conversationCache) of(transcript []agent.Message) []agent.Message {
	added := transcript[c.covered:]
	if c.covered > 0 && hasForeignResults(added) { // for example the results of answered calls
		*c = conversationCache{}
		added = transcript
	}
	c.messages = conversation(c.messages, added)
	c.covered = len(transcript)
	c.summed = c.summed || slices.ContainsFunc(added, isSummary)
	c.taught = c.taught || slices.ContainsFunc(added, isLesson)
	return c.messages[:len(c.messages):len(c.messages)]
}

// hasForeignResults reports whether the messages contain a result without its call.
func hasForeignResults(messages []agent.Message) bool {
	calls := callIDs(messages)
	for id := range answeredIDs(messages) {
		if !calls[id] {
			return true
		}
	}
	return false
}

// hasFailed reports whether the message is a failed reply.
func hasFailed(m agent.Message) bool { return m.Metadata[agent.MetadataFailed] != "" }

// resultsSuffix makes the id of the message with the results of a message's calls.
const resultsSuffix = "/results"

func resultsMessage(m agent.Message, calls []agent.ToolCall, results map[string]agent.ToolResult) agent.Message {
	answer := agent.Message{ID: m.ID + resultsSuffix, Role: agent.RoleTool}
	for _, call := range calls {
		result, ok := results[call.ID]
		if !ok {
			result = failedResult(call, errNotExecuted)
		}
		answer.Parts = append(answer.Parts, result)
	}
	return answer
}

// failedResult returns the runtime's own result for a call.
func failedResult(call agent.ToolCall, reason string) agent.ToolResult {
	return agent.ToolResult{CallID: call.ID, Name: call.Name, Error: reason, Synthetic: true}
}

// callIDs returns the set of all call ids in the transcript.
func callIDs(transcript []agent.Message) map[string]bool {
	ids := map[string]bool{}
	for _, m := range transcript {
		for _, call := range m.Calls() {
			ids[call.ID] = true
		}
	}
	return ids
}

// answeredIDs returns the set of ids of calls with a result.
func answeredIDs(transcript []agent.Message) map[string]bool {
	ids := map[string]bool{}
	for _, m := range transcript {
		for _, result := range m.Results() {
			ids[result.CallID] = true
		}
	}
	return ids
}
