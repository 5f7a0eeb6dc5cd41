package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// responseAssembler builds one reply from the events of a response. It does no I/O.
type responseAssembler struct {
	origin           origin
	ids              *model.CallIDs
	items            map[model.LooseInt]*item // open items by their index on the wire
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
	summaryPart model.LooseInt // current part of the summary
	arguments   strings.Builder
}

func newResponseAssembler(messages int, from origin) *responseAssembler {
	return &responseAssembler{origin: from, ids: model.NewCallIDs(messages), items: make(map[model.LooseInt]*item)}
}

func (a *responseAssembler) isFinished() bool { return a.status != "" }

// isComplete equals isFinished: the last event includes the usage.
func (a *responseAssembler) isComplete() bool { return a.isFinished() }

func (a *responseAssembler) handle(data []byte) ([]model.Event, error) {
	if strings.HasPrefix(string(data), "[DONE]") {
		return nil, nil // compatible servers send it behind the end
	}
	e, err := decode[responseEvent](data)
	if err != nil {
		return nil, err
	}
	switch e.Type {
	case "response.output_item.added":
		return a.startCall(e.OutputIndex, e.Item)
	case "response.output_text.delta":
		return a.addText(e.OutputIndex, string(e.Delta)), nil
	case "response.refusal.delta":
		a.refused = true
		return a.addText(e.OutputIndex, string(e.Delta)), nil
	case "response.reasoning_summary_text.delta":
		return a.addReasoning(e.OutputIndex, e.SummaryIndex, string(e.Delta)), nil
	case "response.reasoning_text.delta":
		return a.addReasoning(e.OutputIndex, e.ContentIndex, string(e.Delta)), nil
	case "response.function_call_arguments.delta":
		return a.addArguments(e.OutputIndex, string(e.Delta))
	case "response.output_item.done":
		return a.endItem(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete", "response.done": // the last is a router's
		a.setOutcome(e.Response)
		return a.endCalls(), nil
	case "response.failed":
		return nil, failureError(e.Response.Error)
	case "error":
		return nil, failureError(data)
	}
	return nil, nil
}

func failureError(failure json.RawMessage) error {
	return eventError([]byte(`{"error":` + cmp.Or(string(failure), "null") + `}`))
}

func (a *responseAssembler) openItem(index model.LooseInt) (*item, error) {
	i := a.items[index]
	if i == nil {
		if len(a.items) == maxCalls {
			return nil, model.InvalidResponse("more than %d open items", maxCalls)
		}
		i = &item{call: -1}
		a.items[index] = i
	}
	return i, nil
}

func (a *responseAssembler) startCall(index model.LooseInt, start responseItem) ([]model.Event, error) {
	i, err := a.openItem(index)
	if err != nil || start.Type != "function_call" || i.call >= 0 {
		return nil, err
	}
	if start.Name == "" {
		return nil, model.InvalidResponse("a call has no name")
	}
	i.call = a.calls
	a.calls++
	events := append(a.endReasoning(nil), model.CallStart{
		Index: i.call, ID: a.ids.Assign(string(start.CallID), i.call), Name: string(start.Name),
	})
	return events, nil
}

// addText returns the events of a text. Text ends the reasoning block.
func (a *responseAssembler) addText(index model.LooseInt, delta string) []model.Event {
	if delta == "" {
		return nil
	}
	if i, err := a.openItem(index); err == nil {
		i.streamed = true
	}
	return append(a.endReasoning(nil), model.TextDelta{Text: delta})
}

func (a *responseAssembler) addReasoning(index, part model.LooseInt, delta string) []model.Event {
	i, err := a.openItem(index)
	if delta == "" || err != nil {
		return nil
	}
	if i.streamed && part != i.summaryPart {
		delta = "\n\n" + delta // separate the paragraphs of a summary
	}
	i.streamed = true
	i.summaryPart = part
	a.inReasoning = true
	return []model.Event{model.ReasoningDelta{Text: delta}}
}

func (a *responseAssembler) addArguments(index model.LooseInt, delta string) ([]model.Event, error) {
	i := a.items[index]
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
func (a *responseAssembler) endItem(index model.LooseInt, end responseItem) ([]model.Event, error) {
	i, err := a.openItem(index)
	if err != nil {
		return nil, err
	}
	var events []model.Event
	switch end.Type {
	case "message":
		if !i.streamed {
			for _, c := range end.Content {
				a.refused = a.refused || c.Refusal != ""
				events = append(events, a.addText(index, string(c.Text+c.Refusal))...)
			}
		}
	case "reasoning":
		if !i.streamed {
			for n, s := range end.Summary {
				events = append(events, a.addReasoning(index, model.LooseInt(n), string(s.Text))...)
			}
		}
		var data json.RawMessage
		if isReasoningItem(end.raw) {
			if data, err = json.Marshal(responseData{Origin: a.origin, Item: end.raw}); err != nil {
				return nil, model.InvalidResponse("a reasoning item is not JSON: %v", err)
			}
		}
		a.inReasoning = a.inReasoning || data != nil // a block may consist of its end alone
		events = append(events, a.endReasoning(data)...)
	case "function_call":
		if events, err = a.endCall(i, index, end); err != nil {
			return events, err
		}
	}
	delete(a.items, index)
	return events, nil
}

func (a *responseAssembler) endCall(i *item, index model.LooseInt, end responseItem) ([]model.Event, error) {
	events, err := a.startCall(index, end) // some servers send a call in one piece
	if err != nil {
		return nil, err
	}
	if i.arguments.Len() == 0 {
		arguments := ""
		if !isNull(end.Arguments) {
			arguments = model.PlainText(end.Arguments) // some servers send an object in place of a text
		}
		more, err := a.addArguments(index, arguments)
		if err != nil {
			return events, err
		}
		events = append(events, more...)
	}
	return append(events, model.CallEnd{Index: i.call, Arguments: model.EncodeArguments(i.arguments.String())}), nil
}

func (a *responseAssembler) endReasoning(data json.RawMessage) []model.Event {
	if !a.inReasoning {
		return nil
	}
	a.inReasoning = false
	return []model.Event{model.ReasoningEnd{ProviderData: data}}
}

func (a *responseAssembler) setOutcome(end responseOutcome) {
	// Some servers omit the status; the event type implies it.
	a.status = cmp.Or(string(end.Status), "completed")
	a.incompleteReason = string(end.IncompleteDetails.Reason)
	if a.incompleteReason != "" {
		a.status = "incomplete"
	}
	if u := end.Usage; u != nil {
		a.usage = &model.Usage{
			PromptTokens: int64(u.Input), CompletionTokens: int64(u.Output), TotalTokens: int64(u.Total),
			ReasoningTokens: int64(u.OutputDetails.Reasoning),
			CachedTokens:    int64(u.InputDetails.Cached),
		}
	}
}

// endCalls ends the open blocks: an incomplete response may stop within a call.
func (a *responseAssembler) endCalls() []model.Event {
	events := a.endReasoning(nil)
	for call := range a.calls {
		for _, i := range a.items {
			if i.call == call {
				events = append(events, model.CallEnd{Index: call, Arguments: model.EncodeArguments(i.arguments.String())})
			}
		}
	}
	clear(a.items)
	return events
}

// finish returns the usage and the finish of an ended response, and an error for a truncated one.
func (a *responseAssembler) finish() ([]model.Event, error) {
	if !a.isFinished() {
		return nil, model.Truncated("response.completed")
	}
	var events []model.Event
	if a.usage != nil {
		events = append(events, *a.usage)
	}
	return append(events, model.Finish{Reason: a.finishReason()}), nil
}

func (a *responseAssembler) finishReason() model.FinishReason {
	switch {
	case a.incompleteReason == "max_output_tokens":
		return model.FinishLength
	case a.incompleteReason == "content_filter":
		return model.FinishContentFilter
	case a.status != "completed":
		return model.FinishOther
	case a.calls > 0:
		return model.FinishToolCalls
	case a.refused:
		return model.FinishContentFilter
	}
	return model.FinishStop
}
