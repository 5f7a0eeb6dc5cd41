package agents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agent/tooltest"
)

func state(t *testing.T, text string) agent.State {
	t.Helper()
	s, err := agent.ParseState([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAConditionSelectsTheCallsThatWaitForAHuman(t *testing.T) {
	t.Parallel()
	for rule, inputs := range map[string]map[string]bool{
		"always":                                       {`{}`: true},
		"never":                                        {`{}`: false},
		"{when: [{field: to, equals: boss}]}":          {`{"to":"boss"}`: true, `{"to":"me"}`: false, `{}`: false, `not JSON`: true},
		"{when: [{field: n, equals: 1}]}":              {`{"n":1.0}`: true, `{"n":"1"}`: true, `{"n":2}`: false},
		"{when: [{field: n, equals: 2}]}":              {`{"n":2.` + strings.Repeat("0", 500) + `}`: true, `{"n":1.` + strings.Repeat("0", 500) + `}`: true, `{"n":3}`: false},
		"{when: [{field: to, notEquals: me}]}":         {`{"to":"boss"}`: true, `{"to":"me"}`: false, `{}`: true},
		"{when: [{field: sum.eur, greaterThan: 100}]}": {`{"sum":{"eur":100}}`: false, `{"sum":{"eur":100.01}}`: true, `{"sum":{"eur":1e999}}`: true, `{"sum":{"eur":1e999999999}}`: true, `{"sum":{"eur":100.` + strings.Repeat("0", 300) + `1}}`: true, `{"sum":{"eur":"1"}}`: true, `{"sum":5}`: true},
		"{when: [{field: n, lessThan: -1.5}]}":         {`{"n":-2}`: true, `{"n":0}`: false},
		"{when: [{field: n, greaterThan: 1, lessThan: 5}, {field: n, equals: 9}]}": {`{"n":3}`: true, `{"n":7}`: false, `{"n":9}`: true},
		`{when: [{field: to, matches: '@example\.com$'}]}`:                         {`{"to":"a@example.com"}`: true, `{"to":"a@example.org"}`: false},
		"{when: [{field: force, exists: true}]}":                                   {`{"force":null}`: true, `{}`: false},
		"{when: [{field: why, exists: false}]}":                                    {`{"why":"x"}`: false, `{}`: true},
		"{when: [{field: to, equals: {a: [1, x]}}]}":                               {`{"to":{"a":[1,"x"]}}`: true, `{"to":{"a":[1]}}`: false},
		"{when: [{state: mode, equals: careful}]}":                                 {`{}`: true},
		"{when: [{state: mode, equals: bold}]}":                                    {`{}`: false},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			a := parseOne(t, "agents:\n  - {name: a, model: mine/x, tools: [{use: note, approval: "+rule+"}]}\n")
			for input, want := range inputs {
				host, err := tooltest.NewHost(state(t, `{"mode":"careful"}`))
				if err != nil {
					t.Fatal(err)
				}
				if got := a.Tools[0].NeedsApproval(t.Context(), &agent.Call{Input: json.RawMessage(input), Host: host}); got != want {
					t.Errorf("a call with %s waits: %v, want %v", input, got, want)
				}
			}
		})
	}
}

func TestAnInvalidConditionIsRefused(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"often":                 `approval is "often"; it must be one of always, never`,
		"{}":                    `approval is "always", "never", or {when: [...]}`,
		"{when: [{field: a}]}":  "a condition needs one of",
		"{when: [{equals: 1}]}": "give field or state",
		"{when: [{field: a, state: b, equals: 1}]}": "give field or state",
		"{when: [{field: a, greaterThen: 1}]}":      `did you mean "greaterThan"?`,
		"{when: [{field: a, greaterThan: x}]}":      "greaterThan must be a number",
		"{when: [{field: a, matches: '('}]}":        "matches must be a regular expression (RE2)",
		"{when: [{field: a, matches: 5}]}":          "matches must be a regular expression in quotes",
		"{when: [{field: a, exists: x}]}":           "exists must be true or false",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte("agents:\n  - {name: a, model: mine/x, tools: [{use: note, approval: " + rule + "}]}\n")}, testKnown())
			wantMistakes(t, err, `a.yaml:2: agent "a": tool "note": `, want)
		})
	}
}

