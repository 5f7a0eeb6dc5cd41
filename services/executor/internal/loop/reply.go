package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Limits of one reply. A larger reply is an invalid response.
const (
	maxReplyBytes = 4 << 20
	// maxPlanBytes limits a reply with calls as stored: the state service limits a plan to one mebibyte,
	// including more than its texts.
	maxPlanBytes = 1<<20 - 64<<10
)

// DefaultMaxCalls is the number of calls made of one reply, and MostCalls the largest such limit. Calls above
// MostCalls are not even kept.
const (
	DefaultMaxCalls = 128
	MostCalls       = 1024
)

// Reply assembles one reply of a model from its events.
type Reply struct {
	taken  func(id string) bool
	tools  *toolbox
	salt   string
	own    map[string]bool // ids of this reply's calls
	blocks []*block
	calls  map[int]*block // by the provider's index; nil for a dropped call
	bytes  int
	usage  model.Usage
	finish model.FinishReason
}

// block is one part of the unfinished message.
type block struct {
	part agent.Part // its kind: agent.Text, agent.Reasoning or agent.ToolCall
	text strings.Builder
	done bool
	// truncated means that the arguments of a call are incomplete.
	truncated bool
}

// Add adds the next event and returns the events to publish: the same with session-wide call ids, and with ends
// that the provider left out. An error is a *model.Error: the events are not a valid reply.
func (r *Reply) Add(event model.Event) ([]model.Event, error) {
	if r.finish != "" {
		return nil, invalidReply("%T came after the end", event)
	}
	var published []model.Event
	if open := r.openReasoning(); open != nil && endsReasoning(event) {
		open.done = true
		published = append(published, model.ReasoningEnd{})
	}
	switch e := event.(type) {
	case model.TextDelta:
		r.extend(agent.Text{}, e.Text)
		published = append(published, e)
	case model.ReasoningDelta:
		r.extend(agent.Reasoning{}, e.Text)
		published = append(published, e)
	case model.ReasoningEnd:
		r.endReasoning(e)
		published = append(published, e)
	case model.CallStart, model.CallDelta, model.CallEnd:
		if r.dropsCall(e) {
			break
		}
		added, err := r.addToCall(e)
		if err != nil {
			return nil, err
		}
		published = append(published, added)
	case model.Usage:
		r.usage = e
	case model.Finish:
		e.Reason = e.Reason.Normalize()
		published = append(published, r.endCalls(!e.Reason.IsComplete())...)
		r.finish = e.Reason
		published = append(published, e)
	}
	if err := r.checkSize(); err != nil {
		return nil, err
	}
	return published, nil
}

// dropsCall reports whether an event belongs to a call above MostCalls.
func (r *Reply) dropsCall(event model.Event) bool {
	var index int
	switch e := event.(type) {
	case model.CallStart:
		if _, known := r.calls[e.Index]; !known && len(r.calls) >= MostCalls {
			r.calls[e.Index] = nil
			r.bytes += len(e.ID) + len(e.Name) + 1
		}
		index = e.Index
	case model.CallDelta:
		index = e.Index
		r.bytes += len(e.Text)
	case model.CallEnd:
		index = e.Index
	}
	call, known := r.calls[index]
	return known && call == nil
}

// addToCall adds an event of a call and returns the event to publish.
func (r *Reply) addToCall(event model.Event) (model.Event, error) {
	switch e := event.(type) {
	case model.CallStart:
		return r.startCall(e)
	case model.CallDelta:
		call := r.openCall(e.Index)
		if call == nil {
			return nil, invalidReply("arguments for call %d, which is not open", e.Index)
		}
		call.text.WriteString(e.Text)
	case model.CallEnd:
		call := r.openCall(e.Index)
		if call == nil {
			return nil, invalidReply("end of call %d, which is not open", e.Index)
		}
		return call.endCall(e.Index, e.Arguments), nil
	}
	return event, nil
}

// openCall returns the call with the provider's index, or nil if it has not begun or has ended.
func (r *Reply) openCall(index int) *block {
	if call := r.calls[index]; call != nil && !call.done {
		return call
	}
	return nil
}

