package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// The limits of one reply.
const (
	maxOpenBlocks = 256
	maxArguments  = 8 << 20 // bytes for each call
)

// assembler builds one reply from the events of its stream. It does no I/O.
type assembler struct {
	origin     origin
	ids        *model.CallIDs
	openBlocks map[model.LooseInt]*openBlock // by their index on the wire
	calls      int
	input      int64 // tokens, excluding the cached
	cacheWrite int64 // tokens written to the cache
	cacheRead  int64 // tokens read from the cache
	output     int64
	thinking   int64
	stopReason string
	stopped    bool // message_stop arrived
}

// openBlock is an unfinished content block.
type openBlock struct {
	kind      string
	signature strings.Builder
	data      string
	call      int // the Index of a call
	input     json.RawMessage
	arguments strings.Builder
}

func newAssembler(messages int, from origin) *assembler {
	return &assembler{origin: from, ids: model.NewCallIDs(messages), openBlocks: make(map[model.LooseInt]*openBlock)}
}

// isComplete reports whether everything but the usage has arrived.
func (a *assembler) isComplete() bool { return a.stopReason != "" && len(a.openBlocks) == 0 }

// handle returns the model events of an event. Some servers leave out its name, which is the type of its data as well.
func (a *assembler) handle(name string, data []byte) ([]model.Event, error) {
	if name == "error" {
		return nil, eventError(data)
	}
	if !json.Valid(data) {
		if name == "" || name == "ping" {
			return nil, nil // [DONE] of a router, or a keep-alive
		}
		return nil, model.InvalidResponse("cannot decode an event: %.200s", data)
	}
	var e event
	_ = json.Unmarshal(data, &e) // members of unexpected types stay empty
	switch e.Type {
	case "error":
		return nil, eventError(data)
	case "message_start":
		u := e.Message.Usage
		a.input, a.cacheWrite, a.cacheRead, a.output = int64(u.Input), int64(u.CacheWrite), int64(u.CacheRead), int64(u.Output)
	case "content_block_start":
		return a.startBlock(e.Index, e.ContentBlock)
	case "content_block_delta":
		return a.addDelta(e.Index, e.Delta)
	case "content_block_stop":
		return a.endBlock(e.Index), nil
	case "message_delta":
		if e.Delta.StopReason != "" {
			a.stopReason = string(e.Delta.StopReason)
		}
		u := e.Usage // cumulative; it may omit counts of message_start
		a.input = max(a.input, int64(u.Input))
		a.cacheWrite = max(a.cacheWrite, int64(u.CacheWrite))
		a.cacheRead = max(a.cacheRead, int64(u.CacheRead))
		a.output = max(a.output, int64(u.Output))
		a.thinking = max(a.thinking, int64(u.Details.Thinking))
	case "message_stop":
		a.stopped = true
	}
	return nil, nil
}

func (a *assembler) startBlock(index model.LooseInt, start startedBlock) ([]model.Event, error) {
	if len(a.openBlocks) == maxOpenBlocks {
		return nil, model.InvalidResponse("more than %d open blocks", maxOpenBlocks)
	}
	b := &openBlock{kind: string(start.Type), data: string(start.Data)}
	b.signature.WriteString(string(start.Signature))
	a.openBlocks[index] = b
	switch b.kind {
	case typeText:
		return textDelta(string(start.Text)), nil
	case typeThinking:
		return reasoningDelta(string(start.Thinking)), nil
	case typeToolUse:
		if start.Name == "" {
			return nil, model.InvalidResponse("a call has no name")
		}
		b.call = a.calls
		b.input = start.Input
		a.calls++
		return []model.Event{model.CallStart{Index: b.call, ID: a.ids.Assign(string(start.ID), b.call), Name: string(start.Name)}}, nil
	}
	return nil, nil
}

func (a *assembler) addDelta(index model.LooseInt, delta delta) ([]model.Event, error) {
	b := a.openBlocks[index]
	if b == nil {
		return nil, model.InvalidResponse("a delta for block %d, which is not open", index)
	}
	switch delta.Type {
	case "text_delta":
		return textDelta(string(delta.Text)), nil
	case "thinking_delta":
		return reasoningDelta(string(delta.Thinking)), nil
	case "signature_delta":
		b.signature.WriteString(string(delta.Signature))
	case "input_json_delta":
		text := string(delta.PartialJSON)
		if b.kind != typeToolUse || text == "" {
			return nil, nil // a call that the provider executes, or an empty delta
		}
		if b.arguments.Len()+len(text) > maxArguments {
			return nil, model.InvalidResponse("the arguments of a call exceed %d bytes", maxArguments)
		}
		b.arguments.WriteString(text)
		return []model.Event{model.CallDelta{Index: b.call, Text: text}}, nil
	}
	return nil, nil
}

func (a *assembler) endBlock(index model.LooseInt) []model.Event {
	b := a.openBlocks[index]
	delete(a.openBlocks, index)
	if b == nil {
		return nil
	}
	switch b.kind {
	case typeThinking:
		if b.signature.Len() == 0 {
			return []model.Event{model.ReasoningEnd{}}
		}
		return reasoningEnd(providerData{Type: typeThinking, Signature: b.signature.String(), Origin: a.origin})
	case typeRedacted:
		return reasoningEnd(providerData{Type: typeRedacted, Data: b.data, Origin: a.origin})
	case typeToolUse:
		arguments := b.arguments.String()
		if arguments == "" {
			arguments = model.NonEmptyObject(b.input) // without deltas, content_block_start holds them all
		}
		return []model.Event{model.CallEnd{Index: b.call, Arguments: model.EncodeArguments(arguments)}}
	}
	return nil
}

// finish returns the usage and the finish of a complete reply, and an error for a truncated one.
func (a *assembler) finish() ([]model.Event, error) {
	if !a.isComplete() {
		return nil, model.Truncated("a stop_reason")
	}
	prompt := a.input + a.cacheWrite + a.cacheRead
	return []model.Event{
		model.Usage{
			PromptTokens: prompt, CompletionTokens: a.output, TotalTokens: prompt + a.output,
			ReasoningTokens: a.thinking, CachedTokens: a.cacheRead,
		},
		model.Finish{Reason: a.finishReason()},
	}, nil
}

func (a *assembler) finishReason() model.FinishReason {
	switch a.stopReason {
	case "end_turn", "stop_sequence":
		if a.calls > 0 {
			return model.FinishToolCalls // some servers report calls this way
		}
		return model.FinishStop
	case "tool_use":
		return model.FinishToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return model.FinishLength
	case "refusal":
		return model.FinishContentFilter
	default: // pause_turn and unknown reasons
		return model.FinishOther
	}
}

func textDelta(s string) []model.Event {
	if s == "" {
		return nil
	}
	return []model.Event{model.TextDelta{Text: s}}
}

func reasoningDelta(s string) []model.Event {
	if s == "" {
		return nil
	}
	return []model.Event{model.ReasoningDelta{Text: s}}
}

func reasoningEnd(m providerData) []model.Event {
	// Marshalling strings cannot fail.
	data, _ := json.Marshal(m)
	return []model.Event{model.ReasoningEnd{ProviderData: data}}
}
