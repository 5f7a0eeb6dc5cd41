package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestAReplyWithCallsThatNoPlanCanHoldIsInvalid(t *testing.T) {
	t.Parallel()
	const room = 1<<20 - 64<<10 - len("c") - len("tool") - len("{}")
	call := []model.Event{
		model.CallStart{ID: "c", Name: "tool"}, model.CallDelta{Text: "{}"}, model.CallEnd{Arguments: json.RawMessage("{}")},
		model.Finish{Reason: model.FinishToolCalls},
	}
	add(t, newReply(), append([]model.Event{model.TextDelta{Text: strings.Repeat("x", room)}}, call...)...)
	add(t, newReply(), model.TextDelta{Text: strings.Repeat("x", 2<<20)}, model.Finish{Reason: model.FinishStop})
	quoted := strings.Repeat(`"`, room/2+10) // no JSON: twice as long as the text that it becomes
	for name, events := range map[string][]model.Event{
		"one byte more":   append([]model.Event{model.TextDelta{Text: strings.Repeat("x", room+1)}}, call...),
		"large as a text": {model.CallStart{ID: "c", Name: "tool"}, model.CallDelta{Text: quoted}, model.Finish{Reason: model.FinishToolCalls}},
	} {
		var err error
		r := newReply()
		for _, event := range events {
			if _, err = r.Add(event); err != nil {
				break
			}
		}
		invalid, ok := errors.AsType[*model.Error](err)
		if !ok || invalid.Code != model.CodeInvalidResponse || !invalid.Retryable || !strings.Contains(invalid.Message, "calls tools and is larger") {
			t.Errorf("%s: %v, want an invalid reply", name, err)
		}
	}
}

// The state service limits a metadata value to 4096 bytes.
func TestAPlanSaysInLittleSpaceWhichOfItsCallsAreAsked(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{
		Agent:      agent.Agent{Model: "t/m", Tools: []agent.Tool{tool("look:safe"), tool("pay:never:approval")}},
		Transcript: []agent.Message{userSays("u", "Hi")},
	})
	p.Next()
	said := []string{`c=look:{"q":1}`}
	for i := range 127 {
		said = append(said, fmt.Sprintf(`%s%03d=pay:{"q":1}`, strings.Repeat("x", 237), i))
	}
	p.Replied(newReplyOf(t, p, said, true))
	for key, value := range p.Next().(loop.RecordPlan).Plan.Metadata {
		if len(value) > 4096 {
			t.Errorf("the metadata %s has %d bytes", key, len(value))
		}
	}
}

func TestAStopKeepsNothingOfANativeCompletion(t *testing.T) {
	t.Parallel()
	a := agent.Agent{Model: "t/m", Completion: agent.CompletionNative, MaxSteps: 1, OutputSchema: json.RawMessage(`{"type":"object"}`)}
	p := loop.New(loop.Start{Agent: a, Transcript: []agent.Message{
		{ID: "u", Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "hi"}}},
		{ID: "a", Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: "well"}}},
	}})
	if call, ok := p.Next().(loop.CallModel); !ok || call.Request.Output == nil {
		t.Fatalf("effect = %#v, want a native completion", p.Next())
	}
	reply := p.NewReply()
	add(t, reply, model.TextDelta{Text: `{"completion": {"tool": "fin`})
	p.Stopped(loop.Stop{Kind: loop.StopInterrupt}, reply)
	if finish, ok := p.Next().(loop.Finish); !ok || finish.Outcome.Status != loop.StatusInterrupted {
		t.Errorf("effect = %#v, want the end without a message", p.Next())
	}
}
