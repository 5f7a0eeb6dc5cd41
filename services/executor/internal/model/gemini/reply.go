package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

const maxCalls = 256

// assembler builds one reply from the chunks of its stream. It does no I/O.
type assembler struct {
	origin           origin
	ids              *model.CallIDs
	calls            int
	inReasoning      bool
	stopReason       string // "" until it arrives
	finishMessage    string // the API's explanation of the stop
	promptBlocked    bool   // there will be no reply
	usage            *model.Usage
	usageAfterFinish bool // the usage came with or after the stop reason
}

func newAssembler(messages int, from origin) *assembler {
	return &assembler{origin: from, ids: model.NewCallIDs(messages)}
}

// isFinished reports whether the reply has ended. Its usage may be missing.
func (a *assembler) isFinished() bool { return a.stopReason != "" || a.promptBlocked }

// isComplete reports whether everything has arrived.
func (a *assembler) isComplete() bool { return a.isFinished() && a.usageAfterFinish }

func (a *assembler) handle(data []byte) ([]model.Event, error) {
	if apiErr := parseAPIError(data); apiErr.found {
		return nil, streamError(apiErr)
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, model.InvalidResponse("cannot decode a chunk: %v", err)
	}
	var events []model.Event
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 || a.isFinished() {
			continue
		}
		for _, p := range candidate.Content.Parts {
			more, err := a.addPart(p)
			events = append(events, more...)
			if err != nil {
				return events, err
			}
		}
		if candidate.FinishReason != "" && candidate.FinishReason != "FINISH_REASON_UNSPECIFIED" {
			a.stopReason = candidate.FinishReason
			a.finishMessage = candidate.FinishMessage
			events = append(events, a.endReasoning("")...)
		}
	}
	if c.PromptFeedback.BlockReason != "" {
		a.promptBlocked = true
		events = append(events, a.endReasoning("")...)
	}
	if u := c.Usage; u != nil {
		a.usageAfterFinish = a.isFinished()
		a.usage = &model.Usage{
			PromptTokens:     u.Prompt + u.ToolUsePrompt,
			CompletionTokens: u.Candidates + u.Thoughts,
			ReasoningTokens:  u.Thoughts,
			CachedTokens:     u.Cached,
			TotalTokens:      u.Total,
		}
	}
	return events, nil
}

func (a *assembler) addPart(p part) ([]model.Event, error) {
	text := ""
	if p.Text != nil {
		text = *p.Text
	}
	switch {
	case p.FunctionCall != nil:
		return a.addCall(*p.FunctionCall, p.ThoughtSignature)
	case p.Thought:
		var events []model.Event
		if text != "" {
			a.inReasoning = true
			events = append(events, model.ReasoningDelta{Text: text})
		}
		if p.ThoughtSignature != "" {
			a.inReasoning = true // a block may consist of its end alone
			events = append(events, a.endReasoning(p.ThoughtSignature)...)
		}
		return events, nil
	case text == "" && p.ThoughtSignature == "":
		return nil, nil // empty, or an unrequested kind of part
	}
	events := a.endReasoning("")
	if p.ThoughtSignature != "" {
		events = append(events, a.reasoningEnd(providerData{Signature: p.ThoughtSignature, Of: ofText, Bytes: len(text)}))
	}
	if text != "" {
		events = append(events, model.TextDelta{Text: text})
	}
	return events, nil
}

// addCall returns the events of a call. Calls arrive in one piece.
func (a *assembler) addCall(c functionCall, signature string) ([]model.Event, error) {
	if c.Name == "" {
		return nil, model.InvalidResponse("a call has no name")
	}
	if a.calls == maxCalls {
		return nil, model.InvalidResponse("more than %d calls in one reply", maxCalls)
	}
	events := a.endReasoning("")
	if signature != "" {
		events = append(events, a.reasoningEnd(providerData{Signature: signature, Of: ofCall}))
	}
	index := a.calls
	a.calls++
	events = append(events, model.CallStart{Index: index, ID: a.ids.Assign(c.ID, index), Name: c.Name})
	arguments := argumentsText(c.Args)
	if arguments != "" {
		events = append(events, model.CallDelta{Index: index, Text: arguments})
	}
	return append(events, model.CallEnd{Index: index, Arguments: model.EncodeArguments(arguments)}), nil
}

// argumentsText returns arguments without the API's white space, and "" if there are none.
func argumentsText(args json.RawMessage) string {
	var text bytes.Buffer
	if len(args) == 0 || string(args) == "null" || json.Compact(&text, args) != nil {
		return ""
	}
	return model.PlainText(text.Bytes())
}

func (a *assembler) endReasoning(signature string) []model.Event {
	if !a.inReasoning {
		return nil
	}
	a.inReasoning = false
	if signature == "" {
		return []model.Event{model.ReasoningEnd{}}
	}
	return []model.Event{a.reasoningEnd(providerData{Signature: signature, Of: ofThought})}
}

func (a *assembler) reasoningEnd(m providerData) model.Event {
	m.Origin = a.origin
	// Marshalling strings and a number cannot fail.
	data, _ := json.Marshal(m)
	return model.ReasoningEnd{ProviderData: data}
}

// finish returns the usage and the finish of a complete reply. A truncated reply and a malformed call give an
// error.
func (a *assembler) finish() ([]model.Event, error) {
	if !a.isFinished() {
		return nil, model.Truncated("a finishReason")
	}
	var events []model.Event
	if a.usage != nil {
		events = append(events, *a.usage)
	}
	if a.stopReason == "MALFORMED_FUNCTION_CALL" || a.stopReason == "UNEXPECTED_TOOL_CALL" {
		return events, model.InvalidResponse("%s", cmp.Or(a.finishMessage, "the model made an invalid call: "+a.stopReason))
	}
	return append(events, model.Finish{Reason: a.finishReason()}), nil
}

func (a *assembler) finishReason() model.FinishReason {
	switch a.stopReason {
	case "": // the prompt was blocked
		return model.FinishContentFilter
	case "STOP":
		if a.calls > 0 {
			return model.FinishToolCalls // the API has no finish reason for calls
		}
		return model.FinishStop
	case "MAX_TOKENS":
		return model.FinishLength
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		return model.FinishContentFilter
	default:
		return model.FinishOther
	}
}
