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

// assembler puts the chunks of one content together. It does no I/O.
type assembler struct {
	ids              *model.CallIDs
	calls            int
	inReasoning      bool
	stopReason       genai.FinishReason // "" before the end
	finishMessage    string             // what the API says about the finish
	promptBlocked    bool               // the prompt was, so there is no reply
	usage            *model.Usage
	usageAfterFinish bool // the usage came with or after the finish
}

func newAssembler(messages int) *assembler { return &assembler{ids: model.NewCallIDs(messages)} }

// isFinished says whether the reply is known to have ended.
func (r *assembler) isFinished() bool { return r.stopReason != "" || r.promptBlocked }

// isComplete says whether nothing more is to be waited for.
func (r *assembler) isComplete() bool { return r.isFinished() && r.usageAfterFinish }

// handle gives the events of a chunk.
func (r *assembler) handle(data []byte) ([]model.Event, error) {
	if apiErr := parseAPIError(data); apiErr.found {
		return nil, streamError(apiErr)
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, model.InvalidResponse("a chunk that cannot be read: %v", err)
	}
	var events []model.Event
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 || r.isFinished() {
			continue
		}
		for _, p := range candidate.Content.Parts {
			more, err := r.addPart(p)
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
		if candidate.FinishReason != "" && candidate.FinishReason != genai.FinishReasonUnspecified {
			r.stopReason, r.finishMessage = candidate.FinishReason, candidate.FinishMessage
			events = append(events, r.endReasoning("")...)
		}
	}
	if c.PromptFeedback != nil && c.PromptFeedback.BlockReason != "" {
		r.promptBlocked = true
		events = append(events, r.endReasoning("")...)
	}
	if u := c.UsageMetadata; u != nil {
		r.usageAfterFinish = r.isFinished()
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

func (r *assembler) addPart(p part) ([]model.Event, error) {
	text := p.text()
	switch {
	case p.FunctionCall != nil:
		return r.addCall(*p.FunctionCall, p.ThoughtSignature)
	case p.Thought:
		var events []model.Event
		if text != "" {
			r.inReasoning = true
			events = append(events, model.ReasoningDelta{Text: text})
		}
		if p.ThoughtSignature != "" {
			r.inReasoning = true // a block may consist of its end alone
			events = append(events, r.endReasoning(p.ThoughtSignature)...)
		}
		return events, nil
	case text == "" && p.ThoughtSignature == "":
		return nil, nil // nothing, or a kind of part that was not asked for
	}
	events := r.endReasoning("")
	if p.ThoughtSignature != "" {
		events = append(events, reasoningEnd(providerData{Signature: p.ThoughtSignature, Of: ofText, Bytes: len(text)}))
	}
	if text != "" {
		events = append(events, model.TextDelta{Text: text})
	}
	return events, nil
}

// addCall gives the events of a call, which comes in one piece.
func (r *assembler) addCall(c functionCall, signature string) ([]model.Event, error) {
	if c.Name == "" {
		return nil, model.InvalidResponse("a call has no name")
	}
	if r.calls == maxCalls {
		return nil, model.InvalidResponse("more than %d calls in one reply", maxCalls)
	}
	events := r.endReasoning("")
	if signature != "" {
		events = append(events, reasoningEnd(providerData{Signature: signature, Of: ofCall}))
	}
	index := r.calls
	r.calls++
	events = append(events, model.CallStart{Index: index, ID: r.ids.Assign(c.ID, index), Name: c.Name})
	arguments := argumentsText(c.Args)
	if arguments != "" {
		events = append(events, model.CallDelta{Index: index, Text: arguments})
	}
	return append(events, model.CallEnd{Index: index, Arguments: model.EncodeArguments(arguments)}), nil
}

// argumentsText gives the text of arguments: none of none, and without the spaces that the
// API likes to put in.
func argumentsText(args json.RawMessage) string {
	var text bytes.Buffer
	if len(args) == 0 || string(args) == "null" || json.Compact(&text, args) != nil {
		return ""
	}
	return model.PlainText(text.Bytes())
}

func (r *assembler) endReasoning(signature string) []model.Event {
	if !r.inReasoning {
		return nil
	}
	r.inReasoning = false
	if signature == "" {
		return []model.Event{model.ReasoningEnd{}}
	}
	return []model.Event{reasoningEnd(providerData{Signature: signature, Of: ofThought})}
}

func reasoningEnd(m providerData) model.Event {
	// Marshalling texts and a number cannot fail.
	data, _ := json.Marshal(m)
	return model.ReasoningEnd{ProviderData: data}
}

// finish gives the usage and the finish of a reply that is over, or says that it was
// cut off, or that the model did not manage to make the call that it began.
func (r *assembler) finish() ([]model.Event, error) {
	if !r.isFinished() {
		return nil, model.Truncated("a finishReason")
	}
	var events []model.Event
	if r.usage != nil {
		events = append(events, *r.usage)
	}
	if r.stopReason == genai.FinishReasonMalformedFunctionCall || r.stopReason == genai.FinishReasonUnexpectedToolCall {
		return events, model.InvalidResponse("%s", cmp.Or(r.finishMessage, "the model made a call that is none: "+string(r.stopReason)))
	}
	return append(events, model.Finish{Reason: r.finishReason()}), nil
}

func (r *assembler) finishReason() model.FinishReason {
	switch r.stopReason {
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
