package modeltest

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Reply is a collected reply.
type Reply struct {
	Text string
	// Reasoning has one text for each reasoning block.
	Reasoning []string
	// ProviderData has one value for each reasoning block.
	ProviderData []json.RawMessage
	Calls        []ReplyCall
	Usage        model.Usage
	Finish       model.FinishReason
	Err          error
	// Deltas is the number of text deltas.
	Deltas int
}

// ReplyCall is a call of a collected reply.
type ReplyCall struct {
	ID, Name string
	// Arguments is the JSON of CallEnd.
	Arguments string

	text  string // the joined deltas
	ended bool
}

// Collect reads a reply and checks the contract of its sequence. Deltas are not empty. A reasoning block is
// contiguous. Calls start in the order of their indexes from 0 and have unique ids; their joined deltas equal
// their arguments. Usage comes at most once. The sequence ends with Finish or an error, and nothing follows.
func Collect(t testing.TB, sequence iter.Seq2[model.Event, error]) Reply {
	t.Helper()
	r := collector{TB: t}
	for e, err := range sequence {
		if r.ended {
			t.Errorf("got %#v, %v after the end", e, err)
		}
		if err != nil {
			if e != nil {
				t.Errorf("got the event %#v together with the error %v", e, err)
			}
			r.Err = err
			r.ended = true
			continue
		}
		r.add(e)
	}
	if !r.ended {
		t.Error("the sequence ended without Finish and without an error")
	}
	return r.Reply
}

type collector struct {
	testing.TB
	Reply
	inReasoning bool
	hasUsage    bool
	ended       bool
}

func (r *collector) add(e model.Event) {
	r.Helper()
	switch e := e.(type) {
	case model.ReasoningDelta:
		r.checkNotEmpty(e.Text)
		if !r.inReasoning {
			r.inReasoning = true
			r.Reasoning = append(r.Reasoning, "")
		}
		r.Reasoning[len(r.Reasoning)-1] += e.Text
		return
	case model.ReasoningEnd:
		if !r.inReasoning {
			r.Reasoning = append(r.Reasoning, "")
		}
		r.inReasoning = false
		r.ProviderData = append(r.ProviderData, e.ProviderData)
		return
	}
	if r.inReasoning {
		r.Errorf("got %#v within a block of reasoning", e)
	}
	switch e := e.(type) {
	case model.TextDelta:
		r.checkNotEmpty(e.Text)
		r.Text += e.Text
		r.Deltas++
	case model.CallStart, model.CallDelta, model.CallEnd:
		r.addCall(e)
	case model.Usage:
		if r.hasUsage {
			r.Error("got a second usage")
		}
		r.hasUsage = true
		r.Usage = e
	case model.Finish:
		r.ended = true
		r.Finish = e.Reason
		for i, c := range r.Calls {
			if !c.ended {
				r.Errorf("the call %d did not end", i)
			}
		}
	default:
		r.Errorf("got the unknown event %#v", e)
	}
}

func (r *collector) addCall(e model.Event) {
	r.Helper()
	switch e := e.(type) {
	case model.CallStart:
		if e.Index != len(r.Calls) || e.ID == "" || e.Name == "" {
			r.Errorf("got %#v as call %d", e, len(r.Calls))
		}
		for _, c := range r.Calls {
			if c.ID == e.ID {
				r.Errorf("two calls have the id %q", e.ID)
			}
		}
		r.Calls = append(r.Calls, ReplyCall{ID: e.ID, Name: e.Name})
	case model.CallDelta:
		r.checkNotEmpty(e.Text)
		if c := r.openCall(e.Index); c != nil {
			c.text += e.Text
		}
	case model.CallEnd:
		c := r.openCall(e.Index)
		if c == nil {
			return
		}
		c.ended = true
		c.Arguments = string(e.Arguments)
		if !json.Valid(e.Arguments) {
			r.Errorf("the arguments %q are not JSON", e.Arguments)
		}
		var quoted string
		if json.Unmarshal(e.Arguments, &quoted) == nil && quoted == c.text {
			return
		}
		if c.text != c.Arguments && strings.TrimSpace(c.text) != "" {
			r.Errorf("the deltas %q do not match the arguments %q", c.text, c.Arguments)
		}
	}
}

// openCall returns the call at index. It fails the test if the call has ended.
func (r *collector) openCall(index int) *ReplyCall {
	r.Helper()
	if index < 0 || index >= len(r.Calls) || r.Calls[index].ended {
		r.Errorf("got an event for call %d, which is not open", index)
		return nil
	}
	return &r.Calls[index]
}

func (r *collector) checkNotEmpty(text string) {
	r.Helper()
	if text == "" {
		r.Error("got an empty delta")
	}
}
