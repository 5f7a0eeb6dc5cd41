package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/profile"
)

// The limits of one reply.
const (
	maxCalls     = 256
	maxArguments = 8 << 20   // bytes for each call
	maxExtra     = 256 << 10 // bytes of members to send back
)

// chatChunk is a chunk of a chat completion. Servers differ in the types of many members, so members that vary are raw.
type chatChunk struct {
	Choices []struct {
		Index        int       `json:"index"`
		Delta        chatDelta `json:"delta"`
		FinishReason string    `json:"finish_reason"`
	} `json:"choices"`
	Usage *chatUsage `json:"usage"`
}

type chatDelta struct {
	Content          json.RawMessage   `json:"content"` // a text, or a list of texts and thinking
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []callFragment    `json:"tool_calls"`
}

type callFragment struct {
	Index    *int64 `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a text; some servers send an object
	} `json:"function"`
	ExtraContent json.RawMessage `json:"extra_content"`
}

func (f callFragment) arguments() string {
	if isNull(f.Function.Arguments) {
		return ""
	}
	return model.PlainText(f.Function.Arguments)
}

func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

type chatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// chatAssembler builds one reply from the chunks of a chat completion. It does no I/O.
type chatAssembler struct {
	origin           origin
	ids              *model.CallIDs
	reasoningField   string // of the open reasoning block; empty for none
	details          reasoningDetails
	refused          bool
	hasText          bool
	calls            []*call
	openCalls        map[int64]*call // by their index on the wire
	lastCall         *call           // of the newest fragment
	announced        string          // the id of a call that has no fragment with a name yet
	think            thinkSplitter
	usage            *model.Usage
	stopReason       string // the finish_reason, "" until it arrives
	done             bool   // [DONE] has arrived
	usageAfterFinish bool   // the usage came with or after the finish_reason
}

type call struct {
	index     int // among the calls of the reply
	wireID    string
	name      string
	started   bool
	arguments strings.Builder
	extra     json.RawMessage // extra_content
}

func newChatAssembler(messages int, p profile.Profile, from origin) *chatAssembler {
	return &chatAssembler{
		origin: from, ids: model.NewCallIDs(messages), openCalls: make(map[int64]*call), think: newThinkSplitter(p.ThinkTags),
	}
}

// isFinished reports whether the finish_reason has arrived.
func (a *chatAssembler) isFinished() bool { return a.stopReason != "" }

// isComplete reports whether everything has arrived.
func (a *chatAssembler) isComplete() bool { return a.done || a.isFinished() && a.usageAfterFinish }

func (a *chatAssembler) handle(data []byte) ([]model.Event, error) {
	if strings.HasPrefix(string(data), "[DONE]") {
		a.done = true
		return nil, nil
	}
	chunk, err := decode[chatChunk](data)
	if err != nil {
		return nil, err
	}
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
	if u := chunk.Usage; u != nil {
		a.usage = &model.Usage{
			PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.TotalTokens,
			ReasoningTokens: u.CompletionDetails.ReasoningTokens, CachedTokens: u.PromptDetails.CachedTokens,
		}
		a.usageAfterFinish = a.isFinished()
	}
	return events, nil
}

func (a *chatAssembler) addText(delta chatDelta) []model.Event {
	var events []model.Event
	if delta.ReasoningContent != "" || delta.Reasoning != "" { // the server separates it
		events = a.addPieces(a.think.flush())
	}
	switch {
	case delta.ReasoningContent != "":
		events = append(events, a.addReasoning("reasoning_content", delta.ReasoningContent)...)
	case delta.Reasoning != "": // some servers send the same text in both members
		events = append(events, a.addReasoning("reasoning", delta.Reasoning)...)
	}
	for _, d := range delta.ReasoningDetails {
		a.details.add(d)
	}
	for _, p := range contentPieces(delta.Content) {
		pieces := []contentPiece{p}
		if !p.thinking {
			pieces = a.think.add(p.text)
		}
		events = append(events, a.addPieces(pieces)...)
	}
	if delta.Refusal != "" {
		a.refused = true
		events = append(append(events, a.endReasoning()...), model.TextDelta{Text: delta.Refusal})
	}
	if len(delta.ToolCalls) > 0 {
		events = append(append(events, a.addPieces(a.think.flush())...), a.endReasoning()...)
	}
	return events
}

func (a *chatAssembler) addPieces(pieces []contentPiece) (events []model.Event) {
	for _, p := range pieces {
		if p.thinking {
			events = append(events, a.addReasoning(thinkingContent, p.text)...)
			continue
		}
		events = append(append(events, a.endReasoning()...), model.TextDelta{Text: p.text})
		a.hasText = true
	}
	return events
}

// thinkingContent is the field of reasoning that arrived within the content. It is not sent back.
const thinkingContent = "content"

type contentPiece struct {
	text     string
	thinking bool
}

// contentPieces returns the pieces of a content: a text, or chunks of the types text and thinking, whose text may be a list again.
func contentPieces(content json.RawMessage) []contentPiece {
	var text string
	if isNull(content) || json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil
		}
		return []contentPiece{{text: text}}
	}
	var chunks []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if content[0] == '{' {
		content = json.RawMessage("[" + string(content) + "]")
	}
	_ = json.Unmarshal(content, &chunks) // members of other types stay empty
	var pieces []contentPiece
	for _, c := range chunks {
		if c.Type == "thinking" {
			for _, p := range contentPieces(c.Thinking) {
				pieces = append(pieces, contentPiece{text: p.text, thinking: true})
			}
			continue
		}
		if c.Text != "" {
			pieces = append(pieces, contentPiece{text: c.Text})
		}
	}
	return pieces
}

func (a *chatAssembler) addReasoning(field, text string) []model.Event {
	a.reasoningField = field
	return []model.Event{model.ReasoningDelta{Text: text}}
}

func (a *chatAssembler) endReasoning() []model.Event {
	if a.reasoningField == "" {
		return nil
	}
	data := chatData{Origin: a.origin, Field: a.reasoningField}
	a.reasoningField = ""
	return []model.Event{model.ReasoningEnd{ProviderData: data.encode()}}
}

func (a *chatAssembler) addCall(fragment callFragment) ([]model.Event, error) {
	if a.announces(fragment) {
		a.announced = fragment.ID
		return nil, nil
	}
	if a.announced != "" && fragment.Index == nil && fragment.ID == "" && fragment.Function.Name != "" {
		fragment.ID = a.announced
		a.announced = ""
	}
	c := a.findCall(fragment)
	if c == nil {
		if len(a.calls) == maxCalls {
			return nil, model.InvalidResponse("more than %d calls in one reply", maxCalls)
		}
		c = &call{index: len(a.calls)}
		a.calls = append(a.calls, c)
		if fragment.Index != nil {
			a.openCalls[*fragment.Index] = c
		}
	}
	a.lastCall = c
	if c.wireID == "" {
		c.wireID = fragment.ID
	}
	if c.name == "" {
		c.name = fragment.Function.Name
	}
	if c.extra == nil && !isNull(fragment.ExtraContent) && len(fragment.ExtraContent) <= maxExtra {
		c.extra = fragment.ExtraContent
	}
	text := fragment.arguments()
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

// announces reports whether a fragment has nothing but an id that is new, behind another call and without an index. The name
// of a new call may follow. If none does, the id was another one of the previous call.
func (a *chatAssembler) announces(fragment callFragment) bool {
	hasMore := fragment.Index != nil || fragment.Function.Name != "" || fragment.arguments() != "" || !isNull(fragment.ExtraContent)
	if fragment.ID == "" || hasMore || a.lastCall == nil || a.lastCall.wireID == "" {
		return false
	}
	return !slices.ContainsFunc(a.calls, func(c *call) bool { return c.wireID == fragment.ID })
}

// findCall returns the call that a fragment continues, nil for a new call. Fragments without an index belong to the call of
// their id, else to the call of the previous fragment.
func (a *chatAssembler) findCall(fragment callFragment) *call {
	c := a.lastCall
	if fragment.Index != nil {
		c = a.openCalls[*fragment.Index]
	} else if fragment.ID != "" {
		for _, other := range a.calls {
			if other.wireID == fragment.ID {
				return other
			}
		}
		if fragment.Function.Name != "" && c != nil && c.wireID != "" {
			return nil
		}
	}
	if c == nil || c.endsBefore(fragment) {
		return nil
	}
	return c
}

// endsBefore reports whether a fragment with this call's place starts another call. Some servers give every call the index 0 and omit
// the ids, others give every fragment an id of its own. Only a fragment with a name may start a call behind another.
func (c *call) endsBefore(fragment callFragment) bool {
	if fragment.Function.Name == "" || c.name == "" || fragment.ID != "" && fragment.ID == c.wireID {
		return false
	}
	if fragment.Function.Name != c.name {
		return true
	}
	isComplete := json.Valid([]byte(c.arguments.String()))
	if fragment.ID != "" && c.wireID != "" {
		return isComplete
	}
	return isComplete && strings.TrimSpace(fragment.arguments()) != ""
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

// endBlocks ends the open blocks. What must be sent back with the calls forms a block of its own before their ends.
func (a *chatAssembler) endBlocks() ([]model.Event, error) {
	events := append(a.addPieces(a.think.flush()), a.endReasoning()...)
	data := chatData{Origin: a.origin, Details: a.details.encode()}
	for _, c := range a.calls {
		if c.extra != nil {
			if data.Calls == nil {
				data.Calls = map[string]json.RawMessage{}
			}
			data.Calls[strconv.Itoa(c.index)] = c.extra
		}
	}
	if data.Details != nil || data.Calls != nil {
		events = append(events, model.ReasoningEnd{ProviderData: data.encode()})
	}
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
	var events []model.Event
	if !a.isFinished() {
		if !a.endedByDone() {
			return nil, model.Truncated("a finish_reason")
		}
		a.stopReason = "stop"
		more, err := a.endBlocks()
		if err != nil {
			return more, err
		}
		events = more
	}
	if a.usage != nil {
		events = append(events, *a.usage)
	}
	return append(events, model.Finish{Reason: a.finishReason()}), nil
}

// endedByDone reports whether [DONE] ended a reply without a finish_reason: some servers send none. A reply without content,
// or with a call whose arguments are incomplete, was truncated.
func (a *chatAssembler) endedByDone() bool {
	for _, c := range a.calls {
		if text := strings.TrimSpace(c.arguments.String()); text != "" && !json.Valid([]byte(text)) {
			return false
		}
	}
	return a.done && (a.hasText || a.think.buffered != "" || a.refused || len(a.calls) > 0)
}

func (a *chatAssembler) finishReason() model.FinishReason {
	reason := finishWords[strings.ToLower(a.stopReason)]
	switch {
	case reason != model.FinishStop && reason != model.FinishToolCalls:
		return cmp.Or(reason, model.FinishOther)
	case len(a.calls) > 0:
		return model.FinishToolCalls // some servers use "stop" with calls
	case a.refused:
		return model.FinishContentFilter
	case reason == model.FinishStop:
		return model.FinishStop
	}
	return model.FinishOther
}

// finishWords are the finish reasons of servers, in lower case: OpenAI's own, then those of templates and of APIs behind a
// router. After an unknown reason, the calls of a reply count as truncated.
var finishWords = map[string]model.FinishReason{
	"stop": model.FinishStop, "eos": model.FinishStop, "eos_token": model.FinishStop, "end_turn": model.FinishStop,
	"stop_sequence": model.FinishStop, "complete": model.FinishStop,
	"tool_calls": model.FinishToolCalls, "tool_call": model.FinishToolCalls, "function_call": model.FinishToolCalls,
	"tool_use": model.FinishToolCalls,
	"length":   model.FinishLength, "max_tokens": model.FinishLength, "model_length": model.FinishLength,
	"content_filter": model.FinishContentFilter, "content-filter": model.FinishContentFilter, "safety": model.FinishContentFilter,
	"error": model.FinishError,
}
