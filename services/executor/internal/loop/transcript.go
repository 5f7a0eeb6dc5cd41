package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// What the model is told of calls that have no result of their tool. The words before
// a colon are the specification's causes.
const (
	errNotExecuted = "not executed"
	errUnknown     = "the process that ran this call was lost, and it is not known whether the call took effect; " +
		"check before you call it again"
	errSuperseded      = "superseded_by_terminal_call: another call of the same reply finishes the run, so this one was not made"
	errStopped         = "run_stopped: the run was stopped before this call was made"
	errRunFailed       = "run_stopped: the run failed before this call was made"
	errStoppedUnderway = "run_stopped: the run was stopped while this call was under way, and it is not known whether it took effect; " +
		"check before you call it again"
	errOvertaken    = "not executed: the user has written since"
	errOutside      = "not executed: the tool is answered from outside now, and was not when somebody said yes to this call"
	errRefused      = "a human has refused this call, so it was not made"
	errTimedOut     = "nobody answered this call in time"
	errNotOneFinish = "not executed: exactly one call that finishes the run is wanted, and nothing else"
)

// What the errors of calls begin with that cannot be made.
const (
	errNoTool    = "there is no tool "
	errArguments = "the arguments "
)

// Refused reports whether the result of a call was known as soon as the model had made
// it: there is no such tool, its arguments do not fit, or a stop or a failure has cut the
// message that it is of. Nobody runs such a call, neither here nor outside. It says the same of the
// result when that was stored.
func Refused(message agent.Message, result agent.ToolResult) bool {
	if result.Success || !result.Synthetic {
		return false
	}
	return message.Metadata[agent.MetadataInterrupted] != "" || hasFailed(message) || result.Error == errNotOneFinish ||
		strings.HasPrefix(result.Error, errNoTool) || strings.HasPrefix(result.Error, errArguments)
}

// conversation is the transcript as a model may see it: behind each assistant
// message with calls stands one tool message with the result of every call, in
// their order. A call that was never answered gets a synthetic result, and of a message
// that was cut short the thoughts are left out. A message that has failed is left out with
// its results: the model did not mean it as a reply. The transcript itself stays as it is.
func conversation(transcript []agent.Message) []agent.Message {
	return appendConversation(make([]agent.Message, 0, len(transcript)), transcript)
}

// appendConversation appends the conversation of a transcript whose results are all of its own calls.
func appendConversation(messages, transcript []agent.Message) []agent.Message {
	results := resultsByCall(transcript)
	for _, m := range transcript {
		if m.Role == agent.RoleTool {
			continue // stands behind its calls already
		}
		if m.Metadata[agent.MetadataInterrupted] != "" {
			m.Parts = slices.DeleteFunc(slices.Clone(m.Parts), func(part agent.Part) bool {
				_, thought := part.(agent.Reasoning)
				return thought
			})
		}
		if m.Role == agent.RoleAssistant && (!says(m) || hasFailed(m)) {
			continue
		}
		messages = append(messages, m)
		if calls := m.Calls(); len(calls) > 0 {
			messages = append(messages, answers(m, calls, results))
		}
	}
	return messages
}

// resultsByCall gives the first result of each call.
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

// conversationCache keeps the conversation of a transcript that grows. The zero value is that of none.
type conversationCache struct {
	messages []agent.Message // the conversation
	covered  int             // how much of the transcript it has
	summed   bool            // summaries are among that
}

// of gives the conversation of a transcript that begins with the former one. It is not to be changed.
func (c *conversationCache) of(transcript []agent.Message) []agent.Message {
	added := transcript[c.covered:]
	if c.covered > 0 && answersOthers(added) { // as the results of a drain do
		*c, added = conversationCache{}, transcript
	}
	c.messages = appendConversation(c.messages, added)
	c.covered = len(transcript)
	c.summed = c.summed || slices.ContainsFunc(added, isSummary)
	return c.messages[:len(c.messages):len(c.messages)]
}

// answersOthers reports whether one of the messages has a result of a call that none of them has.
func answersOthers(messages []agent.Message) bool {
	calls := callIDs(messages)
	for id := range answeredIDs(messages) {
		if !calls[id] {
			return true
		}
	}
	return false
}

// hasFailed reports whether the message is what came of a reply that has failed.
func hasFailed(m agent.Message) bool { return m.Metadata[agent.MetadataFailed] != "" }

func answers(m agent.Message, calls []agent.ToolCall, results map[string]agent.ToolResult) agent.Message {
	answer := agent.Message{ID: m.ID + "/results", Role: agent.RoleTool}
	for _, call := range calls {
		result, ok := results[call.ID]
		if !ok {
			result = failedResult(call, errNotExecuted)
		}
		answer.Parts = append(answer.Parts, result)
	}
	return answer
}

// failedResult is the runtime's own answer to a call.
func failedResult(call agent.ToolCall, reason string) agent.ToolResult {
	return agent.ToolResult{CallID: call.ID, Name: call.Name, Error: reason, Synthetic: true}
}

// callIDs is the set of all call ids of the transcript.
func callIDs(transcript []agent.Message) map[string]bool {
	ids := map[string]bool{}
	for _, m := range transcript {
		for _, call := range m.Calls() {
			ids[call.ID] = true
		}
	}
	return ids
}

// answeredIDs is the set of the ids of calls with a result.
func answeredIDs(transcript []agent.Message) map[string]bool {
	ids := map[string]bool{}
	for _, m := range transcript {
		for _, result := range m.Results() {
			ids[result.CallID] = true
		}
	}
	return ids
}