func (r *Reply) checkSize() error {
	if r.bytes > maxReplyBytes {
		return invalidReply("the reply is larger than %d bytes", maxReplyBytes)
	}
	if len(r.calls) > 0 && (r.bytes > maxPlanBytes || r.IsComplete() && r.size() > maxPlanBytes) {
		const format = "the reply calls tools and is larger than %d bytes with their arguments; have the model send less at once"
		return invalidReply(format, maxPlanBytes)
	}
	return nil
}

// size returns the approximate stored size of the reply in bytes.
func (r *Reply) size() (size int) {
	for _, p := range r.Parts() {
		switch part := p.(type) {
		case agent.Text:
			size += len(part.Text)
		case agent.Reasoning:
			size += len(part.Text) + len(part.ProviderData)
		case agent.ToolCall:
			size += len(part.ID) + len(part.Name) + len(part.Arguments)
		}
	}
	return size
}

func invalidReply(format string, args ...any) error {
	return &model.Error{Code: model.CodeInvalidResponse, Retryable: true, Message: fmt.Sprintf(format, args...)}
}

// IsComplete reports whether the reply is complete.
func (r *Reply) IsComplete() bool { return r.finish != "" }

// FinishReason returns the model's finish reason; empty before the end.
func (r *Reply) FinishReason() model.FinishReason { return r.finish }

// Usage returns the provider's token counts, or zero.
func (r *Reply) Usage() model.Usage { return r.usage }

// CallID returns the session-wide id of the call with the provider's index, or "".
func (r *Reply) CallID(index int) string {
	if call := r.calls[index]; call != nil {
		return call.part.(agent.ToolCall).ID
	}
	return ""
}

// Dynamic reports whether the call with the provider's index belongs to a tool known at run time only.
func (r *Reply) Dynamic(index int) bool {
	call := r.calls[index]
	return call != nil && call.part.(agent.ToolCall).Dynamic
}

// Parts returns the content received so far.
func (r *Reply) Parts() []agent.Part {
	var parts []agent.Part
	for _, b := range r.blocks {
		switch part := b.part.(type) {
		case agent.Text:
			part.Text = b.text.String()
			parts = append(parts, part)
		case agent.Reasoning:
			part.Text = b.text.String()
			parts = append(parts, part)
		case agent.ToolCall:
			parts = append(parts, part)
		}
	}
	return parts
}

