package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// modelFunc is a model made of a function. Its say sends an event.
type modelFunc func(ctx context.Context, r model.Request, say func(model.Event) bool) error

func (m modelFunc) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		stopped := false
		err := m(ctx, r, func(e model.Event) bool {
			stopped = stopped || !yield(e, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// sendText sends a reply with text.
func sendText(say func(model.Event) bool, texts ...string) {
	for _, text := range texts {
		if !say(model.TextDelta{Text: text}) {
			return
		}
	}
	say(model.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15})
	say(model.Finish{Reason: model.FinishStop})
}

// sendCalls sends a reply with calls: name, arguments, name, arguments, …
func sendCalls(say func(model.Event) bool, calls ...string) {
	for i := 0; i < len(calls); i += 2 {
		say(model.CallStart{Index: i, ID: fmt.Sprintf("call_%d", i/2), Name: calls[i]})
		say(model.CallDelta{Index: i, Text: calls[i+1]})
		say(model.CallEnd{Index: i, Arguments: json.RawMessage(calls[i+1])})
	}
	say(model.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15})
	say(model.Finish{Reason: model.FinishToolCalls})
}

// endsWithResults reports whether the conversation ends with results of calls.
func endsWithResults(r model.Request) bool {
	return r.Messages[len(r.Messages)-1].Role == agent.RoleTool
}

func define(name string, m model.Model, tools ...agent.Tool) catalog.Agent {
	return catalog.Agent{Agent: agent.Agent{Name: name, Model: "fake/mind", SystemPrompt: "Be brief.", Tools: tools}, Models: map[string]model.Model{"fake/mind": m}}
}

var anyObject = json.RawMessage(`{"type": "object"}`)

// stepReplies is a model with one reply for each step: the next one after so many assistant messages.
func stepReplies(steps ...func(say func(model.Event) bool)) modelFunc {
	return func(_ context.Context, r model.Request, say func(model.Event) bool) error {
		n := 0
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				n++
			}
		}
		if n >= len(steps) {
			return fmt.Errorf("the model has nothing to say to %d messages", len(r.Messages))
		}
		steps[n](say)
		return nil
	}
}

func textReply(words ...string) func(func(model.Event) bool) {
	return func(say func(model.Event) bool) { sendText(say, words...) }
}

func callsReply(calls ...string) func(func(model.Event) bool) {
	return func(say func(model.Event) bool) { sendCalls(say, calls...) }
}
