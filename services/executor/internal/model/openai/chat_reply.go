package openai

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The limits of one reply.
const (
	maxCalls     = 256
	maxArguments = 8 << 20 // bytes for each call
)

// chatAssembler builds one reply from the chunks of a chat completion. It does no I/O.
type chatAssembler struct {
	ids              *model.CallIDs
	inReasoning      bool
	refused          bool
	calls            []*call
	openCalls        map[int64]*call // by their index on the wire
	usage            *model.Usage
	stopReason       string // the finish_reason, "" until it arrives
	usageAfterFinish bool   // the usage came with or after the finish_reason
}

type call struct {
	index     int // among the calls of the reply
	wireID    string
	name      string
	started   bool
	arguments strings.Builder
}

func newChatAssembler(messages int) *chatAssembler {
	return &chatAssembler{ids: model.NewCallIDs(messages), openCalls: make(map[int64]*call)}
}

// isFinished reports whether the finish_reason has arrived.
func (a *chatAssembler) isFinished() bool { return a.stopReason != "" }

// isComplete reports whether everything has arrived.
func (a *chatAssembler) isComplete() bool { return a.isFinished() && a.usageAfterFinish }

func (a *chatAssembler) handle(chunk openai.ChatCompletionChunk) ([]model.Event, error) {
	var events []model.Event
	for _, choice := range chunk.Choices {
		if choice.Index != 0 || a.isFinished() {
			continue
		}
		events = append(events, a.addText(choice.Delta)...)
		for _, fragment := range choice.Delta.ToolCalls {
			more, err := a.addCall(fragment)
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
		if choice.FinishReason != "" {
			a.stopReason = choice.FinishReason
			more, err := a.endBlocks()
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
	}
	if chunk.JSON.Usage.Valid() {
		u := chunk.Usage
		a.usage = &model.Usage{
			PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
			ReasoningTokens: u.CompletionTokensDetails.ReasoningTokens,
			CachedTokens:    u.PromptTokensDetails.CachedTokens,
		}
		a.usageAfterFinish = a.isFinished()
	}
	return events, nil
}

func (a *chatAssembler) addText(delta openai.ChatCompletionChunkChoiceDelta) []model.Event {
	var events []model.Event
	if thought := reasoningText(delta); thought != "" {
		a.inReasoning = true
		events = append(events, model.ReasoningDelta{Text: thought})
	}
	if delta.Content != "" || delta.Refusal != "" || len(delta.ToolCalls) > 0 {
		events = append(events, a.endReasoning()...)
	}
	if delta.Content != "" {
		events = append(events, model.TextDelta{Text: delta.Content})
	}
	if delta.Refusal != "" {
		a.refused = true
		events = append(events, model.TextDelta{Text: delta.Refusal})
	}
	return events
}

// reasoningText returns the reasoning of compatible servers. They send it in either field, or in both with the
// same text.
func reasoningText(delta openai.ChatCompletionChunkChoiceDelta) string {
	for _, name := range []string{"reasoning_content", "reasoning"} {
		var text string
		if field, ok := delta.JSON.ExtraFields[name]; ok && json.Unmarshal([]byte(field.Raw()), &text) == nil && text != "" {
			return text
		}
	}
	return ""
}

func (a *chatAssembler) endReasoning() []model.Event {
	if !a.inReasoning {
		return nil
	}
	a.inReasoning = false
	return []model.Event{model.ReasoningEnd{}}
}

func (a *chatAssembler) addCall(fragment openai.ChatCompletionChunkChoiceDeltaToolCall) ([]model.Event, error) {
	c := a.openCalls[fragment.Index]
	if c == nil || c.isNewCall(fragment) {
		if len(a.calls) == maxCalls {
			return nil, model.InvalidResponse("more than %d calls in one reply", maxCalls)
		}
		c = &call{index: len(a.calls)}
		a.calls = append(a.calls, c)
		a.openCalls[fragment.Index] = c
	}
	if c.wireID == "" {
		c.wireID = fragment.ID
	}
	if c.name == "" {
		c.name = fragment.Function.Name
	}
	text := fragment.Function.Arguments
	if c.arguments.Len()+len(text) > maxArguments {
		return nil, model.InvalidResponse("the arguments of a call exceed %d bytes", maxArguments)
	}
	c.arguments.WriteString(text)
	switch {
	case c.name == "":
		return nil, nil // wait for the name
	case !c.started:
		return a.startCalls(), nil
	case text != "":
		return []model.Event{model.CallDelta{Index: c.index, Text: text}}, nil
	}
	return nil, nil
}

// isNewCall reports whether a fragment with this call's index starts another call. Some servers give every call
// the index 0 and may omit the ids as well.
func (c *call) isNewCall(fragment openai.ChatCompletionChunkChoiceDeltaToolCall) bool {
	if fragment.ID != "" && c.wireID != "" {
		return fragment.ID != c.wireID
	}
	return fragment.ID == "" && c.wireID == "" && c.name != "" && fragment.Function.Name != "" &&
		strings.TrimSpace(fragment.Function.Arguments) != "" && json.Valid([]byte(c.arguments.String()))
}

// startCalls starts the calls with known names, each with the arguments received so far. Calls start in order,
// so a call without a name holds back the calls after it.
func (a *chatAssembler) startCalls() []model.Event {
	var events []model.Event
	for _, next := range a.calls {
		if next.started {
			continue
		}
		if next.name == "" {
			return events
		}
		next.started = true
		events = append(events, model.CallStart{Index: next.index, ID: a.ids.Assign(next.wireID, next.index), Name: next.name})
		if next.arguments.Len() > 0 {
			events = append(events, model.CallDelta{Index: next.index, Text: next.arguments.String()})
		}
	}
	return events
}

func (a *chatAssembler) endBlocks() ([]model.Event, error) {
	events := a.endReasoning()
	for _, c := range a.calls {
		if !c.started {
			return events, model.InvalidResponse("a call has no name")
		}
		events = append(events, model.CallEnd{Index: c.index, Arguments: model.EncodeArguments(c.arguments.String())})
	}
	return events, nil
}

// finish returns the usage and the finish of a complete reply, and an error for a truncated one.
func (a *chatAssembler) finish() ([]model.Event, error) {
	if !a.isFinished() {
		return nil, model.Truncated("a finish_reason")
	}
	var events []model.Event
	if a.usage != nil {
		events = append(events, *a.usage)
	}
	return append(events, model.Finish{Reason: a.finishReason()}), nil
}

func (a *chatAssembler) finishReason() model.FinishReason {
	switch a.stopReason {
	case "stop", "tool_calls", "function_call":
		switch {
		case len(a.calls) > 0:
			return model.FinishToolCalls // some servers use "stop" with calls
		case a.refused:
			return model.FinishContentFilter
		case a.stopReason == "stop":
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
