package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/modeltest"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

// parse returns a model "m" with these rules, indented by two.
func parse(t *testing.T, rules string) *scripted.Model {
	t.Helper()
	script, err := scripted.Parse([]byte("models:\n  m:\n    rules:" + strings.ReplaceAll("\n"+rules, "\n", "\n    ")))
	if err != nil {
		t.Fatal(err)
	}
	return scripted.New(script)
}

func newRequest(messages ...agent.Message) model.Request {
	return model.Request{Model: "m", System: "Be kind.", Messages: messages}
}

func user(text string) agent.Message {
	return agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: text}}}
}

func assistant(parts ...agent.Part) agent.Message {
	return agent.Message{Role: agent.RoleAssistant, Parts: parts}
}

func toolResult(tool, result string) agent.Message {
	return agent.Message{Role: agent.RoleTool, Parts: []agent.Part{
		agent.ToolResult{Name: tool, Result: json.RawMessage(result), Success: true},
	}}
}

func toolFailure(tool, reason string) agent.Message {
	return agent.Message{Role: agent.RoleTool, Parts: []agent.Part{agent.ToolResult{Name: tool, Error: reason}}}
}

// rulePerCondition has a rule for each condition. Its reply names the condition.
const rulePerCondition = `
  - when: {toolFailed: weather}
    reply: failed
  - when: {toolResult: weather, step: 3}
    reply: third step
  - when: {toolResult: weather}
    reply: result
  - when: {lastRole: tool}
    reply: other tool
  - when: {lastRole: assistant}
    reply: go on
  - when: {system: '^Be rude'}
    reply: rude
  - when: {lastUser: '(?i)^hello', userTurns: 2}
    reply: hello again
  - when: {lastUser: '(?i)^hello'}
    reply: hello
  - reply: rest
`

func TestTheFirstMatchingRuleReplies(t *testing.T) {
	t.Parallel()
	m := parse(t, rulePerCondition)
	call := assistant(agent.ToolCall{Name: "weather"})
	for want, messages := range map[string][]agent.Message{
		"hello":       {user("Hello!")},
		"hello again": {user("Hello!"), assistant(), user("hello?")},
		"rest":        {user("Hi")},
		"go on":       {user("Hello!"), assistant()},
		"result":      {user("Hello!"), call, toolResult("weather", `1`)},
		"failed":      {user("Hello!"), call, toolResult("weather", `1`), toolFailure("weather", "no")},
		"other tool":  {user("Hello!"), call, toolResult("weather", `1`), call, toolResult("clock", `1`)},
		"third step":  {user("Hello!"), call, toolResult("clock", `1`), call, toolResult("weather", `1`)},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			if got := modeltest.Collect(t, m.Generate(t.Context(), newRequest(messages...))).Text; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			// A context message changes nothing.
			messages = append(messages, agent.Message{Role: agent.RoleContext, Parts: []agent.Part{agent.Text{Text: "Hello"}}})
			if got := modeltest.Collect(t, m.Generate(t.Context(), newRequest(messages...))).Text; got != want {
				t.Errorf("with a context message: got %q, want %q", got, want)
			}
		})
	}
	rude := newRequest(user("Hi"))
	rude.System = "Be rude."
	if got := modeltest.Collect(t, m.Generate(t.Context(), rude)).Text; got != "rude" {
		t.Errorf("got %q, want %q", got, "rude")
	}
}

// requestRules have a rule for each condition on a request.
const requestRules = `
  - when: {forced: true, offers: __finish__, hasResult: weather}
    reply:
      - call: {name: __finish__, arguments: {output: '{{field .Results.weather "sky"}}'}}
  - when: {forced: true, attempts: 1}
    reply: I would rather not.
  - when: {forced: true}
    reply:
      - call: {name: other}
  - when: {output: true}
    reply: '{"answer": {{json .LastUser}}}'
  - when: {offers: weather, output: false, forced: false}
    reply:
      - call: {name: weather}
  - reply: rest
`

