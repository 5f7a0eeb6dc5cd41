package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// responseAssembler builds one reply from the events of a response. It does no I/O.
type responseAssembler struct {
	ids              *model.CallIDs
	items            map[int64]*item // open items by their index on the wire
	calls            int
	inReasoning      bool
	refused          bool
	status           string // completed or incomplete, "" until it arrives
	incompleteReason string // "" for a complete response
	usage            *model.Usage
}

type item struct {
	call        int // Index of the call; -1 for other items
	streamed    bool
	summaryPart int64 // current part of the summary
	arguments   strings.Builder
}

func newResponseAssembler(messages int) *responseAssembler {
	return &responseAssembler{ids: model.NewCallIDs(messages), items: make(map[int64]*item)}
}

func (r *responseAssembler) isFinished() bool { return r.status != "" }

// isComplete equals isFinished: the last event includes the usage.
func (r *responseAssembler) isComplete() bool { return r.isFinished() }

func (r *responseAssembler) handle(e responses.ResponseStreamEventUnion) ([]model.Event, error) {
	switch e.Type {
	case "response.output_item.added":
		return r.startCall(e.OutputIndex, e.Item)
	case "response.output_text.delta":
		return r.addText(e.OutputIndex, e.Delta), nil
	case "response.refusal.delta":
		r.refused = true
		return r.addText(e.OutputIndex, e.Delta), nil
	case "response.reasoning_summary_text.delta":
		return r.addReasoning(e.OutputIndex, e.SummaryIndex, e.Delta), nil
	case "response.reasoning_text.delta":
		return r.addReasoning(e.OutputIndex, e.ContentIndex, e.Delta), nil
	case "response.function_call_arguments.delta":
		return r.addArguments(e.OutputIndex, e.Delta)
	case "response.output_item.done":
		return r.endItem(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete":
		r.setOutcome(e.Response)
		return r.endCalls(), nil
	case "response.failed":
		return nil, failureError(e.Response.Error.RawJSON())
	case "error":
		return nil, failureError(e.RawJSON())
	}
	return nil, nil
}

func failureError(failure string) error {
	return eventError([]byte(`{"error":` + cmp.Or(failure, "null") + `}`))
}

func (r *responseAssembler) openItem(index int64) (*item, error) {
	i := r.items[index]
	if i == nil {
		if len(r.items) == maxCalls {
			return nil, model.InvalidResponse("more than %d open items", maxCalls)
		}
		i = &item{call: -1}
		r.items[index] = i
	}
	return i, nil
}

func (r *responseAssembler) startCall(index int64, start responses.ResponseOutputItemUnion) ([]model.Event, error) {
	i, err := r.openItem(index)
	if err != nil || start.Type != "function_call" || i.call >= 0 {
		return nil, err
	}
	if start.Name == "" {
		return nil, model.InvalidResponse("a call has no name")
	}
	i.call = r.calls
	r.calls++
	events := append(r.endReasoning(nil), model.CallStart{
		Index: i.call, ID: r.ids.Assign(start.CallID, i.call), Name: start.Name,
	})
	return events, nil
}

// addText returns the events of a text. Text ends the reasoning block.
func (r *responseAssembler) addText(index int64, delta string) []model.Event {
	if delta == "" {
		return nil
	}
	if i, err := r.openItem(index); err == nil {
		i.streamed = true
	}
	return append(r.endReasoning(nil), model.TextDelta{Text: delta})
}

func (r *responseAssembler) addReasoning(index, part int64, delta string) []model.Event {
	i, err := r.openItem(index)
	if delta == "" || err != nil {
		return nil
	}
	if i.streamed && part != i.summaryPart {
		delta = "\n\n" + delta // separate the paragraphs of a summary
	}
	i.streamed, i.summaryPart, r.inReasoning = true, part, true
	return []model.Event{model.ReasoningDelta{Text: delta}}
}

func (r *responseAssembler) addArguments(index int64, delta string) ([]model.Event, error) {
	i := r.items[index]
	if i == nil || i.call < 0 {
		return nil, model.InvalidResponse("arguments for item %d, which is not an open call", index)
	}
	if i.arguments.Len()+len(delta) > maxArguments {
		return nil, model.InvalidResponse("the arguments of a call exceed %d bytes", maxArguments)
	}
	if delta == "" {
		return nil, nil
	}
	i.arguments.WriteString(delta)
	return []model.Event{model.CallDelta{Index: i.call, Text: delta}}, nil
}

// endItem ends an item. It adds the content if the item was not streamed.
func (r *responseAssembler) endItem(index int64, end responses.ResponseOutputItemUnion) ([]model.Event, error) {
	i, err := r.openItem(index)
	if err != nil {
		return nil, err
	}
	var events []model.Event
	switch end.Type {
	case "message":
		if !i.streamed {
			for _, c := range end.Content {
				r.refused = r.refused || c.Refusal != ""
				events = append(events, r.addText(index, c.Text+c.Refusal)...)
			}
		}
	case "reasoning":
		if !i.streamed {
			for n, s := range end.Summary {
				events = append(events, r.addReasoning(index, int64(n), s.Text)...)
			}
		}
		var data json.RawMessage
		if raw := json.RawMessage(end.RawJSON()); isReasoningItem(raw) {
			data = raw
		}
		r.inReasoning = r.inReasoning || data != nil // a block may consist of its end alone
		events = append(events, r.endReasoning(data)...)
	case "function_call":
		if events, err = r.endCall(i, index, end); err != nil {
			return events, err
		}
	}
	delete(r.items, index)
	return events, nil
}

func (r *responseAssembler) endCall(i *item, index int64, end responses.ResponseOutputItemUnion) ([]model.Event, error) {
	events, err := r.startCall(index, end) // some servers send a call in one piece
	if err != nil {
		return nil, err
	}
	if i.arguments.Len() == 0 {
		more, err := r.addArguments(index, end.Arguments.OfString)
		if err != nil {
			return events, err
		}
		events = append(events, more...)
	}
	return append(events, model.CallEnd{Index: i.call, Arguments: model.EncodeArguments(i.arguments.String())}), nil
}

func (r *responseAssembler) endReasoning(data json.RawMessage) []model.Event {
	if !r.inReasoning {
		return nil
	}
	r.inReasoning = false
	return []model.Event{model.ReasoningEnd{ProviderData: data}}
}

func (r *responseAssembler) setOutcome(end responses.Response) {
	// Some servers omit the status; the event type implies it.
	r.status = cmp.Or(string(end.Status), "completed")
	r.incompleteReason = end.IncompleteDetails.Reason
	if r.incompleteReason != "" {
		r.status = "incomplete"
	}
	if end.JSON.Usage.Valid() {
		u := end.Usage
		r.usage = &model.Usage{
			PromptTokens: u.InputTokens, CompletionTokens: u.OutputTokens, TotalTokens: u.TotalTokens,
			ReasoningTokens: u.OutputTokensDetails.ReasoningTokens,
			CachedTokens:    u.InputTokensDetails.CachedTokens,
		}
	}
}

// endCalls ends the open blocks: an incomplete response may stop within a call.
func (r *responseAssembler) endCalls() []model.Event {
	events := r.endReasoning(nil)
	for call := range r.calls {
		for _, i := range r.items {
			if i.call == call {
				events = append(events, model.CallEnd{Index: call, Arguments: model.EncodeArguments(i.arguments.String())})
			}
		}
	}
	clear(r.items)
	return events
}

// finish returns the usage and the finish of an ended response, and an error for a truncated one.
func (r *responseAssembler) finish() ([]model.Event, error) {
	if !r.isFinished() {
		return nil, model.Truncated("response.completed")
	}
	var events []model.Event
	if r.usage != nil {
		events = append(events, *r.usage)
	}
	return append(events, model.Finish{Reason: r.finishReason()}), nil
}

func (r *responseAssembler) finishReason() model.FinishReason {
	switch {
	case r.incompleteReason == "max_output_tokens":
		return model.FinishLength
	case r.incompleteReason == "content_filter":
		return model.FinishContentFilter
	case r.status != "completed":
		return model.FinishOther
	case r.calls > 0:
		return model.FinishToolCalls
	case r.refused:
		return model.FinishContentFilter
	}
	return model.FinishStop
}
