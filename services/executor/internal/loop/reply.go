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

// Limits of one reply. A reply above them is an invalid response.
const (
	maxReplyBytes = 4 << 20
	maxCalls      = 128
	// maxPlanBytes is for a reply with calls, as it is kept: the state service keeps a plan
	// of a mebibyte, and there is more to it than its texts.
	maxPlanBytes = 1<<20 - 64<<10
)

// Reply assembles one reply of a model from its events.
type Reply struct {
	taken  func(id string) bool
	tools  *toolbox
	salt   string
	own    map[string]bool // ids of this reply's calls
	blocks []*block
	calls  map[int]*block // by the index of the provider
	bytes  int
	usage  model.Usage
	finish model.FinishReason
}

// block is one part of the message in the making.
type block struct {
	part agent.Part // says the kind: agent.Text, agent.Reasoning or agent.ToolCall
	text strings.Builder
	done bool
	cut  bool // a call whose arguments never came whole
}

func newReply(tools *toolbox, taken map[string]bool, salt string) *Reply {
	r := &Reply{tools: tools, salt: salt, own: map[string]bool{}, calls: map[int]*block{}}
	r.taken = func(id string) bool { return taken[id] || r.own[id] }
	return r
}

// Add takes the next event and gives the events that others may be told: the
// same with call ids that are unique in the session, and with the ends that the
// provider left out. An error is a *model.Error: the events are not a reply.
func (r *Reply) Add(event model.Event) ([]model.Event, error) {
	if r.finish != "" {
		return nil, invalidReply("%T came after the end", event)
	}
	var told []model.Event
	if open := r.openReasoning(); open != nil && endsReasoning(event) {
		open.done = true
		told = append(told, model.ReasoningEnd{})
	}
	switch e := event.(type) {
	case model.TextDelta:
		r.extend(agent.Text{}, e.Text)
		told = append(told, e)
	case model.ReasoningDelta:
		r.extend(agent.Reasoning{}, e.Text)
		told = append(told, e)
	case model.ReasoningEnd:
		r.endReasoning(e)
		told = append(told, e)
	case model.CallStart:
		started, err := r.startCall(e)
		if err != nil {
			return nil, err
		}
		told = append(told, started)
	case model.CallDelta:
		call := r.calls[e.Index]
		if call == nil || call.done {
			return nil, invalidReply("arguments for call %d, which is not open", e.Index)
		}
		call.text.WriteString(e.Text)
		r.bytes += len(e.Text)
		told = append(told, e)
	case model.CallEnd:
		call := r.calls[e.Index]
		if call == nil || call.done {
			return nil, invalidReply("end of call %d, which is not open", e.Index)
		}
		told = append(told, call.endCall(e.Index, e.Arguments))
	case model.Usage:
		r.usage = e
	case model.Finish:
		e.Reason = e.Reason.Common()
		told = append(told, r.endCalls(!e.Reason.Whole())...)
		r.finish = e.Reason
		told = append(told, e)
	}
	if r.bytes > maxReplyBytes {
		return nil, invalidReply("the reply is larger than %d bytes", maxReplyBytes)
	}
	if len(r.calls) > 0 && (r.bytes > maxPlanBytes || r.Whole() && r.size() > maxPlanBytes) {
		return nil, invalidReply("the reply calls tools and is larger than %d bytes with their arguments; have the model send less at once", maxPlanBytes)
	}
	return told, nil
}

// size is about what the reply takes where it is kept, in bytes.
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

// Whole reports whether the reply has come to its end.
func (r *Reply) Whole() bool { return r.finish != "" }

// FinishReason says why the model stopped; empty before the end.
func (r *Reply) FinishReason() model.FinishReason { return r.finish }

// Usage gives the tokens that the provider has counted, zero where it did not.
func (r *Reply) Usage() model.Usage { return r.usage }

// CallID gives the session's id of the call with the provider's index, "" when
// there is none.
func (r *Reply) CallID(index int) string {
	if call := r.calls[index]; call != nil {
		return call.part.(agent.ToolCall).ID
	}
	return ""
}

// Dynamic reports whether the call with the provider's index is one of a tool that is known
// at run time only.
func (r *Reply) Dynamic(index int) bool {
	call := r.calls[index]
	return call != nil && call.part.(agent.ToolCall).Dynamic
}

// Parts gives the content of the reply as far as it has come.
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

// kept is what of the reply is kept when its run is stopped or fails: texts, and calls whose
// arguments have come whole. What the model thought is not, since providers want the whole of
// it or none. Nil where it is more than a step may have.
func (r *Reply) kept() []agent.Part {
	if r.size() > maxReplyBytes {
		return nil
	}
	var parts []agent.Part
	for _, b := range r.blocks {
		switch part := b.part.(type) {
		case agent.Text:
			parts = append(parts, agent.Text{Text: b.text.String()})
		case agent.ToolCall:
			if b.done && !b.cut {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// replace puts a call in the place of the texts.
func (r *Reply) replace(id, name string, arguments json.RawMessage) {
	r.forgetTexts()
	call := agent.ToolCall{ID: uniqueID(id, name, r.salt, r.taken), Name: name, Arguments: arguments, Dynamic: r.tools.dynamic(name)}
	r.blocks = append(r.blocks, &block{part: call, done: true})
}

func (r *Reply) forgetTexts() {
	r.blocks = slices.DeleteFunc(r.blocks, func(b *block) bool {
		_, text := b.part.(agent.Text)
		return text
	})
}

// Calls gives the calls of the reply in their order.
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

// extend adds text to the last block, or to a new one where that is of another
// kind or has ended.
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
	if len(r.calls) == maxCalls {
		return e, invalidReply("more than %d calls", maxCalls)
	}
	e.ID = uniqueID(e.ID, e.Name, r.salt, r.taken)
	r.own[e.ID] = true
	b := &block{part: agent.ToolCall{ID: e.ID, Name: e.Name, Dynamic: r.tools.dynamic(e.Name)}}
	r.blocks = append(r.blocks, b)
	r.calls[e.Index] = b
	return e, nil
}

// endCall settles the arguments: one JSON value, whatever the model wrote.
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

// noArguments are those of a call for which the model gave none.
const noArguments = "{}"

// asJSON gives text that is JSON as it is, no text as {} and other text as a
// JSON string. JSON that is nested too deeply is other text.
func asJSON(text string) json.RawMessage {
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage(noArguments)
	case isArguments([]byte(text)):
		return json.RawMessage(text)
	}
	return quote(text)
}

// quote is a text as a JSON string.
func quote(text string) json.RawMessage {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil { // a string always marshals
		return json.RawMessage(`""`)
	}
	return bytes.TrimSpace(quoted.Bytes())
}

// endCalls ends the calls that the provider left open, in the order of the reply. Where
// the reply was cut their arguments are not what the model meant, even if they are JSON:
// they become a text, which no tool takes. So do those of the last call where there are
// none, though it has an end: the model may have been about to give them.
func (r *Reply) endCalls(cut bool) []model.Event {
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
		if cut {
			b.cut = true
			arguments = quote(b.text.String())
		}
		ends = append(ends, b.endCall(index, arguments))
	}
	if cut && last != nil && last.gave() == "" {
		last.cut = true
		last.endCall(indexes[last], quote(""))
	}
	return ends
}

// gave is what the model gave as the arguments of a call that has ended, without spaces
// around it; empty where it gave none.
func (b *block) gave() string {
	if text := strings.TrimSpace(b.text.String()); text != "" {
		return text
	}
	if arguments := b.part.(agent.ToolCall).Arguments; string(arguments) != noArguments {
		return string(arguments)
	}
	return ""
}
