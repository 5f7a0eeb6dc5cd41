package modeltest

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Heard is a reply, put together.
type Heard struct {
	Text string
	// Reasoning is a text for each block.
	Reasoning []string
	// ProviderData is that of each block of reasoning.
	ProviderData []json.RawMessage
	Calls        []HeardCall
	Usage        model.Usage
	Finish       model.FinishReason
	Err          error
	// Deltas is how many pieces the text came in.
	Deltas int
}

// HeardCall is a call, put together.
type HeardCall struct {
	ID, Name string
	// Arguments is the JSON of CallEnd.
	Arguments string

	text  string // the deltas
	ended bool
}

// Listen puts a reply together and checks that the sequence keeps its contract:
// deltas are not empty; a block of reasoning stands together; calls begin in the
// order of their indexes, 0 first, with ids of their own, and their deltas,
// joined, are their arguments; usage comes at most once; after Finish, or an
// error, nothing comes; one of the two does.
func Listen(t testing.TB, sequence iter.Seq2[model.Event, error]) Heard {
	t.Helper()
	l := listener{TB: t}
	for e, err := range sequence {
		if l.over {
			t.Errorf("got %#v, %v after the end", e, err)
		}
		if err != nil {
			if e != nil {
				t.Errorf("got the event %#v beside the error %v", e, err)
			}
			l.Err, l.over = err, true
			continue
		}
		l.hear(e)
	}
	if !l.over {
		t.Error("the sequence ended without Finish and without an error")
	}
	return l.Heard
}

type listener struct {
	testing.TB
	Heard
	thinking bool
	counted  bool
	over     bool
}

func (l *listener) hear(e model.Event) {
	l.Helper()
	switch e := e.(type) {
	case model.ReasoningDelta:
		l.notEmpty(e.Text)
		if !l.thinking {
			l.thinking = true
			l.Reasoning = append(l.Reasoning, "")
		}
		l.Reasoning[len(l.Reasoning)-1] += e.Text
		return
	case model.ReasoningEnd:
		if !l.thinking {
			l.Reasoning = append(l.Reasoning, "")
		}
		l.thinking = false
		l.ProviderData = append(l.ProviderData, e.ProviderData)
		return
	}
	if l.thinking {
		l.Errorf("got %#v within a block of reasoning", e)
	}
	switch e := e.(type) {
	case model.TextDelta:
		l.notEmpty(e.Text)
		l.Text += e.Text
		l.Deltas++
	case model.CallStart, model.CallDelta, model.CallEnd:
		l.call(e)
	case model.Usage:
		if l.counted {
			l.Error("got a second usage")
		}
		l.counted, l.Usage = true, e
	case model.Finish:
		l.over, l.Finish = true, e.Reason
		for i, c := range l.Calls {
			if !c.ended {
				l.Errorf("the call %d did not end", i)
			}
		}
	default:
		l.Errorf("got the unknown event %#v", e)
	}
}

func (l *listener) call(e model.Event) {
	l.Helper()
	switch e := e.(type) {
	case model.CallStart:
		if e.Index != len(l.Calls) || e.ID == "" || e.Name == "" {
			l.Errorf("got %#v as call %d", e, len(l.Calls))
		}
		for _, c := range l.Calls {
			if c.ID == e.ID {
				l.Errorf("two calls have the id %q", e.ID)
			}
		}
		l.Calls = append(l.Calls, HeardCall{ID: e.ID, Name: e.Name})
	case model.CallDelta:
		l.notEmpty(e.Text)
		if c := l.open(e.Index); c != nil {
			c.text += e.Text
		}
	case model.CallEnd:
		c := l.open(e.Index)
		if c == nil {
			return
		}
		c.ended = true
		c.Arguments = string(e.Arguments)
		if !json.Valid(e.Arguments) {
			l.Errorf("the arguments %q are not JSON", e.Arguments)
		}
		var quoted string
		if json.Unmarshal(e.Arguments, &quoted) == nil && quoted == c.text {
			return
		}
		if c.text != c.Arguments && strings.TrimSpace(c.text) != "" {
			l.Errorf("got the deltas %q of the arguments %q", c.text, c.Arguments)
		}
	}
}

// open gives a call that began and did not end.
func (l *listener) open(index int) *HeardCall {
	l.Helper()
	if index < 0 || index >= len(l.Calls) || l.Calls[index].ended {
		l.Errorf("got an event of the call %d, which is not open", index)
		return nil
	}
	return &l.Calls[index]
}

func (l *listener) notEmpty(text string) {
	l.Helper()
	if text == "" {
		l.Error("got an empty delta")
	}
}
