package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// response puts the events of one response together. It does no I/O.
type response struct {
	ids      *model.IDs
	items    map[int64]*item // those that are open, by their index on the wire
	calls    int
	thinking bool
	refused  bool
	status   string // completed or incomplete, "" before the end
	cause    string // why it is incomplete
	usage    *model.Usage
}

// item is an output item on its way in.
type item struct {
	call      int // the Index of a call; -1 for what is none
	said      bool
	part      int64 // the part of the summary that is being said
	arguments strings.Builder
}

func newResponse(messages int) *response {
	return &response{ids: model.NewIDs(messages), items: make(map[int64]*item)}
}

func (r *response) finished() bool { return r.status != "" }

// whole is the same: the usage is in the event of the end.
func (r *response) whole() bool { return r.finished() }

// take gives the events of an event.
func (r *response) take(e responses.ResponseStreamEventUnion) ([]model.Event, error) {
	switch e.Type {
	case "response.output_item.added":
		return r.begin(e.OutputIndex, e.Item)
	case "response.output_text.delta":
		return r.text(e.OutputIndex, e.Delta), nil
	case "response.refusal.delta":
		r.refused = true
		return r.text(e.OutputIndex, e.Delta), nil
	case "response.reasoning_summary_text.delta":
		return r.think(e.OutputIndex, e.SummaryIndex, e.Delta), nil
	case "response.reasoning_text.delta":
		return r.think(e.OutputIndex, e.ContentIndex, e.Delta), nil
	case "response.function_call_arguments.delta":
		return r.argue(e.OutputIndex, e.Delta)
	case "response.output_item.done":
		return r.done(e.OutputIndex, e.Item)
	case "response.completed", "response.incomplete":
		r.finish(e.Response)
		return r.close(), nil
	case "response.failed":
		return nil, complain(e.Response.Error.RawJSON())
	case "error":
		return nil, complain(e.RawJSON())
	}
	return nil, nil
}

// complain classifies what an event says about a failure.
func complain(said string) error {
	return interruption([]byte(`{"error":` + cmp.Or(said, "null") + `}`))
}

func (r *response) open(index int64) (*item, error) {
	i := r.items[index]
	if i == nil {
		if len(r.items) == maxCalls {
			return nil, model.Unreadable("more than %d items at a time", maxCalls)
		}
		i = &item{call: -1}
		r.items[index] = i
	}
	return i, nil
}

func (r *response) begin(index int64, start responses.ResponseOutputItemUnion) ([]model.Event, error) {
	i, err := r.open(index)
	if err != nil || start.Type != "function_call" || i.call >= 0 {
		return nil, err
	}
	if start.Name == "" {
		return nil, model.Unreadable("a call has no name")
	}
	i.call = r.calls
	r.calls++
	events := append(r.stopThinking(nil), model.CallStart{
		Index: i.call, ID: r.ids.Next(start.CallID, i.call), Name: start.Name,
	})
	return events, nil
}

// text says a text. What is said while the model thinks ends the thought.
func (r *response) text(index int64, delta string) []model.Event {
	if delta == "" {
		return nil
	}
	if i, err := r.open(index); err == nil {
		i.said = true
	}
	return append(r.stopThinking(nil), model.TextDelta{Text: delta})
}

func (r *response) think(index, part int64, delta string) []model.Event {
	i, err := r.open(index)
	if delta == "" || err != nil {
		return nil
	}
	if i.said && part != i.part {
		delta = "\n\n" + delta // the parts of a summary are paragraphs
	}
	i.said, i.part, r.thinking = true, part, true
	return []model.Event{model.ReasoningDelta{Text: delta}}
}

// argue takes a fragment of the arguments of a call that has begun.
func (r *response) argue(index int64, delta string) ([]model.Event, error) {
	i := r.items[index]
	if i == nil || i.call < 0 {
		return nil, model.Unreadable("arguments of the item %d, which is not an open call", index)
	}
	if i.arguments.Len()+len(delta) > maxArguments {
		return nil, model.Unreadable("the arguments of a call are longer than %d bytes", maxArguments)
	}
	if delta == "" {
		return nil, nil
	}
	i.arguments.WriteString(delta)
	return []model.Event{model.CallDelta{Index: i.call, Text: delta}}, nil
}

// done ends an item, saying what of it was not said piece by piece.
func (r *response) done(index int64, end responses.ResponseOutputItemUnion) ([]model.Event, error) {
	i, err := r.open(index)
	if err != nil {
		return nil, err
	}
	var events []model.Event
	switch end.Type {
	case "message":
		if !i.said {
			for _, c := range end.Content {
				r.refused = r.refused || c.Refusal != ""
				events = append(events, r.text(index, c.Text+c.Refusal)...)
			}
		}
	case "reasoning":
		if !i.said {
			for n, s := range end.Summary {
				events = append(events, r.think(index, int64(n), s.Text)...)
			}
		}
		var data json.RawMessage
		if raw := json.RawMessage(end.RawJSON()); isReasoningItem(raw) {
			data = raw
		}
		r.thinking = r.thinking || data != nil // a block may consist of its end alone
		events = append(events, r.stopThinking(data)...)
	case "function_call":
		if events, err = r.endCall(i, index, end); err != nil {
			return events, err
		}
	}
	delete(r.items, index)
	return events, nil
}

func (r *response) endCall(i *item, index int64, end responses.ResponseOutputItemUnion) ([]model.Event, error) {
	events, err := r.begin(index, end) // some servers give a call in one piece
	if err != nil {
		return nil, err
	}
	if i.arguments.Len() == 0 {
		more, err := r.argue(index, end.Arguments.OfString)
		if err != nil {
			return events, err
		}
		events = append(events, more...)
	}
	return append(events, model.CallEnd{Index: i.call, Arguments: model.Arguments(i.arguments.String())}), nil
}

func (r *response) stopThinking(data json.RawMessage) []model.Event {
	if !r.thinking {
		return nil
	}
	r.thinking = false
	return []model.Event{model.ReasoningEnd{ProviderData: data}}
}

func (r *response) finish(end responses.Response) {
	// Some servers leave the status out; the event says it, too.
	r.status = cmp.Or(string(end.Status), "completed")
	r.cause = end.IncompleteDetails.Reason
	if r.cause != "" {
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

// close ends what is open at the end: an incomplete response may stop within a call.
func (r *response) close() []model.Event {
	events := r.stopThinking(nil)
	for call := range r.calls {
		for _, i := range r.items {
			if i.call == call {
				events = append(events, model.CallEnd{Index: call, Arguments: model.Arguments(i.arguments.String())})
			}
		}
	}
	clear(r.items)
	return events
}

// end gives the usage and the finish of a response that is over, or says that it was cut off.
func (r *response) end() ([]model.Event, error) {
	if !r.finished() {
		return nil, model.CutOff("response.completed")
	}
	var events []model.Event
	if r.usage != nil {
		events = append(events, *r.usage)
	}
	return append(events, model.Finish{Reason: r.reason()}), nil
}

func (r *response) reason() model.FinishReason {
	switch {
	case r.cause == "max_output_tokens":
		return model.FinishLength
	case r.cause == "content_filter":
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