func TestAConditionOnAnUnknownArgumentIsRefused(t *testing.T) {
	t.Parallel()
	pay := func(schema, field string) string {
		return `
tools:
  - name: pay
    client: true
    inputSchema: ` + schema + `
agents:
  - name: a
    model: mine/x
    tools:
      - use: pay
        approval:
          when:
            - state: mode
              equals: careful
            - field: ` + field + `
              greaterThan: 100
`
	}
	const amount = "{type: object, properties: {amount: {type: object}}}"
	_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(pay(amount, "ammount.eur"))}, testKnown())
	wantMistakes(t, err, `a.yaml:15: agent "a": tool "pay": approval: the tool "pay" has no argument "ammount"; did you mean "amount"?`)
	_, err = Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`
agents:
  - name: a
    model: mine/x
    tools: [{name: pay, client: true, inputSchema: ` + amount + `, approval: {when: [{field: sum, exists: true}]}}]
`)}, testKnown())
	wantMistakes(t, err, `a.yaml:5: agent "a": tool "pay": approval: the tool "pay" has no argument "sum"`)

	for _, schema := range []string{"{type: object}", "{type: object, properties: {amount: {}}, additionalProperties: true}", "{type: object, properties: {amount: {}}, allOf: [{}]}"} {
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(pay(schema, "ammount"))}, testKnown())
		if err != nil && strings.Contains(err.Error(), "has no argument") {
			t.Errorf("with %s: %v, want that any argument may be there", schema, err)
		}
	}
}

func TestNoOtherNameHidesAnArgumentFromItsCondition(t *testing.T) {
	t.Parallel()
	const tool = `
agents:
  - name: a
    model: mine/x
    tools:
      - name: pay
        http: {method: POST, url: "http://127.0.0.1/"}
        inputSchema: %s
        approval: {when: [{field: sum.eur, greaterThan: 100}]}
`
	for schema, inputs := range map[string]map[string][2]bool{ // is valid, waits
		"{type: object, properties: {sum: {type: object, properties: {eur: {type: number}}, required: [eur]}, note: {}}}": {
			`{"sum":{"eur":1},"note":"x"}`:         {true, false},
			`{"sum":{"eur":500}}`:                  {true, true},
			`{"sum":{"eur":1},"SUM":{"eur":5000}}`: {false, true},
			`{"sum":{"eur":1,"Eur":5000}}`:         {false, true},
			`{"sum":{"eur":1},"total":5000}`:       {false, false},
		},
		"{type: object}": {
			`{"sum":{"eur":1},"total":5000}`:            {true, false},
			`{"sum":{"eur":1},"SUM":{"eur":5000}}`:      {true, true},
			`{"sum":{"eur":1},"\u017fum":{"eur":5000}}`: {true, true},
			`{"sum":{"eur":1,"EUR":5000}}`:              {true, true},
		},
	} {
		known := testKnown()
		known.HTTP.Policy.Hosts = []string{"127.0.0.1"}
		parsed, err := Parse(t.Context(), Source{Name: "a.yaml", Data: fmt.Appendf(nil, tool, schema)}, known)
		if err != nil {
			t.Fatal(err)
		}
		pay := parsed.Agents[0].Tools[0]
		for input, want := range inputs {
			compiled, err := agent.CompileSchema(pay.InputSchema)
			if err != nil {
				t.Fatal(err)
			}
			valid := compiled.Check(json.RawMessage(input)) == nil
			if waits := pay.NeedsApproval(t.Context(), &agent.Call{Input: json.RawMessage(input)}); valid != want[0] || waits != want[1] {
				t.Errorf("%s with the schema %s: got valid %v, waits %v; want %v", input, schema, valid, waits, want)
			}
		}
	}
}

func TestARunStopsAfterAToolOrAState(t *testing.T) {
	t.Parallel()
	a := parseOne(t, "agents:\n  - name: a\n    model: mine/x\n    tools: [note, calculate]\n    stopWhen:\n      - tool: note\n      - stateEquals: {done: true, count: 2}\n")
	result := func(tool string, success bool) []agent.ToolResult {
		return []agent.ToolResult{{Name: tool, Success: success}}
	}
	for name, test := range map[string]struct {
		progress agent.Progress
		want     bool
	}{
		"nothing":             {agent.Progress{}, false},
		"the tool":            {agent.Progress{Results: result("note", true)}, true},
		"a failed call":       {agent.Progress{Results: result("note", false)}, false},
		"another tool":        {agent.Progress{Results: result("calculate", true)}, false},
		"the state":           {agent.Progress{RunView: agent.RunView{State: state(t, `{"done":true,"count":2.0,"more":1}`)}}, true},
		"a part of the state": {agent.Progress{RunView: agent.RunView{State: state(t, `{"done":true}`)}}, false},
	} {
		if got, err := a.StopWhen(t.Context(), &test.progress); err != nil || got != test.want {
			t.Errorf("behind %s it stops: %v, %v, want %v", name, got, err, test.want)
		}
	}
	if parseOne(t, "agents:\n  - {name: a, model: mine/x}\n").StopWhen != nil {
		t.Error("an agent without stopWhen stops")
	}
}

