package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func userSays(id, text string) agent.Message {
	return agent.Message{ID: id, Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: text}}}
}

func requestOf(t *testing.T, s loop.Start) model.Request {
	t.Helper()
	call, ok := loop.New(s).Next().(loop.CallModel)
	if !ok {
		t.Fatalf("the first effect is %T, want CallModel", loop.New(s).Next())
	}
	return call.Request
}

func TestARequestHasWhatTheAgentSays(t *testing.T) {
	t.Parallel()
	a := agent.Agent{
		Model: "openai/mind/large", MaxOutputTokens: 7, Temperature: new(0.5), Cache: agent.CacheAuto, StrictOutput: true,
		ProviderOptions: map[string]json.RawMessage{"openai": json.RawMessage(`{"effort":"low"}`), "other": json.RawMessage(`{}`)},
		OutputSchema:    json.RawMessage(`{"type":"object"}`),
		Tools:           []agent.Tool{{Name: "look", Description: "Looks.", InputSchema: json.RawMessage(`{}`), Strict: true}},
	}
	got := requestOf(t, loop.Start{Agent: a, Transcript: []agent.Message{userSays("m", "Hi")}})
	if got.Model != "mind/large" || got.MaxOutputTokens != 7 || *got.Temperature != 0.5 || got.Cache != agent.CacheAuto ||
		string(got.Options) != `{"effort":"low"}` || got.Choice != model.ChoiceAuto || got.Output != nil {
		t.Errorf("request = %+v", got)
	}
	if len(got.Tools) != 2 || !got.Tools[0].Strict || got.Tools[1].Name != agent.FinishTool || !got.Tools[1].Strict ||
		string(got.Tools[1].InputSchema) != `{"type":"object"}` {
		t.Errorf("tools = %+v, want look and __finish__", got.Tools)
	}
}

