package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func newReply() *loop.Reply {
	return loop.New(loop.Start{Agent: agent.Agent{Model: "test/mind"}}).NewReply()
}

func add(t *testing.T, r *loop.Reply, events ...model.Event) []model.Event {
	t.Helper()
	var told []model.Event
	for _, event := range events {
		more, err := r.Add(event)
		if err != nil {
			t.Fatalf("Add(%#v) = %v", event, err)
		}
		told = append(told, more...)
	}
	return told
}

func TestAReplyKeepsItsBlocksInTheirOrder(t *testing.T) {
	t.Parallel()
	r := newReply()
	add(t, r,
		model.ReasoningDelta{Text: "Hm"}, model.ReasoningDelta{Text: "."}, model.ReasoningEnd{ProviderData: json.RawMessage(`"sig"`)},
		model.ReasoningEnd{ProviderData: json.RawMessage(`"redacted"`)},
		model.TextDelta{Text: "Let "}, model.TextDelta{Text: "me."},
		model.CallStart{Index: 7, ID: "a", Name: "one"}, model.CallStart{Index: 3, ID: "b", Name: "two"},
		model.CallDelta{Index: 3, Text: `{"x"`}, model.CallDelta{Index: 7, Text: `{}`}, model.CallDelta{Index: 3, Text: `:1}`},
		model.CallEnd{Index: 7, Arguments: json.RawMessage(`{}`)}, model.CallEnd{Index: 3, Arguments: json.RawMessage(`{"x":1}`)},
		model.TextDelta{Text: "After."}, model.Usage{TotalTokens: 3}, model.Finish{Reason: model.FinishToolCalls},
	)
	want := []agent.Part{
		agent.Reasoning{Text: "Hm.", ProviderData: json.RawMessage(`"sig"`)}, agent.Reasoning{ProviderData: json.RawMessage(`"redacted"`)},
		agent.Text{Text: "Let me."},
		agent.ToolCall{ID: "a", Name: "one", Arguments: json.RawMessage(`{}`)}, agent.ToolCall{ID: "b", Name: "two", Arguments: json.RawMessage(`{"x":1}`)},
		agent.Text{Text: "After."},
	}
	if got := r.Parts(); !reflect.DeepEqual(got, want) {
		t.Errorf("parts = %#v, want %#v", got, want)
	}
	if r.CallID(3) != "b" || r.CallID(1) != "" || !r.IsComplete() || r.Usage().TotalTokens != 3 {
		t.Errorf("call 3 = %q, call 1 = %q, whole = %v, usage = %v", r.CallID(3), r.CallID(1), r.IsComplete(), r.Usage())
	}
}

func TestEndsThatTheProviderLeftOutAreTold(t *testing.T) {
	t.Parallel()
	r := newReply()
	got := add(t, r,
		model.ReasoningDelta{Text: "Hm"}, model.TextDelta{Text: "Yes"},
		model.CallStart{Index: 0, ID: "a", Name: "one"}, model.CallDelta{Index: 0, Text: `{"broken`}, model.Finish{Reason: model.FinishLength},
	)
	want := []model.Event{
		model.ReasoningDelta{Text: "Hm"}, model.ReasoningEnd{}, model.TextDelta{Text: "Yes"},
		model.CallStart{Index: 0, ID: "a", Name: "one"}, model.CallDelta{Index: 0, Text: `{"broken`},
		model.CallEnd{Index: 0, Arguments: json.RawMessage(`"{\"broken"`)}, model.Finish{Reason: model.FinishLength},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("told %#v, want %#v", got, want)
	}
}

func TestIDsThatCannotBeCallIDsAreReplaced(t *testing.T) {
	t.Parallel()
	r := newReply()
	for i, id := range []string{"", strings.Repeat("x", 300), "a\x00b", "a\xffb", ""} {
		add(t, r, model.CallStart{Index: i, ID: id, Name: "one"})
	}
	seen := map[string]bool{}
	for i := range 5 {
		id := r.CallID(i)
		if seen[id] || !strings.HasPrefix(id, "call_") || len(id) > 256 {
			t.Errorf("call %d has the id %q, want one of its own", i, id)
		}
		seen[id] = true
	}
}

func TestEventsThatAreNoReplyAreAnInvalidResponse(t *testing.T) {
	t.Parallel()
	tests := map[string][]model.Event{
		"arguments without a call": {model.CallDelta{Index: 1, Text: "x"}},
		"end without a call":       {model.CallEnd{Index: 1}},
		"call twice":               {model.CallStart{Index: 1, ID: "a"}, model.CallStart{Index: 1, ID: "b"}},
		"call ended twice":         {model.CallStart{Index: 1, ID: "a"}, model.CallEnd{Index: 1}, model.CallEnd{Index: 1}},
		"text after the end":       {model.Finish{Reason: model.FinishStop}, model.TextDelta{Text: "x"}},
		"too much text":            {model.TextDelta{Text: strings.Repeat("x", 9<<20)}},
	}
	for name, events := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReply()
			var err error
			for _, event := range events {
				if _, err = r.Add(event); err != nil {
					break
				}
			}
			provider, ok := errors.AsType[*model.Error](err)
			if !ok || provider.Code != model.CodeInvalidResponse || !provider.Retryable {
				t.Errorf("error = %v, want a retryable %s", err, model.CodeInvalidResponse)
			}
		})
	}
}

