package loop_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
}

func payer(schema string) agent.Agent {
	return agent.Agent{Model: "t/m", Tools: []agent.Tool{
		{
			Name: "pay", Retry: agent.RetrySafe, InputSchema: json.RawMessage(schema),
			ApproveWhen: func(context.Context, *agent.Call) (bool, error) { return false, nil },
		},
		{Name: "ask", Client: true},
		{Name: "gated", Retry: agent.RetrySafe, Approval: true},
	}}
}

// callError returns the model's error for a call planned by another owner, or "" if its tool runs.
func callError(t *testing.T, schema, arguments string) string {
	t.Helper()
	p := loop.New(loop.Start{Agent: payer(schema), CallFunction: callDirectly, Journal: &loop.Journal{Plan: agent.Message{
		Role: agent.RoleAssistant, Parts: []agent.Part{agent.ToolCall{ID: "c", Name: "pay", Arguments: json.RawMessage(arguments)}},
	}}})
	call := p.Next().(loop.RunCalls).Calls[0]
	if call.Result == nil {
		if string(call.Arguments) != arguments {
			t.Errorf("the tool gets %s, want %s as it is", call.Arguments, arguments)
		}
		return ""
	}
	return call.Result.Error
}

func TestAMemberThatIsThereTwiceReachesNoTool(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{"type":"object","properties":{"amount":{"maximum":10}}}`, ``} {
		for arguments, want := range map[string]string{
			`{"amount":5}`:              "",
			` {"amount":5.00} `:         "",
			`{"a":{"x":1},"x":{"a":1}}`: "",
			`{"list":[{"a":1},{"a":2},"a","a",["a"]],"a":"a"}`:                            "",
			`{"amount":1000000,"amount":5}`:                                               `the member "amount" is there twice`,
			`{"amount":5,"\u0061mount":5}`:                                                `the member "amount" is there twice`,
			`{"in":[1,{"x":{"y":[],"z":{},"y":1}}]}`:                                      `the member "y" is there twice`,
			`{"\ud800":1,"\udfff":2}`:                                                     `is there twice`,
			`{"` + strings.Repeat("é", 500) + `":1,"` + strings.Repeat("é", 500) + `":2}`: `é…" is there twice`,
		} {
			got := callError(t, schema, arguments)
			if (got == "") != (want == "") || !strings.Contains(got, want) || len(got) > 300 {
				t.Errorf("%.80s: told %.300q, want %q", arguments, got, want)
			}
		}
	}
}

func TestAMemberThatIsThereTwiceIsAskedOfNobody(t *testing.T) {
	t.Parallel()
	twice := json.RawMessage(`{"amount":1000000,"amount":5}`)
	p := loop.New(loop.Start{Agent: payer(``), CallFunction: callDirectly})
	r := p.NewReply()
	for i, name := range []string{"pay", "ask", "gated"} {
		add(t, r, model.CallStart{Index: i, ID: name, Name: name}, model.CallEnd{Index: i, Arguments: twice})
	}
	add(t, r, model.Finish{Reason: model.FinishToolCalls})
	p.Replied(r)
	for _, call := range p.Next().(loop.RunCalls).Calls {
		if call.Result == nil || !strings.Contains(call.Result.Error, `the member "amount" is there twice`) {
			t.Errorf("call of %s = %+v, want one that is refused", call.Name, call)
		}
	}
	// A former owner has asked, and a human has approved.
	question := agent.Message{ID: "q", Role: agent.RoleAssistant, Parts: []agent.Part{agent.ToolCall{ID: "g", Name: "gated", Arguments: twice}}}
	p = loop.New(loop.Start{Agent: payer(``), CallFunction: callDirectly, Transcript: []agent.Message{question}, Calls: []loop.ClientCall{
		{CallID: "g", Tool: "gated", Approval: true, Answer: &loop.Answer{Approved: true}},
	}})
	if call := p.Next().(loop.RunCalls).Calls[0]; call.Result == nil || !strings.Contains(call.Result.Error, "is there twice") {
		t.Errorf("approved call = %+v, want one that is refused", call)
	}
}

func TestArgumentsThatAreNestedTooDeeplyAreText(t *testing.T) {
	t.Parallel()
	brackets := `{"a":"` + strings.Repeat("[", 2000) + `\"{{"}`
	for arguments, want := range map[string]bool{nested(512): true, brackets: true, nested(513): false, nested(9998): false} {
		streamed, whole := newReply(), newReply()
		add(t, streamed, model.CallStart{ID: "a", Name: "one"}, model.CallDelta{Text: arguments}, model.CallEnd{}, model.Finish{Reason: model.FinishToolCalls})
		add(t, whole, model.CallStart{ID: "a", Name: "one"}, model.CallEnd{Arguments: json.RawMessage(arguments)}, model.Finish{Reason: model.FinishToolCalls})
		for _, r := range []*loop.Reply{streamed, whole} {
			got := r.Calls()[0].Arguments
			var text string
			if isText := json.Unmarshal(got, &text) == nil; isText == want || isText && text != arguments || want && string(got) != arguments {
				t.Errorf("arguments of %d bytes = %.40s, want them as they are: %v", len(arguments), got, want)
			}
		}
		if got := callError(t, ``, string(streamed.Calls()[0].Arguments)); (got == "") != want || !want && !strings.Contains(got, "nested deeper than 512") {
			t.Errorf("of %d bytes the model is told %q", len(arguments), got)
		}
		if got := callError(t, ``, arguments); (got == "") != want || !want && !strings.Contains(got, "nested deeper than 512") {
			t.Errorf("of %d bytes of a former owner the model is told %q", len(arguments), got)
		}
	}
}
