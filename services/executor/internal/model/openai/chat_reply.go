package openai

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The bounds of one reply.
const (
	maxCalls     = 256
	maxArguments = 8 << 20 // bytes, of one call
)

// reply puts the chunks of one completion together. It does no I/O.
type reply struct {
	ids       *model.IDs
	thinking  bool
	refused   bool
	calls     []*call
	byIndex   map[int64]*call // the open call of each index on the wire
	usage     *model.Usage
	finish    string // the finish_reason, "" before it
	usageLast bool   // the usage came with or after the finish_reason
}

type call struct {
	index     int // among the calls of the reply, in the order of their beginning
	wireID    string
	name      string
	started   bool
	arguments strings.Builder
}

func newReply(messages int) *reply {
	return &reply{ids: model.NewIDs(messages), byIndex: make(map[int64]*call)}
}

// finished says whether the finish_reason came.
func (r *reply) finished() bool { return r.finish != "" }

// whole says whether nothing more is to be waited for.
func (r *reply) whole() bool { return r.finished() && r.usageLast }

// take gives the events of a chunk.
func (r *reply) take(chunk openai.ChatCompletionChunk) ([]model.Event, error) {
	var events []model.Event
	for _, choice := range chunk.Choices {
		if choice.Index != 0 || r.finished() {
			continue
		}
		events = append(events, r.say(choice.Delta)...)
		for _, fragment := range choice.Delta.ToolCalls {
			more, err := r.call(fragment)
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
		if choice.FinishReason != "" {
			r.finish = choice.FinishReason
			more, err := r.close()
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
	}
	if chunk.JSON.Usage.Valid() {
		u := chunk.Usage
		r.usage = &model.Usage{
			PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
			ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens,
			CachedTokens:    u.PromptTokensDetails.CachedTokens,
		}
		r.usageLast = r.finished()
	}
	return events, nil
}

// say gives the events of what is thought and said.
func (r *reply) say(delta openai.ChatCompletionChunkChoiceDelta) []model.Event {
	var events []model.Event
	if thought := reasoning(delta); thought != "" {
		r.thinking = true
		events = append(events, model.ReasoningDelta{Text: thought})
	}
	if delta.Content != "" || delta.Refusal != "" || len(delta.ToolCalls) > 0 {
		events = append(events, r.stopThinking()...)
	}
	if delta.Content != "" {
		events = append(events, model.TextDelta{Text: delta.Content})
	}
	if delta.Refusal != "" {
		r.refused = true
		events = append(events, model.TextDelta{Text: delta.Refusal})
	}
	return events
}

// reasoning reads the fields that compatible servers have for it. Those that
// fill both put the same text into them.
func reasoning(delta openai.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var text string
		if field, ok := delta.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(field.Raw()), &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

func (r *reply) stopThinking() []model.Event {
	if !r.thinking {
		return nil
	}
	r.thinking = false
	return []model.Event{model.ReasoningEnd{}}
}

// call gives the events of a fragment of a call.
func (r *reply) call(fragment openai.ChatCompletionChunkChoiceDeltaToolCall) ([]model.Event, error) {
	c := r.byIndex[fragment.Index]
	if c == nil || c.another(fragment) {
		if len(r.calls) == maxCalls {
			return nil, model.Unreadable("more than %d calls in one reply", maxCalls)
		}
		c = &call{index: len(r.calls)}
		r.calls = append(r.calls, c)
		r.byIndex[fragment.Index] = c
	}
	if c.wireID == "" {
		c.wireID = fragment.ID
	}
	if c.name == "" {
		c.name = fragment.Function.Name
	}
	text := fragment.Function.Arguments
	if c.arguments.Len()+len(text) > maxArguments {
		return nil, model.Unreadable("the arguments of a call are longer than %d bytes", maxArguments)
	}
	c.arguments.WriteString(text)
	switch {
	case c.name == "":
		return nil, nil // the name may still come
	case !c.started:
		return r.start(), nil
	case text != "":
		return []model.Event{model.CallDelta{Index: c.index, Text: text}}, nil
	}
	return nil, nil
}

// another says whether a fragment with the index of the call begins another one:
// some servers give every call the index 0, and some of these no ids.
func (c *call) another(fragment openai.ChatCompletionChunkChoiceDeltaToolCall) bool {
	if fragment.ID != "" && c.wireID != "" {
		return fragment.ID != c.wireID
	}
	return fragment.ID == "" && c.wireID == "" && c.name != "" && fragment.Function.Name != "" &&
		strings.TrimSpace(fragment.Function.Arguments) != "" && json.Valid([]byte(c.arguments.String()))
}

// start begins the calls whose names are known, with what of their arguments came
// before. Calls begin in order, so one that waits for its name holds back those
// after it.
func (r *reply) start() []model.Event {
	var events []model.Event
	for _, next := range r.calls {
		if next.started {
			continue
		}
		if next.name == "" {
			return events
		}
		next.started = true
		events = append(events, model.CallStart{Index: next.index, ID: r.ids.Next(next.wireID, next.index), Name: next.name})
		if next.arguments.Len() > 0 {
			events = append(events, model.CallDelta{Index: next.index, Text: next.arguments.String()})
		}
	}
	return events
}

// close ends the reasoning and the calls.
func (r *reply) close() ([]model.Event, error) {
	events := r.stopThinking()
	for _, c := range r.calls {
		if !c.started {
			return events, model.Unreadable("a call has no name")
		}
		events = append(events, model.CallEnd{Index: c.index, Arguments: model.Arguments(c.arguments.String())})
	}
	return events, nil
}

// end gives the usage and the finish of a reply that is over, or says that it was cut off.
func (r *reply) end() ([]model.Event, error) {
	if !r.finished() {
		return nil, model.CutOff("a finish_reason")
	}
	var events []model.Event
	if r.usage != nil {
		events = append(events, *r.usage)
	}
	return append(events, model.Finish{Reason: r.reason()}), nil
}

func (r *reply) reason() model.FinishReason {
	switch r.finish {
	case "stop", "tool_calls", "function_call":
		switch {
		case len(r.calls) > 0:
			return model.FinishToolCalls // some servers say "stop" here
		case r.refused:
			return model.FinishContentFilter
		case r.finish == "stop":
			return model.FinishStop
		}
	case "length":
		return model.FinishLength
	case "content_filter":
		return model.FinishContentFilter
	case "error":
		return model.FinishError
	}
	return model.FinishOther
}