func TestAPromptContainsTheState(t *testing.T) {
	t.Parallel()
	a := parseOne(t, "agents:\n  - name: a\n    model: mine/x\n    prompt: |-\n      Hello {{state.user.name}}, {{ state.list }} {{state.none}}{{state.user.none.x}} \\{{raw}} {{state.template}}\n")
	got, err := a.Prompt(t.Context(), &agent.RunView{State: state(t, `{"user":{"name":"Zoë"},"list":[1,"a"],"template":"{{state.user.name}}"}`)})
	if want := `Hello Zoë, [1,"a"]  {{raw}} {{state.user.name}}`; err != nil || got != want {
		t.Errorf("prompt = %q, %v, want %q", got, err, want)
	}
	_, err = Parse(t.Context(), Source{Name: "a.yaml", Data: []byte("agents:\n  - name: a\n    model: mine/x\n    systemPrompt: x\n    prompt: Hello {{name}}\n")}, testKnown())
	wantMistakes(t, err, `a.yaml:5: agent "a": prompt: a placeholder must be {{state.key`, `a.yaml:5: agent "a": give either systemPrompt or prompt`)
}

func TestAPromptContainsTheRun(t *testing.T) {
	t.Parallel()
	a := parseOne(t, "agents:\n  - name: a\n    model: mine/x\n    prompt: 'For {{user.id}} of {{ tenant }}, {{session.metadata.a.plan}} {{session.parentId}}{{session.metadata.none}} by {{agent}} {{state.n}}'\n")
	run := &agent.RunView{
		Tenant: "acme", SessionID: "s", RunID: "r", AgentType: "a", UserID: "ann", Metadata: map[string]string{"a.plan": "{{state.n}}"},
		State: state(t, `{"n":"{{user.id}}"}`),
	}
	got, err := a.Prompt(t.Context(), run)
	if want := `For ann of acme, {{state.n}}  by a {{user.id}}`; err != nil || got != want {
		t.Errorf("prompt = %q, %v, want %q", got, err, want)
	}
	for _, unknown := range []string{"{{user}}", "{{user.name}}", "{{call.id}}", "{{session.metadata.}}", "{{user.id"} {
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte("agents:\n  - name: a\n    model: mine/x\n    prompt: 'Hello " + unknown + "'\n")}, testKnown())
		wantMistakes(t, err, `a.yaml:4: agent "a": prompt: a placeholder must be {{state.key`)
	}
}

func TestSimilarNamesAreSuggested(t *testing.T) {
	t.Parallel()
	known := []string{"systemPrompt", "tools", "maxSteps"}
	for word, want := range map[string]string{"systemprompt": "systemPrompt", "tolos": "tools", "maxstep": "maxSteps", "nothing": "", "": ""} {
		got := suggest(word, known)
		if want != "" && !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("suggest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestAPromptNamesOnlyPropertiesOfTheStateSchema(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ placeholder, schema, want string }{
		"a property":               {"name", "{type: object, properties: {name: {type: string}}}", ""},
		"a misspelled property":    {"nmae", "{type: object, properties: {name: {type: string}, age: {}}}", `prompt: {{state.nmae}}: the stateSchema has no property "nmae"; did you mean "name"?`},
		"an unknown property":      {"zzz", "{type: object, properties: {name: {}}}", `the stateSchema has no property "zzz"`},
		"no other properties":      {"zzz", "{type: object, properties: {name: {}}, additionalProperties: false}", `the stateSchema has no property "zzz"`},
		"any other property":       {"zzz", "{type: object, properties: {name: {}}, additionalProperties: true}", ""},
		"properties by a pattern":  {"zzz", "{type: object, properties: {name: {}}, patternProperties: {z: {}}}", ""},
		"a property below":         {"user.name", "{type: object, properties: {user: {properties: {name: {}}}}}", ""},
		"a misspelled one below":   {"user.nmae", "{type: object, properties: {user: {properties: {name: {}}}}}", `{{state.user.nmae}}: "user" in the stateSchema has no property "nmae"; did you mean "name"?`},
		"anything in an object":    {"user.name", "{type: object, properties: {user: {type: object}}}", ""},
		"a schema without a name":  {"zzz", "{type: object}", ""},
		"a property by reference":  {"user.x", "{type: object, properties: {user: {$ref: '#/$defs/u'}}, $defs: {u: {properties: {name: {}}}}}", ""},
		"a property without rules": {"name.x", "{type: object, properties: {name: true}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "agents:\n  - name: a\n    model: mine/x\n    prompt: Hi {{state." + test.placeholder + "}}\n    stateSchema: " + test.schema + "\n"
			_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown())
			if test.want == "" && err != nil {
				t.Errorf("got %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), "a.yaml:4:") || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestATextThatIsNotYAMLIsShownWithItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"agents:\n  - name: a\n   model: mine/x\n":               `a.yaml:3:4: value is not allowed in this context, in the line "   model: mine/x": check the indentation`,
		"agents:\n  - name: a\n\tmodel: mine/x\n":                `, in the line "\tmodel: mine/x": indent with spaces, YAML takes no tabs`,
		"agents:\r\n  - name: a\r\n    description: Hi: you\r\n": `, in the line "    description: Hi: you": check the indentation of this line and of the one before it, and quote texts with a colon`,
		"agents: [" + strings.Repeat("é", 500):                   `, in the line "agents: [` + strings.Repeat("é", 111) + `": `,
	} {
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %q in one line", text, err, want)
		}
	}
}
