package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"

	"google.golang.org/genai"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxCalls is how many calls one reply may have.
const maxCalls = 256

// reply puts the chunks of one content together. It does no I/O.
type reply struct {
	ids       *model.IDs
	calls     int
	thinking  bool
	finish    genai.FinishReason // "" before the end
	explained string             // what the API says about the finish
	blocked   bool               // the prompt was, so there is no reply
	usage     *model.Usage
	usageLast bool // the usage came with or after the finish
}

func newReply(messages int) *reply { return &reply{ids: model.NewIDs(messages)} }

// finished says whether the reply is known to have ended.
func (r *reply) finished() bool { return r.finish != "" || r.blocked }

// whole says whether nothing more is to be waited for.
func (r *reply) whole() bool { return r.finished() && r.usageLast }

// take gives the events of a chunk.
func (r *reply) take(data []byte) ([]model.Event, error) {
	if said := readComplaint(data); said.there {
		return nil, interruption(said)
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, model.Unreadable("a chunk that cannot be read: %v", err)
	}
	var events []model.Event
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 || r.finished() {
			continue
		}
		for _, p := range candidate.Content.Parts {
			more, err := r.part(p)
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
		if candidate.FinishReason != "" && candidate.FinishReason != genai.FinishReasonUnspecified {
			r.finish, r.explained = candidate.FinishReason, candidate.FinishMessage
			events = append(events, r.stopThinking("")...)
		}
	}
	if c.PromptFeedback != nil && c.PromptFeedback.BlockReason != "" {
		r.blocked = true
		events = append(events, r.stopThinking("")...)
	}
	if u := c.UsageMetadata; u != nil {
		r.usageLast = r.finished()
		r.usage = &model.Usage{
			PromptTokens:     int64(u.PromptTokenCount + u.ToolUsePromptTokenCount),
			CompletionTokens: int64(u.CandidatesTokenCount + u.ThoughtsTokenCount),
			ReasoningTokens:  int64(u.ThoughtsTokenCount),
			CachedTokens:     int64(u.CachedContentTokenCount),
			TotalTokens:      int64(u.TotalTokenCount),
		}
	}
	return events, nil
}

func (r *reply) part(p part) ([]model.Event, error) {
	text := p.text()
	switch {
	case p.FunctionCall != nil:
		return r.call(*p.FunctionCall, p.ThoughtSignature)
	case p.Thought:
		var events []model.Event
		if text != "" {
			r.thinking = true
			events = append(events, model.ReasoningDelta{Text: text})
		}
		if p.ThoughtSignature != "" {
			r.thinking = true // a block may consist of its end alone
			events = append(events, r.stopThinking(p.ThoughtSignature)...)
		}
		return events, nil
	case text == "" && p.ThoughtSignature == "":
		return nil, nil // nothing, or a kind of part that was not asked for
	}
	events := r.stopThinking("")
	if p.ThoughtSignature != "" {
		events = append(events, remember(memory{Signature: p.ThoughtSignature, Of: ofText, Bytes: len(text)}))
	}
	if text != "" {
		events = append(events, model.TextDelta{Text: text})
	}
	return events, nil
}

// call gives the events of a call, which comes in one piece.
func (r *reply) call(c functionCall, signature string) ([]model.Event, error) {
	if c.Name == "" {
		return nil, model.Unreadable("a call has no name")
	}
	if r.calls == maxCalls {
		return nil, model.Unreadable("more than %d calls in one reply", maxCalls)
	}
	events := r.stopThinking("")
	if signature != "" {
		events = append(events, remember(memory{Signature: signature, Of: ofCall}))
	}
	index := r.calls
	r.calls++
	events = append(events, model.CallStart{Index: index, ID: r.ids.Next(c.ID, index), Name: c.Name})
	arguments := argue(c.Args)
	if arguments != "" {
		events = append(events, model.CallDelta{Index: index, Text: arguments})
	}
	return append(events, model.CallEnd{Index: index, Arguments: model.Arguments(arguments)}), nil
}

// argue gives the text of arguments: none of none, and without the spaces that the
// API likes to put in.
func argue(args json.RawMessage) string {
	var text bytes.Buffer
	if len(args) == 0 || string(args) == "null" || json.Compact(&text, args) != nil {
		return ""
	}
	return model.Plain(text.Bytes())
}

func (r *reply) stopThinking(signature string) []model.Event {
	if !r.thinking {
		return nil
	}
	r.thinking = false
	if signature == "" {
		return []model.Event{model.ReasoningEnd{}}
	}
	return []model.Event{remember(memory{Signature: signature, Of: ofThought})}
}

func remember(m memory) model.Event {
	// Marshalling texts and a number cannot fail.
	data, _ := json.Marshal(m)
	return model.ReasoningEnd{ProviderData: data}
}

// end gives the usage and the finish of a reply that is over, or says that it was
// cut off, or that the model did not manage to make the call that it began.
func (r *reply) end() ([]model.Event, error) {
	if !r.finished() {
		return nil, model.CutOff("a finishReason")
	}
	var events []model.Event
	if r.usage != nil {
		events = append(events, *r.usage)
	}
	if r.finish == genai.FinishReasonMalformedFunctionCall || r.finish == genai.FinishReasonUnexpectedToolCall {
		return events, model.Unreadable("%s", cmp.Or(r.explained, "the model made a call that is none: "+string(r.finish)))
	}
	return append(events, model.Finish{Reason: r.reason()}), nil
}

func (r *reply) reason() model.FinishReason {
	switch r.finish {
	case "": // the prompt was blocked
		return model.FinishContentFilter
	case genai.FinishReasonStop:
		if r.calls > 0 {
			return model.FinishToolCalls // the API has no reason of its own for them
		}
		return model.FinishStop
	case genai.FinishReasonMaxTokens:
		return model.FinishLength
	case genai.FinishReasonSafety, genai.FinishReasonRecitation, genai.FinishReasonBlocklist,
		genai.FinishReasonProhibitedContent, genai.FinishReasonSPII,
		genai.FinishReasonImageSafety, genai.FinishReasonImageProhibitedContent, genai.FinishReasonImageRecitation:
		return model.FinishContentFilter
	default:
		return model.FinishOther
	}
}
