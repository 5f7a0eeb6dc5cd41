package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The bounds of one reply.
const (
	maxOpenBlocks = 256
	maxArguments  = 8 << 20 // bytes, of one call
)

// reply puts the events of one message together. It does no I/O.
type reply struct {
	ids     *model.IDs
	blocks  map[int64]*open // those that are open, by their index on the wire
	calls   int
	input   int64 // tokens, without the cached ones
	wrote   int64 // tokens written to the cache
	read    int64 // tokens read from the cache
	output  int64
	thought int64
	stop    anthropic.StopReason
	over    bool // message_stop came
}

// open is a content block on its way in.
type open struct {
	kind      string
	signature string
	data      string
	call      int // the Index of a call
	input     json.RawMessage
	arguments strings.Builder
}

func newReply(messages int) *reply {
	return &reply{ids: model.NewIDs(messages), blocks: make(map[int64]*open)}
}

// whole says whether nothing of the reply is missing but its usage.
func (r *reply) whole() bool { return r.stop != "" && len(r.blocks) == 0 }

// take gives the events of an event.
func (r *reply) take(e anthropic.MessageStreamEventUnion) ([]model.Event, error) {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		r.input, r.wrote, r.read, r.output = u.InputTokens, u.CacheCreationInputTokens, u.CacheReadInputTokens, u.OutputTokens
	case "content_block_start":
		return r.begin(e.Index, e.ContentBlock)
	case "content_block_delta":
		return r.add(e.Index, e.Delta)
	case "content_block_stop":
		return r.finish(e.Index), nil
	case "message_delta":
		if e.Delta.StopReason != "" {
			r.stop = e.Delta.StopReason
		}
		r.count(e.Usage)
	case "message_stop":
		r.over = true
	}
	return nil, nil
}

func (r *reply) begin(index int64, start anthropic.ContentBlockStartEventContentBlockUnion) ([]model.Event, error) {
	if len(r.blocks) == maxOpenBlocks {
		return nil, model.Unreadable("more than %d blocks at a time", maxOpenBlocks)
	}
	b := &open{kind: start.Type, signature: start.Signature, data: start.Data}
	r.blocks[index] = b
	switch b.kind {
	case "text":
		return text(start.Text), nil
	case typeThinking:
		return thought(start.Thinking), nil
	case "tool_use":
		if start.Name == "" {
			return nil, model.Unreadable("a call has no name")
		}
		b.call = r.calls
		b.input = json.RawMessage(start.JSON.Input.Raw())
		r.calls++
		return []model.Event{model.CallStart{Index: b.call, ID: r.ids.Next(start.ID, b.call), Name: start.Name}}, nil
	}
	return nil, nil
}

func (r *reply) add(index int64, delta anthropic.MessageStreamEventUnionDelta) ([]model.Event, error) {
	b := r.blocks[index]
	if b == nil {
		return nil, model.Unreadable("a delta of the block %d, which is not open", index)
	}
	switch delta.Type {
	case "text_delta":
		return text(delta.Text), nil
	case "thinking_delta":
		return thought(delta.Thinking), nil
	case "signature_delta":
		b.signature += delta.Signature
	case "input_json_delta":
		if b.kind != "tool_use" || delta.PartialJSON == "" {
			return nil, nil // a call that the provider runs itself, or nothing
		}
		if b.arguments.Len()+len(delta.PartialJSON) > maxArguments {
			return nil, model.Unreadable("the arguments of a call are longer than %d bytes", maxArguments)
		}
		b.arguments.WriteString(delta.PartialJSON)
		return []model.Event{model.CallDelta{Index: b.call, Text: delta.PartialJSON}}, nil
	}
	return nil, nil
}

func (r *reply) finish(index int64) []model.Event {
	b := r.blocks[index]
	delete(r.blocks, index)
	if b == nil {
		return nil
	}
	switch b.kind {
	case typeThinking:
		if b.signature == "" {
			return []model.Event{model.ReasoningEnd{}}
		}
		return remember(memory{Type: typeThinking, Signature: b.signature})
	case typeRedacted:
		return remember(memory{Type: typeRedacted, Data: b.data})
	case "tool_use":
		arguments := b.arguments.String()
		if arguments == "" {
			arguments = string(b.input) // whole in the start, where nothing followed it
		}
		return []model.Event{model.CallEnd{Index: b.call, Arguments: model.Arguments(arguments)}}
	}
	return nil
}

// count takes the usage of a message_delta, which is cumulative and may repeat
// only a part of that of the start.
func (r *reply) count(u anthropic.MessageDeltaUsage) {
	r.input = max(r.input, u.InputTokens)
	r.wrote = max(r.wrote, u.CacheCreationInputTokens)
	r.read = max(r.read, u.CacheReadInputTokens)
	r.output = max(r.output, u.OutputTokens)
	r.thought = max(r.thought, u.OutputTokensDetails.ThinkingTokens)
}

// end gives the usage and the finish of a reply that is over, or says that it was cut off.
func (r *reply) end() ([]model.Event, error) {
	if !r.whole() {
		return nil, model.CutOff("a stop_reason")
	}
	prompt := r.input + r.wrote + r.read
	return []model.Event{
		model.Usage{
			PromptTokens: prompt, CompletionTokens: r.output, TotalTokens: prompt + r.output,
			ReasoningTokens: r.thought, CachedTokens: r.read,
		},
		model.Finish{Reason: r.reason()},
	}, nil
}

func (r *reply) reason() model.FinishReason {
	switch r.stop {
	case anthropic.StopReasonEndTurn, anthropic.StopReasonStopSequence:
		if r.calls > 0 {
			return model.FinishToolCalls // some servers say so here
		}
		return model.FinishStop
	case anthropic.StopReasonToolUse:
		return model.FinishToolCalls
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return model.FinishLength
	case anthropic.StopReasonRefusal:
		return model.FinishContentFilter
	default: // pause_turn, and what is yet to come
		return model.FinishOther
	}
}

func text(s string) []model.Event {
	if s == "" {
		return nil
	}
	return []model.Event{model.TextDelta{Text: s}}
}

func thought(s string) []model.Event {
	if s == "" {
		return nil
	}
	return []model.Event{model.ReasoningDelta{Text: s}}
}

func remember(m memory) []model.Event {
	// Marshalling a struct of strings cannot fail.
	data, _ := json.Marshal(m)
	return []model.Event{model.ReasoningEnd{ProviderData: data}}
}
