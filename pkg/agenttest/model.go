package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

// Model is a scripted model. It must depend on the request alone: after a crash it is asked again.
type Model func(r executor.ModelRequest) (Reply, error)

// Reply is a reply of a model: a text, calls or both, or a failure.
type Reply struct {
	Text  string
	Calls []ToolCall
	// Failure is the code of a provider's failure, such as executor.CodeOverloaded; empty for none. Overloads,
	// outages and timeouts are retried.
	Failure string
}

// ToolCall is a call in a reply.
type ToolCall struct {
	Tool      string
	Arguments string // JSON
}

// Text is a reply without calls.
func Text(text string) Reply { return Reply{Text: text} }

// Call is a reply with a call of a tool. The arguments are JSON.
func Call(tool, arguments string) Reply { return Reply{Calls: []ToolCall{{tool, arguments}}} }

// Fail is a failed model call, with the code of a provider's failure.
func Fail(code string) Reply { return Reply{Failure: code} }

// And returns the reply with one more call.
func (r Reply) And(tool, arguments string) Reply {
	r.Calls = append(r.Calls[:len(r.Calls):len(r.Calls)], ToolCall{tool, arguments})
	return r
}

// Replies is a model that gives the replies in turn: the first one at the beginning of a session, and the next one
// after each reply in the conversation. Two sessions receive the same replies. Each failure is given once in the
// test. A request beyond the last reply fails the test.
func Replies(replies ...Reply) Model {
	var mu sync.Mutex
	failed := map[int]bool{} // by its index in replies
	return func(r executor.ModelRequest) (Reply, error) {
		mu.Lock()
		defer mu.Unlock()
		replied := 0
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				replied++
			}
		}
		for i, reply := range replies {
			switch {
			case reply.Failure == "" && replied == 0:
				return reply, nil
			case reply.Failure == "":
				replied--
			case replied == 0 && !failed[i]:
				failed[i] = true
				return reply, nil
			}
		}
		return Reply{}, fmt.Errorf("the model of %q has no reply for %d messages: give it more replies", r.Model, len(r.Messages))
	}
}

// provider is the provider of all models in a test.
const provider = "agenttest"

// models serves the models of all agents, by the name of the agent.
type models struct {
	t      *testing.T
	models map[string]Model
}

// Generate gives the reply of the agent's model.
func (m models) Generate(_ context.Context, r executor.ModelRequest) iter.Seq2[executor.ModelEvent, error] {
	return func(yield func(executor.ModelEvent, error) bool) {
		model, ok := m.models[r.Model]
		if !ok {
			model = func(executor.ModelRequest) (Reply, error) {
				return Reply{}, fmt.Errorf("Config.Models has no model for the agent %q", r.Model)
			}
		}
		reply, err := model(r)
		if err != nil {
			m.t.Error(err)
			reply.Failure = executor.CodeInvalidRequest
		}
		if reply.Failure != "" {
			yield(nil, &executor.ModelError{Code: reply.Failure, Retryable: isRetryable(reply.Failure), Message: "scripted failure"})
			return
		}
		for _, e := range reply.events(len(r.Messages)) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func isRetryable(code string) bool {
	switch code {
	case executor.CodeRateLimited, executor.CodeOverloaded, executor.CodeUnavailable, executor.CodeTimeout:
		return true
	}
	return false
}

// events are the pieces of the reply. The ids of calls are unique in a conversation: they contain its length.
func (r Reply) events(messages int) []executor.ModelEvent {
	var events []executor.ModelEvent
	if r.Text != "" {
		events = append(events, executor.TextDelta{Text: r.Text})
	}
	for i, c := range r.Calls {
		events = append(events, executor.CallStart{Index: i, ID: fmt.Sprintf("call_%d_%d", messages, i+1), Name: c.Tool})
		if c.Arguments != "" {
			events = append(events, executor.CallDelta{Index: i, Text: c.Arguments})
		}
		events = append(events, executor.CallEnd{Index: i, Arguments: arguments(c.Arguments)})
	}
	reason := executor.FinishStop
	if len(r.Calls) > 0 {
		reason = executor.FinishToolCalls
	}
	return append(events, executor.Finish{Reason: reason})
}

// arguments are the arguments as a model gives them: {} for none, a JSON string for a text other than JSON.
func arguments(text string) json.RawMessage {
	switch {
	case text == "":
		return json.RawMessage("{}")
	case json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always valid
	}
	return quoted
}