func TestTheKeyOfACallIsTheSameForEveryAttemptAndForNoOtherCall(t *testing.T) {
	t.Parallel()
	key := func(run loop.Run, steps int, call string) string {
		p := loop.New(loop.Start{Run: run, SessionSteps: steps, Agent: agent.Agent{Model: "t/m"}, Journal: &loop.Journal{
			Plan: agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{agent.ToolCall{ID: call, Name: "x"}}},
		}})
		return p.Next().(loop.RunCalls).Calls[0].Key
	}
	base := loop.Run{Tenant: "a", SessionID: "b", RunID: "c"}
	first := key(base, 1, "call")
	if again := key(base, 1, "call"); again != first {
		t.Errorf("key = %q, then %q", first, again)
	}
	others := []string{
		key(loop.Run{Tenant: "ab", SessionID: "", RunID: "c"}, 1, "call"), key(loop.Run{Tenant: "a", SessionID: "bc", RunID: ""}, 1, "call"),
		key(base, 2, "call"), key(base, 1, "call2"), key(loop.Run{Tenant: "a", SessionID: "b", RunID: "d"}, 1, "call"),
	}
	for i, other := range others {
		if other == first {
			t.Errorf("key %d is that of another call", i)
		}
	}
}

func TestACutCallHasArgumentsThatNoToolTakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `{}`, `{"q":1}`, `{"q":`} {
		r := newReply()
		events := []model.Event{model.CallStart{Index: 0, ID: "a", Name: "one"}}
		if text != "" {
			events = append(events, model.CallDelta{Index: 0, Text: text})
		}
		add(t, r, append(events, model.Finish{Reason: model.FinishLength})...)
		var got string
		if err := json.Unmarshal(r.Calls()[0].Arguments, &got); err != nil || got != text {
			t.Errorf("arguments = %s, want the text %q", r.Calls()[0].Arguments, text)
		}
	}
}

func TestAQuestionHasTheSameIDForEveryOwnerAndNoOther(t *testing.T) {
	t.Parallel()
	id := func(run loop.Run, steps int, call string) string {
		p := loop.New(loop.Start{Run: run, SessionSteps: steps, Agent: agent.Agent{Model: "t/m", Tools: []agent.Tool{{Name: "pay", Approval: true}}}})
		r := p.NewReply()
		add(t, r, model.CallStart{ID: call, Name: "pay"}, model.CallEnd{}, model.Finish{Reason: model.FinishToolCalls})
		p.Replied(r)
		open := p.Next().(loop.Commit).Suspend
		if len(open) != 1 || open[0].ID != call || !open[0].Approval {
			t.Fatalf("open = %+v, want the approval of %s", open, call)
		}
		return open[0].ApprovalID
	}
	base := loop.Run{Tenant: "a", SessionID: "b", RunID: "c"}
	seen := map[string]bool{id(base, 1, "call"): true}
	if !seen[id(base, 1, "call")] {
		t.Error("a second owner asks under another id")
	}
	for _, other := range []string{id(base, 2, "call"), id(base, 1, "call2"), id(loop.Run{Tenant: "a", SessionID: "b", RunID: "d"}, 1, "call")} {
		if seen[other] {
			t.Errorf("the id %s names two questions", other)
		}
		seen[other] = true
	}
}

func TestAnAnswerToAnotherEffectIsAPanic(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m"}})
	for name, answer := range map[string]func(){"Waited": p.Waited, "Recorded": p.Recorded, "Committed": p.Committed, "Finished": p.Finished} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s answered CallModel, want a panic", name)
				}
			}()
			answer()
		}()
	}
}

func TestArgumentsAreHeldAgainstTheSchema(t *testing.T) {
	t.Parallel()
	const object = `{"type":"object","properties":{
		"n":{"type":"integer"},"s":{"type":["string","null"]},"e":{"enum":["a",2,null]},
		"list":{"type":"array","items":{"type":"number"}},
		"in":{"type":"object","required":["x"],"properties":{"x":{"type":"boolean"}},"additionalProperties":false}}}`
	tests := []struct{ schema, arguments, want string }{
		{object, `{}`, ""},
		{object, `{"n":1,"s":"x","e":"a","list":[1,2.5],"in":{"x":true},"more":1}`, ""},
		{object, `{"n":2.0,"s":null,"e":2}`, ""},
		{object, `{"n":1.5}`, "/n must be an integer"},
		{object, `{"n":"1"}`, "/n must be an integer"},
		{object, `{"s":1}`, "/s must be a string or null"},
		{object, `{"e":"b"}`, "/e must be one of"},
		{object, `{"list":[1,"x"]}`, "/list/1 must be a number"},
		{object, `{"in":{}}`, "/in/x is missing"},
		{object, `{"in":{"x":true,"y":1}}`, "/in/y is not known"},
		{`true`, `{"anything":1}`, ""},
		{``, `{}`, ""},
		{object, `null`, "not a JSON object"},
		{object, ``, "not JSON"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%.20s %s", test.schema, test.arguments), func(t *testing.T) {
			t.Parallel()
			p := loop.New(loop.Start{
				Agent: agent.Agent{Model: "t/m", Tools: []agent.Tool{{Name: "tool", Retry: agent.RetrySafe, InputSchema: json.RawMessage(test.schema)}}},
				Journal: &loop.Journal{Plan: agent.Message{Role: agent.RoleAssistant, Parts: []agent.Part{
					agent.ToolCall{ID: "c", Name: "tool", Arguments: json.RawMessage(test.arguments)},
				}}},
			})
			got := ""
			if r := p.Next().(loop.RunCalls).Calls[0].Result; r != nil {
				got = r.Error
			}
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("problem = %q, want one with %q", got, test.want)
			}
		})
	}
}