// keptParts returns the parts to keep of a stopped or failed reply: texts, and calls with complete arguments.
// Reasoning is left out, because providers refuse a truncated one. It returns nil if the parts exceed the limits
// of a step.
func (r *Reply) keptParts() []agent.Part {
	if r.size() > maxReplyBytes {
		return nil
	}
	var parts []agent.Part
	for _, b := range r.blocks {
		switch part := b.part.(type) {
		case agent.Text:
			parts = append(parts, agent.Text{Text: b.text.String()})
		case agent.ToolCall:
			if b.done && !b.truncated {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// unwrapCompletion converts a completion in the JSON output format into the equivalent call, with an id made of id.
// Any other reply stays and counts as a miss.
func (r *Reply) unwrapCompletion(id string) {
	var envelope struct {
		Completion *struct {
			Tool  string          `json:"tool"`
			Input json.RawMessage `json:"input"`
		} `json:"completion"`
	}
	if len(r.calls) > 0 || json.Unmarshal([]byte(agent.Message{Parts: r.Parts()}.Text()), &envelope) != nil {
		return
	}
	c := envelope.Completion
	if c == nil || !r.tools.finishes(c.Tool) {
		return
	}
	r.dropTexts()
	call := agent.ToolCall{
		ID: uniqueID(id, c.Tool, r.salt, r.taken), Name: c.Tool, Arguments: asJSON(string(c.Input)), Dynamic: r.tools.dynamic(c.Tool),
	}
	r.blocks = append(r.blocks, &block{part: call, done: true})
}

func (r *Reply) dropTexts() {
	r.blocks = slices.DeleteFunc(r.blocks, func(b *block) bool {
		_, text := b.part.(agent.Text)
		return text
	})
}

// Calls returns the calls of the reply in order.
func (r *Reply) Calls() []agent.ToolCall { return agent.Message{Parts: r.Parts()}.Calls() }

func (r *Reply) last() *block {
	if len(r.blocks) == 0 {
		return nil
	}
	return r.blocks[len(r.blocks)-1]
}

func (r *Reply) openReasoning() *block {
	b := r.last()
	if b == nil || b.done {
		return nil
	}
	if _, ok := b.part.(agent.Reasoning); !ok {
		return nil
	}
	return b
}

func endsReasoning(event model.Event) bool {
	switch event.(type) {
	case model.ReasoningDelta, model.ReasoningEnd, model.Usage:
		return false
	}
	return true
}

// extend adds text to the last block, or to a new block if the last one has another kind or has ended.
func (r *Reply) extend(kind agent.Part, text string) {
	b := r.last()
	if b == nil || b.done || !sameKind(b.part, kind) {
		b = &block{part: kind}
		r.blocks = append(r.blocks, b)
	}
	b.text.WriteString(text)
	r.bytes += len(text)
}

func sameKind(a, b agent.Part) bool {
	switch a.(type) {
	case agent.Text:
		_, ok := b.(agent.Text)
		return ok
	case agent.Reasoning:
		_, ok := b.(agent.Reasoning)
		return ok
	}
	return false
}

func (r *Reply) endReasoning(e model.ReasoningEnd) {
	b := r.openReasoning()
	if b == nil {
		b = &block{}
		r.blocks = append(r.blocks, b)
	}
	b.part = agent.Reasoning{ProviderData: e.ProviderData}
	b.done = true
	r.bytes += len(e.ProviderData)
}

func (r *Reply) startCall(e model.CallStart) (model.CallStart, error) {
	if r.calls[e.Index] != nil {
		return e, invalidReply("call %d begins twice", e.Index)
	}
	e.ID = uniqueID(e.ID, e.Name, r.salt, r.taken)
	r.own[e.ID] = true
	b := &block{part: agent.ToolCall{ID: e.ID, Name: e.Name, Dynamic: r.tools.dynamic(e.Name)}}
	r.blocks = append(r.blocks, b)
	r.calls[e.Index] = b
	return e, nil
}

// endCall fixes the arguments: one JSON value, regardless of the model's text.
func (b *block) endCall(index int, arguments json.RawMessage) model.CallEnd {
	if !isArguments(arguments) {
		text := string(arguments)
		if text == "" {
			text = b.text.String()
		}
		arguments = asJSON(text)
	}
	call := b.part.(agent.ToolCall)
	call.Arguments = arguments
	b.part = call
	b.done = true
	return model.CallEnd{Index: index, Arguments: arguments}
}

// noArguments replaces missing arguments.
const noArguments = "{}"

// asJSON returns a JSON text unchanged, {} for no text, and other text as a JSON string. Too deeply nested JSON
// counts as other text.
func asJSON(text string) json.RawMessage {
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage(noArguments)
	case isArguments([]byte(text)):
		return json.RawMessage(text)
	}
	return quote(text)
}

// quote returns a text as a JSON string.
func quote(text string) json.RawMessage {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil { // a string always marshals
		return json.RawMessage(`""`)
	}
	return bytes.TrimSpace(quoted.Bytes())
}

// endCalls ends the calls that the provider left open, in the order of the reply. In a truncated reply their arguments
// are incomplete even if they are JSON, so they become a text, which no tool accepts. The same holds for an
// ended last call without arguments, because the model may have been about to send them.
func (r *Reply) endCalls(truncated bool) []model.Event {
	indexes := make(map[*block]int, len(r.calls))
	for index, b := range r.calls {
		indexes[b] = index
	}
	var ends []model.Event
	var last *block
	for _, b := range r.blocks {
		index, ok := indexes[b]
		if !ok {
			continue
		}
		last = b
		if b.done {
			continue
		}
		var arguments json.RawMessage
		if truncated {
			b.truncated = true
			arguments = quote(b.text.String())
		}
		ends = append(ends, b.endCall(index, arguments))
	}
	if truncated && last != nil && last.trimmedArguments() == "" {
		last.truncated = true
		last.endCall(indexes[last], quote(""))
	}
	return ends
}

// trimmedArguments returns the trimmed arguments of an ended call; empty for none.
func (b *block) trimmedArguments() string {
	if text := strings.TrimSpace(b.text.String()); text != "" {
		return text
	}
	if arguments := b.part.(agent.ToolCall).Arguments; string(arguments) != noArguments {
		return string(arguments)
	}
	return ""
}