func TestRulesMatchTheRequestOptions(t *testing.T) {
	t.Parallel()
	m := parse(t, requestRules)
	weather, finish := model.Tool{Name: "weather"}, model.Tool{Name: "__finish__"}
	known := []agent.Message{user("a"), assistant(agent.ToolCall{Name: "weather"}), toolResult("weather", `{"sky":"blue"}`), assistant(), user("b")}
	for want, requests := range map[string][]model.Request{
		`__finish__ {"output":"blue"}`: {{Messages: known, Choice: model.ChoiceRequired, Tools: []model.Tool{finish}}},
		"I would rather not.|other {}": {
			{Messages: known, Choice: model.ChoiceRequired, Tools: []model.Tool{weather}},
			{Messages: known, Choice: model.ChoiceRequired, Tools: []model.Tool{weather}},
		},
		`{"answer": "b"}`: {{Messages: known, Output: &model.Output{}}},
		"weather {}":      {{Messages: known, Tools: []model.Tool{weather}}},
		"rest":            {{Messages: known, Choice: model.ChoiceNone}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, r := range requests {
				r.Model = "m"
				reply := modeltest.Collect(t, m.Generate(t.Context(), r))
				text := reply.Text
				for _, c := range reply.Calls {
					text += c.Name + " " + c.Arguments
				}
				got = append(got, text)
			}
			if strings.Join(got, "|") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestTemplatesSeeTheConversation(t *testing.T) {
	t.Parallel()
	conversation := newRequest(user("I am Ada."), assistant(), user("Weather in Rome, 3 days"),
		assistant(agent.ToolCall{Name: "weather"}), toolResult("weather", `{"sky":"blue","wind":{"knots":7}}`), toolFailure("clock", `it "stopped"`))
	for template, want := range map[string]string{
		`You said: {{join .Users "; "}}`:                     "You said: I am Ada.; Weather in Rome, 3 days",
		`{{.UserCount}} {{.LastUser}} {{.System}}`:           "2 Weather in Rome, 3 days Be kind.",
		`{{.Group.city}} {{index .Match 2}} {{.Group.none}}`: "Rome 3 ",
		`{{field .Results.weather "sky"}}`:                   "blue",
		`{{field .Results.weather "wind" "knots"}}`:          "7",
		`{{field .Results.weather "wind"}}`:                  `{"knots":7}`,
		`{{field .Results.weather "rain" "mm"}}|`:            "|",
		`{{.LastResult}}`:                                    `{"error":"it \"stopped\""}`,
		`{{json .Users}}`:                                    `["I am Ada.","Weather in Rome, 3 days"]`,
		`{{.Results.none}}|`:                                 "|",
	} {
		t.Run(template, func(t *testing.T) {
			t.Parallel()
			quoted, _ := json.Marshal(template)
			m := parse(t, "  - when: {lastUser: '(?i)weather in (?P<city>\\w+), (\\d)'}\n    reply: "+string(quoted)+"\n")
			if reply := modeltest.Collect(t, m.Generate(t.Context(), conversation)); reply.Text != want || reply.Err != nil {
				t.Errorf("got %q, error %v, want %q", reply.Text, reply.Err, want)
			}
		})
	}
}

func TestCallsOfDifferentRepliesHaveDifferentIDs(t *testing.T) {
	t.Parallel()
	m := parse(t, `
  - reply:
      - calls: [{name: f}, {name: g}]
      - call: {name: h}
      - call: {name: i, id: mine}
`)
	ids := func(messages ...agent.Message) []string {
		var out []string
		for _, c := range modeltest.Collect(t, m.Generate(t.Context(), newRequest(messages...))).Calls {
			out = append(out, c.ID)
		}
		return out
	}
	if got, want := ids(user("a")), []string{"call_1_1", "call_1_2", "call_1_3", "mine"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := ids(user("a"), assistant(), user("b")), []string{"call_2_1", "call_2_2", "call_2_3", "mine"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestArgumentsAreTemplates(t *testing.T) {
	t.Parallel()
	m := parse(t, `
  - when: {lastUser: '(\w+) (\d+)'}
    reply:
      - call: {name: f, arguments: {city: '{{index .Match 1}}', list: ['{{.UserCount}}', 2.5, null, true, {deep: x}]}}
      - call: {name: f, arguments: '{"days": {{index .Match 2}}}'}
      - call: {name: f, arguments: '{{json .Users}}'}
      - call: {name: f, arguments: 'not JSON'}
`)
	reply := modeltest.Collect(t, m.Generate(t.Context(), newRequest(user(`Rome 3`))))
	var got []string
	for _, c := range reply.Calls {
		got = append(got, c.Arguments)
	}
	want := []string{`{"city":"Rome","list":["1",2.5,null,true,{"deep":"x"}]}`, `{"days": 3}`, `["Rome 3"]`, `"not JSON"`}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAttemptsAreCountedByConversation(t *testing.T) {
	t.Parallel()
	const rules = `
  - when: {attempts: 2}
    reply:
      - error: {code: provider_overloaded}
  - reply: fine
`
	m := parse(t, rules)
	try := func(m *scripted.Model, text string) string {
		reply := modeltest.Collect(t, m.Generate(t.Context(), newRequest(user(text))))
		if reply.Err != nil {
			return "error"
		}
		return reply.Text
	}
	got := []string{try(m, "a"), try(m, "a"), try(m, "b"), try(m, "a"), try(m, "b"), try(m, "a"), try(m, "b")}
	want := []string{"error", "error", "error", "fine", "error", "fine", "fine"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := try(parse(t, rules), "a"); got != "error" {
		t.Errorf("a new process: got %q, want %q", got, "error")
	}
}

func TestTheOldestAttemptCountsAreDropped(t *testing.T) {
	t.Parallel()
	m := parse(t, "  - when: {attempts: 1}\n    reply: first\n  - reply: later\n")
	try := func(n int) string {
		return modeltest.Collect(t, m.Generate(t.Context(), newRequest(user(fmt.Sprint(n))))).Text
	}
	const many = 4096
	for n := range many + 1 {
		if got := try(n); got != "first" {
			t.Fatalf("conversation %d: got %q", n, got)
		}
	}
	if got := try(many); got != "later" {
		t.Errorf("the newest: got %q, want %q", got, "later")
	}
	if got := try(0); got != "first" {
		t.Errorf("the oldest: got %q, want %q", got, "first")
	}
}

func TestChunksFollowTheScript(t *testing.T) {
	t.Parallel()
	for options, want := range map[string][]string{
		"":                                {"One ", "two,  ", "drei\n", "vier"},
		"chunk: 3 words":                  {"One two,  drei\n", "vier"},
		"chunk: 2":                        {"One two,  ", "drei\nvier"},
		"chunk: 8 runes":                  {"One two,", "  drei\nv", "ier"},
		"chunk: whole":                    {"One two,  drei\nvier"},
		"chunk: whole\n        repeat: 2": {"One two,  drei\nvierOne two,  drei\nvier"},
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			m := parse(t, "  - reply:\n      - text: \"One two,  drei\\nvier\"\n        "+options+"\n")
			var got []string
			for e, err := range m.Generate(t.Context(), newRequest(user("a"))) {
				if d, ok := e.(model.TextDelta); ok && err == nil {
					got = append(got, d.Text)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestParallelCallsInterleave(t *testing.T) {
	t.Parallel()
	m := parse(t, `
  - reply:
      - calls: [{name: f, arguments: abcd}, {name: g, arguments: x}]
        chunk: 2 runes
`)
	var got []string
	for e, err := range m.Generate(t.Context(), newRequest(user("a"))) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := e.(model.CallDelta); ok {
			got = append(got, fmt.Sprint(d.Index, d.Text))
		}
	}
	if want := []string{"0ab", "1x", "0cd"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDelaysFollowTheScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script, err := scripted.Parse([]byte(`
models:
  m:
    delay: 100ms
    rules:
      - reply:
          - wait: 2s
          - text: One two three
          - text: four five
            delay: 0s
`))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var at []time.Duration
		for e := range scripted.New(script).Generate(t.Context(), newRequest(user("a"))) {
			if _, ok := e.(model.TextDelta); ok {
				at = append(at, time.Since(began)/time.Millisecond)
			}
		}
		if want := []time.Duration{2000, 2100, 2200, 2200, 2200}; !reflect.DeepEqual(at, want) {
			t.Errorf("got pieces at %d ms, want %d", at, want)
		}
	})
}

func TestACancelledDelayEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		reply := modeltest.Collect(t, parse(t, "  - reply:\n      - wait: 1h\n      - text: late\n").Generate(ctx, newRequest(user("a"))))
		if !errors.Is(reply.Err, context.DeadlineExceeded) || reply.Text != "" {
			t.Errorf("got %+v, want context.DeadlineExceeded", reply)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v, want %v", took, time.Second)
		}
	})
}

func TestErrorsFollowTheScript(t *testing.T) {
	t.Parallel()
	const failure = "error: {code: provider_timeout, message: too slow, retryable: false, status: 504, retryAfter: 3s"
	want := model.Error{Code: model.CodeTimeout, StatusCode: 504, RetryAfter: 3 * time.Second, Message: "too slow"}
	for parts, text := range map[string]string{
		"text: one two three, " + failure + "}":           "one two three",
		failure + "}, text: one two three":                "",
		failure + ", after: 2}, text: one two three":      "one two ",
		"text: one two three, " + failure + ", after: 2}": "one two ",
		"text: one two three, " + failure + ", after: 9}": "one two three",
	} {
		t.Run(parts, func(t *testing.T) {
			t.Parallel()
			var list strings.Builder
			for _, p := range strings.SplitAfter(strings.ReplaceAll(strings.ReplaceAll(parts, "three, error", "three\x00error"), "}, text", "}\x00text"), "\x00") {
				list.WriteString("      - " + strings.TrimSuffix(p, "\x00") + "\n")
			}
			reply := modeltest.Collect(t, parse(t, "  - reply:\n"+list.String()).Generate(t.Context(), newRequest(user("a"))))
			got, ok := errors.AsType[*model.Error](reply.Err)
			if !ok || *got != want || reply.Text != text {
				t.Errorf("got %q and %v, want %q and %v", reply.Text, reply.Err, text, &want)
			}
		})
	}
}

func TestWordsCountAsTokensByDefault(t *testing.T) {
	t.Parallel()
	m := parse(t, "  - reply:\n      - reasoning: Two words.\n        providerData: {signature: abc}\n      - text: And three more.\n")
	reply := modeltest.Collect(t, m.Generate(t.Context(), newRequest(user("How are you?"))))
	if want := (model.Usage{PromptTokens: 5, CompletionTokens: 5, ReasoningTokens: 2, TotalTokens: 10}); reply.Usage != want {
		t.Errorf("got %+v, want %+v", reply.Usage, want)
	}
	if got, want := string(reply.ProviderData[0]), `{"signature":"abc"}`; got != want {
		t.Errorf("got provider data %s, want %s", got, want)
	}
}

func TestUnanswerableRequestsFail(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ rules, model, code, message string }{
		"an unknown model":        {"  - reply: a\n", "n", model.CodeNotFound, `the script has no model "n", only ["m"]`},
		"no rule matches":         {"  - when: {userTurns: 7}\n    reply: a\n", "m", model.CodeInvalidRequest, "no rule of the scripted model"},
		"an unknown field":        {"  - reply: 'a {{.Nope}}'\n", "m", model.CodeInvalidRequest, "part 1 of the scripted reply"},
		"an endless text":         {"  - reply: '{{range 1000000000}}aaaaaaaaaaaaaaaaaaaaaaaa{{end}}'\n", "m", model.CodeInvalidRequest, "exceeds"},
		"too many repetitions":    {"  - reply:\n      - text: aaaa\n        repeat: 1000000000\n", "m", model.CodeInvalidRequest, "exceeds"},
		"a template of arguments": {"  - reply:\n      - call: {name: f, arguments: {a: '{{index .Match 9}}'}}\n", "m", model.CodeInvalidRequest, "part 1 of the scripted reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(user("a"))
			r.Model = test.model
			err := modeltest.Collect(t, parse(t, test.rules).Generate(t.Context(), r)).Err
			e, ok := errors.AsType[*model.Error](err)
			if !ok || e.Code != test.code || e.Retryable || !strings.Contains(e.Message, test.message) {
				t.Errorf("got error %v, want %s: …%s…", err, test.code, test.message)
			}
		})
	}
}