func TestReferencesOfASchemaLeadIntoTheEnvelope(t *testing.T) {
	t.Parallel()
	a := agent.Agent{
		Model: "t/m", Completion: agent.CompletionNative, MaxSteps: 1,
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"in":{"$ref":"#/$defs/in"},"all":{"type":"array","items":[{"$ref":"#"}]}},"$defs":{"in":{"type":"integer"}}}`),
	}
	transcript := []agent.Message{userSays("m", "Hi"), {ID: "n", Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: "Done."}}}}
	output := requestOf(t, loop.Start{Agent: a, Transcript: transcript}).Output
	s, err := agent.CompileSchema(output.Schema)
	if err != nil {
		t.Fatalf("the envelope %s: %v", output.Schema, err)
	}
	if err := s.Check(json.RawMessage(`{"completion":{"tool":"__finish__","input":{"in":1}}}`)); err != nil {
		t.Errorf("a good envelope does not fit: %v", err)
	}
	for _, bad := range []string{`{"completion":{"tool":"__finish__","input":{"in":"x"}}}`, `{"completion":{"tool":"other","input":{}}}`, `{}`} {
		if s.Check(json.RawMessage(bad)) == nil {
			t.Errorf("%s fits", bad)
		}
	}
}

func TestAConversationIsRepairedForTheModelOnly(t *testing.T) {
	t.Parallel()
	call := func(id string) agent.Part {
		return agent.ToolCall{ID: id, Name: "look", Arguments: json.RawMessage(`{}`)}
	}
	assistant := func(id string, parts ...agent.Part) agent.Message {
		return agent.Message{ID: id, Role: agent.RoleAssistant, Parts: parts}
	}
	results := func(id string, calls ...string) agent.Message {
		m := agent.Message{ID: id, Role: agent.RoleTool}
		for _, c := range calls {
			m.Parts = append(m.Parts, agent.ToolResult{CallID: c, Name: "look", Success: true, Result: json.RawMessage(`1`)})
		}
		return m
	}
	tests := map[string]struct {
		transcript []agent.Message
		want       []string
	}{
		"results in the order of the calls": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", call("1"), call("2")), results("r", "2"), results("s", "1")},
			[]string{"user: Hi", "assistant: [1 look {}] [2 look {}]", "tool: [1 → 1] [2 → 1]"},
		},
		"a result that came behind a message of the user": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", call("1")), userSays("v", "So?"), results("r", "1")},
			[]string{"user: Hi", "assistant: [1 look {}]", "tool: [1 → 1]", "user: So?"},
		},
		"no result": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", call("1"), call("2")), results("r", "2")},
			[]string{"user: Hi", "assistant: [1 look {}] [2 look {}]", "tool: [1 → not executed] [2 → 1]"},
		},
		"a message that only thinks": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", agent.Reasoning{Text: "Hm."}), assistant("b", agent.Text{})},
			[]string{"user: Hi"},
		},
		"the first of two results": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", call("1")), results("r", "1"), {ID: "s", Role: agent.RoleTool, Parts: []agent.Part{agent.ToolResult{CallID: "1", Error: "late"}}}},
			[]string{"user: Hi", "assistant: [1 look {}]", "tool: [1 → 1]"},
		},
		"nothing at all": {nil, []string{"hidden user: Continue."}},
		"a fact behind the model's words": {
			[]agent.Message{userSays("u", "Hi"), assistant("a", agent.Text{Text: "Ho"}), {ID: "c", Role: agent.RoleContext, Parts: []agent.Part{agent.Text{Text: "It is noon."}}}},
			[]string{"user: Hi", "assistant: Ho", "context: It is noon.", "hidden user: Continue."},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprint(test.transcript)
			var got []string
			for _, m := range requestOf(t, loop.Start{Agent: agent.Agent{Model: "t/m"}, Transcript: test.transcript}).Messages {
				got = append(got, text(m))
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("shown %q, want %q", got, test.want)
			}
			if after := fmt.Sprint(test.transcript); after != before {
				t.Errorf("the transcript has become %s", after)
			}
		})
	}
}

// A window respects its budget where possible, begins with a user message, ends with the newest message, and
// keeps its beginning until the budget is used up again.
func TestAWindowKeepsItsPromises(t *testing.T) {
	t.Parallel()
	const budget = 100
	rapid.Check(t, func(t *rapid.T) {
		a := agent.Agent{Model: "t/m", MaxSteps: 1000, Context: agent.ContextPolicy{
			MaxTokens: budget, KeepTokens: rapid.IntRange(0, budget).Draw(t, "keep"),
			Count: func(m agent.Message) int { return len(m.Text()) },
		}}
		transcript := []agent.Message{userSays("m0", "Go")}
		moves := 0
		var first string
		for i := range rapid.IntRange(1, 60).Draw(t, "messages") {
			id := fmt.Sprint("m", i+1)
			words := strings.Repeat("x", rapid.IntRange(1, 15).Draw(t, "length"))
			if rapid.Bool().Draw(t, "user") {
				transcript = append(transcript, userSays(id, words))
			} else {
				transcript = append(transcript,
					agent.Message{ID: id, Role: agent.RoleAssistant, Parts: []agent.Part{agent.Text{Text: words}, agent.ToolCall{ID: id, Name: "look"}}},
					agent.Message{ID: id + "r", Role: agent.RoleTool, Parts: []agent.Part{agent.ToolResult{CallID: id}}})
			}
			shown := loop.New(loop.Start{Agent: a, Transcript: transcript, CallFunction: callDirectly}).Next().(loop.CallModel).Request.Messages
			tokens := 0
			for _, m := range shown {
				tokens += len(m.Text())
			}
			if tokens > budget {
				t.Fatalf("%d tokens are shown, the budget is %d", tokens, budget)
			}
			if shown[0].Role != agent.RoleUser {
				t.Fatalf("the window begins with the %s", shown[0].Role)
			}
			if last := shown[len(shown)-1]; last.ID != id && last.ID != id+"/results" {
				t.Fatalf("the window ends with %s, want %s", last.ID, id)
			}
			// The second message shows the beginning: the first may be the opener.
			if begin := shown[min(1, len(shown)-1)].ID; begin != first {
				first = begin
				moves++
			}
		}
		if a.Context.KeepTokens > 0 && a.Context.KeepTokens <= budget/2 && moves > 2+len(transcript)/2 {
			t.Fatalf("the window has moved %d times in %d messages", moves, len(transcript))
		}
	})
}

func TestFilesCountAsProvidersCountThem(t *testing.T) {
	t.Parallel()
	picture := agent.Message{ID: "p", Role: agent.RoleUser, Parts: []agent.Part{
		agent.File{MediaType: "image/png", URL: "data:image/png;base64," + strings.Repeat("A", 1<<20)}, agent.Text{Text: "What is it?"},
	}}
	thought := agent.Message{ID: "a", Role: agent.RoleAssistant, Parts: []agent.Part{agent.Reasoning{Text: "Hm."}, agent.Text{Text: "A cat."}}}
	a := agent.Agent{Model: "t/m", MaxSteps: 9, Context: agent.ContextPolicy{MaxTokens: 2000}}
	got := requestOf(t, loop.Start{Agent: a, Transcript: []agent.Message{picture, thought, userSays("u", "Sure?")}}).Messages
	if len(got) != 3 {
		t.Errorf("%d messages are shown, want 3: a picture is no million of tokens", len(got))
	}
}

func TestASummaryWhoseMessagesAreGoneIsNotShown(t *testing.T) {
	t.Parallel()
	summary := func(id, covers string) agent.Message {
		return agent.Message{ID: id, Role: agent.RoleContext, Hidden: true, Metadata: map[string]string{"compaction": "summary", "covers": covers}, Parts: []agent.Part{agent.Text{Text: id}}}
	}
	transcript := []agent.Message{userSays("u", "One"), userSays("v", "Two"), summary("s", "u"), summary("t", "gone"), userSays("w", "Three")}
	var got []string
	for _, m := range requestOf(t, loop.Start{Agent: agent.Agent{Model: "t/m"}, Transcript: transcript}).Messages {
		got = append(got, m.ID)
	}
	if want := []string{"s", "v", "w"}; !reflect.DeepEqual(got, want) {
		t.Errorf("shown %q, want %q", got, want)
	}
}

func TestWaitsDoubleUpToAMinuteAndSpread(t *testing.T) {
	t.Parallel()
	waits := func(jitter float64, after time.Duration) (all []time.Duration) {
		p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", MaxRetries: new(9)}, Jitter: func() float64 { return jitter }})
		for {
			p.Failed(nil, &model.Error{Code: model.CodeOverloaded, Retryable: true, RetryAfter: after})
			wait, ok := p.Next().(loop.Wait)
			if !ok {
				return all
			}
			all = append(all, duration(wait.For))
			p.Waited()
		}
	}
	second := time.Second
	if got, want := waits(0, 0), []time.Duration{second, 2 * second, 4 * second, 8 * second, 16 * second, 32 * second, time.Minute, time.Minute, time.Minute}; !reflect.DeepEqual(got, want) {
		t.Errorf("waits = %v, want %v", got, want)
	}
	if got := waits(0.5, 0)[0]; got != 1125*time.Millisecond {
		t.Errorf("the first wait with jitter = %v, want 1.125s", got)
	}
	if got := waits(0, time.Hour)[0]; got != time.Minute {
		t.Errorf("the first wait = %v, want a minute of the hour that was asked for", got)
	}
}

func TestASentenceForUsersHidesWhatOurSideSays(t *testing.T) {
	t.Parallel()
	if f := loop.InternalFailure(errors.New("the disk is full")); f.Code != loop.CodeInternal || strings.Contains(f.Error, "disk") || !strings.Contains(f.Detail, "disk") {
		t.Errorf("failure = %+v", f)
	}
}

func TestAPlanOfAnswersIsDistinctFromAReply(t *testing.T) {
	t.Parallel()
	run := loop.Run{Tenant: "a", SessionID: "s", RunID: "r"}
	s := loop.Start{
		Run: run, SessionSteps: 1, Agent: agent.Agent{Model: "t/m", Tools: []agent.Tool{{Name: "pay", Approval: true}}},
		Transcript: []agent.Message{userSays("u", "Hi"), {ID: "a", Role: agent.RoleAssistant, Parts: []agent.Part{agent.ToolCall{ID: "1", Name: "pay", Arguments: json.RawMessage(`{}`)}}}},
		Calls:      []loop.ClientCall{{CallID: "1", Tool: "pay", Approval: true, Answer: &loop.Answer{Approved: true}}},
	}
	plan := loop.New(s).Next().(loop.RecordPlan).Plan
	if !loop.IsAnswering(run, 2, plan) || loop.IsAnswering(run, 3, plan) || loop.IsAnswering(run, 2, s.Transcript[1]) {
		t.Errorf("the plan %s is not told from others", plan.ID)
	}
	s.Calls = nil // the question is gone
	s.Journal = &loop.Journal{Plan: plan}
	if e, ok := loop.New(s).Next().(loop.CallModel); !ok {
		t.Errorf("the first effect is %T, want a call of the model: nothing waits for what was planned", e)
	}
}
