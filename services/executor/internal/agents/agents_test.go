package agents

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

const whole = `
models:
  local: {provider: openai, baseURL: "http://127.0.0.1:9/v1", api: chat, idleTimeout: 30s, apiKeyEnv: K}
agents:
  - name: clerk
    description: Answers.
    model: local/llama
    fallbacks: [mine/a, anthropic/b]
    systemPrompt: Be brief.
    tools: [calculate]
    stateSchema: {type: object, properties: {zeta: {type: string, default: x}, alpha: {type: integer}}}
    outputSchema: {type: object, properties: {answer: {type: string}}}
    completion: native
    strictOutput: true
    maxSteps: 7
    maxOutputTokens: 100
    temperature: 0
    maxRetries: 0
    cache: auto
    providerOptions: {openai: {reasoning_effort: low, n: 0x10}}
    runTimeout: 1h30m
    context: {maxTokens: 1000, keepTokens: 300, compaction: summary}
    onBusy: enqueue
    callerTools: {allow: [page_*, open], max: 3}
    callerInstructions: true
`

func TestOptionsOfProvidersWithoutAModelAreReported(t *testing.T) {
	t.Parallel()
	const none = `agents.yaml: agent "clerk": providerOptions.openai has no effect: the providers of its models are anthropic, local, mine`
	if got := parseOne(t, whole).UnusedOptions(); len(got) != 1 || got[0] != none {
		t.Errorf("got %q, want %q", got, none)
	}
	if got := parseOne(t, strings.Replace(whole, "openai: {reasoning_effort", "mine: {reasoning_effort", 1)).UnusedOptions(); got != nil {
		t.Errorf("got %q, want nothing of a fallback's provider", got)
	}
}

func TestEveryFieldOfAnAgentIsRead(t *testing.T) {
	t.Parallel()
	a := parseOne(t, whole)
	if a.Name != "clerk" || a.Description != "Answers." || a.Model != "local/llama" || a.SystemPrompt != "Be brief." || a.MaxSteps != 7 || a.MaxOutputTokens != 100 {
		t.Errorf("agent = %+v", a.Agent)
	}
	if a.Temperature == nil || *a.Temperature != 0 || a.MaxRetries == nil || *a.MaxRetries != 0 {
		t.Errorf("temperature, maxRetries = %v, %v, want 0 and 0", a.Temperature, a.MaxRetries)
	}
	if a.Cache != agent.CacheAuto || a.Completion != agent.CompletionNative || !a.StrictOutput || a.OnBusy != agent.BusyEnqueue || a.RunTimeout != 90*time.Minute {
		t.Errorf("agent = %+v", a.Agent)
	}
	if c := a.CallerTools; c == nil || !slices.Equal(c.Allow, []string{"page_*", "open"}) || c.Max != 3 || !a.CallerInstructions {
		t.Errorf("callerTools, callerInstructions = %+v, %v", c, a.CallerInstructions)
	}
	if want := (agent.ContextPolicy{MaxTokens: 1000, KeepTokens: 300, Compaction: agent.CompactSummary}); a.Context.MaxTokens != want.MaxTokens || a.Context.KeepTokens != want.KeepTokens || a.Context.Compaction != want.Compaction {
		t.Errorf("context = %+v, want %+v", a.Context, want)
	}
	if got, want := string(a.StateSchema), `{"type":"object","properties":{"zeta":{"type":"string","default":"x"},"alpha":{"type":"integer"}}}`; got != want {
		t.Errorf("state schema = %s, want %s, in its order", got, want)
	}
	if got, want := string(a.ProviderOptions["openai"]), `{"reasoning_effort":"low","n":16}`; got != want {
		t.Errorf("options = %s, want %s", got, want)
	}
	if got, want := a.Models["local/llama"], (silentModel{Settings{Name: "local", Provider: "openai", API: "chat", BaseURL: "http://127.0.0.1:9/v1", APIKeyEnv: "K", IdleTimeout: 30 * time.Second}}); got != want {
		t.Errorf("model = %+v, want %+v", got, want)
	}
	if a.Models["mine/a"] != (silentModel{}) || a.Models["anthropic/b"] == nil {
		t.Errorf("models = %v, want those of the fallbacks", a.Models)
	}
}

func TestDefaultsAreForTheAgentsOfTheirFile(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml": "defaults: {model: mine/x, maxSteps: 5}\nagents:\n  - {name: a}\n  - {name: b, maxSteps: 6}\n",
		"b.yaml": "agents:\n  - {name: c, model: mine/y}\n",
	})
	set, _, err := Load(t.Context(), []string{dir}, nil, testKnown())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range set.Agents {
		got = append(got, a.Name+" "+a.Model+" "+string(rune('0'+a.MaxSteps)))
	}
	if want := []string{"a mine/x 5", "b mine/x 6", "c mine/y 0"}; !slices.Equal(got, want) {
		t.Errorf("agents = %q, want %q", got, want)
	}
}

func TestAnchorsAndMergesAreFollowed(t *testing.T) {
	t.Parallel()
	a := parseOne(t, `
agents:
  - <<: &base {model: mine/x, maxSteps: 3, tools: &tools [calculate]}
    name: a
    maxSteps: 4
    providerOptions: {openai: &o {x: 1}, mine: *o}
`)
	if a.Model != "mine/x" || a.MaxSteps != 4 || len(a.Tools) != 1 || string(a.ProviderOptions["mine"]) != `{"x":1}` {
		t.Errorf("agent = %+v", a.Agent)
	}
}

func TestAnAgentMayHaveNoLimitOnItsSteps(t *testing.T) {
	t.Parallel()
	for _, infinity := range []string{"Infinity", ".inf"} {
		dir := writeFiles(t, map[string]string{"a.yaml": "agents:\n  - {name: a, model: mine/x, maxSteps: " + infinity + "}\n"})
		set, _, err := Load(t.Context(), []string{dir}, nil, testKnown())
		if err != nil {
			t.Fatal(err)
		}
		if a := set.Agents[0]; a.MaxSteps != agent.NoMaxSteps || a.Check() != nil {
			t.Errorf("%s: maxSteps = %d, %v, want no cap", infinity, a.MaxSteps, a.Check())
		}
	}
	dir := writeFiles(t, map[string]string{"a.yaml": "agents:\n  - {name: a, model: mine/x, maxSteps: -.inf}\n"})
	if _, _, err := Load(t.Context(), []string{dir}, nil, testKnown()); err == nil {
		t.Error("a cap below every number was taken")
	}
}

func TestAnAgentSaysWhichToolsCallersMayBring(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, mistake string
		want          []string
	}{
		{"{allow: true}", "", []string{"*"}},
		{"{allow: page_*}", "", []string{"page_*"}},
		{"{allow: [a, b*]}", "", []string{"a", "b*"}},
		{"{allow: false}", "callerTools: allow is false; omit callerTools to permit no tools", nil},
		{"{allow: 3}", "callerTools: allow must be true, or patterns of names such as page_*", nil},
		{"{max: 3}", "callerTools: allow is missing: true for every name, or patterns such as page_*", nil},
		{"{allow: ['a b']}", `callerTools.allow[0]: "a b" must have 1 to 64 characters of A-Z a-z 0-9 _ - *`, nil},
		{"{allow: true, max: 129}", "max is 129; it must be between 1 and 128", nil},
	} {
		dir := writeFiles(t, map[string]string{"a.yaml": "agents:\n  - {name: a, model: mine/x, callerTools: " + c.text + "}\n"})
		set, _, err := Load(t.Context(), []string{dir}, nil, testKnown())
		switch {
		case c.mistake != "" && (err == nil || !strings.Contains(err.Error(), c.mistake)):
			t.Errorf("%s: got %v, want the mistake %q", c.text, err, c.mistake)
		case c.mistake == "" && (err != nil || !slices.Equal(set.Agents[0].CallerTools.Allow, c.want)):
			t.Errorf("%s: got %v, %v, want %q", c.text, set, err, c.want)
		}
	}
}

func TestSeveralFilesFoldersPatternsAndIncludesAreOneSet(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"main.yaml":           "include: [shared.yaml, more, 'none/*.yaml', main.yaml]\nagents:\n  - {name: main, model: local/x, tools: [ask]}\n",
		"shared.yaml":         "models: {local: {provider: openai, apiKeyEnv: K}}\ntools:\n  - {name: ask, description: Asks., client: true}\n",
		"more/one.yaml":       "include: [../shared.yaml]\nagents:\n  - {name: one, model: local/x, tools: [{use: ask, answerWithin: 1h}]}\n",
		"more/two.yml":        "models: {local: {provider: openai, apiKeyEnv: K}}\nagents:\n  - {name: two, model: local/x, systemPrompt: {file: prompts/two.md}, outputSchema: {file: two.json}}\n",
		"more/prompts/two.md": "You are two.\n",
		"more/two.json":       `{"type": "object", "properties": {"a": {"type": "string"}}}`,
		"other/three.yaml":    "agents:\n  - {name: three, model: mine/x}\n",
	})
	set, trail, err := Load(t.Context(), []string{filepath.Join(dir, "main.yaml"), filepath.Join(dir, "oth*", "*.yaml")}, nil, testKnown())
	if err != nil {
		t.Fatal(err)
	}
	agents := map[string]Agent{}
	for _, a := range set.Agents {
		agents[a.Name] = a
	}
	if len(agents) != 4 || agents["main"].Tools[0].AnswerWithin != 0 || agents["one"].Tools[0].AnswerWithin != time.Hour || !agents["one"].Tools[0].Client {
		t.Errorf("agents = %+v", agents)
	}
	if two := agents["two"]; two.SystemPrompt != "You are two.\n" || string(two.OutputSchema) != `{"type":"object","properties":{"a":{"type":"string"}}}` {
		t.Errorf("two = %+v", two.Agent)
	}
	if trail.Changed() {
		t.Error("the trail has changed, and nothing was written")
	}
	writeFile(t, filepath.Join(dir, "none", "new.yaml"), "")
	if !trail.Changed() {
		t.Error("a new file that a pattern includes is not seen")
	}
}

func TestMistakesInSeveralFilesNameTheirFile(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml":   "include: [gone.yaml, b.yaml]\nmodels: {local: {provider: openai, apiKeyEnv: A}}\nagents:\n  - {name: x, model: mine/x}\n",
		"b.yaml":   "models:\n  local: {provider: openai, apiKeyEnv: B}\ntools:\n  - {name: t, client: true}\n  - {name: t, client: true, description: other}\n  - {name: calculate, client: true}\nagents:\n  - name: x\n    model: mine/x\n  - name: y\n    model: mine/x\n    outputSchema: {file: bad.json}\n",
		"bad.json": "{\n  \"type\": \"objekt\"\n}\n",
		"c.yaml":   "agents: [\n",
	})
	_, _, err := Load(t.Context(), []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "c.yaml")}, nil, testKnown())
	wantMistakes(t, err,
		"a.yaml:1: there is no file",
		"a.yaml:2: the provider \"local\" is declared differently",
		"b.yaml:5: the tool \"t\" is declared differently",
		"b.yaml:6: there is a built-in tool \"calculate\"",
		"a.yaml:4: the agent \"x\" is declared twice, first at ", "b.yaml:8",
		`agent "y": outputSchema: `,
		"c.yaml:1: ",
	)
	if _, _, err := Load(t.Context(), []string{filepath.Join(dir, "nothing.yaml")}, nil, testKnown()); fault.ReasonOf(err) != "AGENTS_NOT_FOUND" {
		t.Errorf("error = %v, want AGENTS_NOT_FOUND", err)
	}
}

// brokenAgents has a mistake in nearly every line.
const brokenAgents = `modles: {}
models:
  local: {provider: opnai}
  s: {provider: scripted, baseURL: x}
  t: {provider: anthropic, api: chat}
  u: {provider: openai, api: soap}
defaults: {nmae: x}
agents:
  - name: a
    modle: mine/x
    model: [mine/x]
    fallbacks: [mine, mine/x, mine/x]
    maxSteps: many
    temperature: 9
    maxRetries: -1
    strictOutput: yes please
    cache: sometimes
    runTimeout: 5
    onBusy: rejcet
    completion: tool
    context: {keepTokens: 5}
    providerOptions: {openai: 5}
    stateSchema: {type: 7}
    outputSchema: 5
    tools: [5, calculator, {use: note, retires: safe}, {name: "bad name", client: true}, {name: x}]
  - 7
  - name: b
    model: mine/x
    description: "a\0b"
    tools:
      - calculate
      - use: note
        retry: often
    stopWhen: [{tool: nte}, {}]
`

func TestAllMistakesOfAFileAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(brokenAgents)}, testKnown())
	wantMistakes(t, err,
		`a.yaml:1: there is no field "modles"; did you mean "models"?`,
		`a.yaml:3: there is no provider "opnai"; known: anthropic, openai, scripted; did you mean "openai"?`,
		`a.yaml:4: s: baseURL, apiKeyEnv and idleTimeout are not for the scripted provider`,
		`a.yaml:5: t: api is for the openai provider only`,
		`a.yaml:6: u: api is "soap"; it must be one of chat, responses`,
		`a.yaml:7: defaults: there is no field "nmae"; did you mean "name"?`,
		`a.yaml:10: agent "a": there is no field "modle"; did you mean "model"?`,
		`a.yaml:11: agent "a": model must be a string`,
		`a.yaml:12: agent "a": the model is "mine"; it must be provider/name`,
		`a.yaml:12: agent "a": fallbacks lists "mine/x" twice`,
		`a.yaml:13: agent "a": maxSteps must be an integer`,
		`a.yaml:14: agent "a": temperature is 9; it must be between 0 and 2`,
		`a.yaml:15: agent "a": maxRetries is -1; it must be between 0 and 100`,
		`a.yaml:16: agent "a": strictOutput must be true or false`,
		`a.yaml:17: agent "a": cache is "sometimes"; it must be one of none, auto`,
		`a.yaml:18: agent "a": runTimeout must be a duration above 0`,
		`a.yaml:19: agent "a": onBusy is "rejcet"; it must be one of reject, enqueue, interrupt, rollback; did you mean "reject"?`,
		`a.yaml:21: agent "a": context: maxTokens is missing`,
		`a.yaml:22: agent "a": providerOptions.openai must be an object`,
		`a.yaml:23: agent "a": stateSchema: `,
		`a.yaml:24: agent "a": outputSchema must be a JSON Schema`,
		`a.yaml:25: agent "a": a tool is a name`,
		`a.yaml:25: agent "a": there is no tool "calculator"; known: calculate, note; did you mean "calculate"?`,
		`a.yaml:25: agent "a": tool "note": there is no field "retires"`,
		`a.yaml:25: agent "a": tool "bad name": name: "bad name" must have 1 to 64 characters`,
		`a.yaml:25: agent "a": tool "x": a declared tool has either client: true`,
		`a.yaml:26: an agent must be an object with fields`,
		`a.yaml:29: agent "b": description: it must be UTF-8 without NUL characters`,
		`a.yaml:33: agent "b": tool "note": retry is "often"; it must be one of never, safe`,
		`a.yaml:34: agent "b": stopWhen: the agent has no tool "nte"; did you mean "note"?`,
		`a.yaml:34: agent "b": stopWhen: give either`,
	)
}

func TestEndlessYAMLIsRefused(t *testing.T) {
	t.Parallel()
	bomb := "agents:\n  - name: a\n    model: mine/x\n    providerOptions:\n      p:\n        a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		d := string(rune('0' + i))
		next := string(rune('0' + i + 1))
		bomb += "        a" + next + ": &a" + next + " [" + strings.Repeat("*a"+d+", ", 9) + "*a" + d + "]\n"
	}
	for name, text := range map[string]string{
		"nested too deeply or is too large": bomb,
		"there is no anchor":                "agents: *nowhere\n",
		"must be an object":                 "agents:\n  - &a\n    - *a\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown())
			wantMistakes(t, err, name)
		})
	}
}

func TestATrailNoticesWrittenAndNewFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"agents/a.yaml": "agents:\n  - {name: a, model: mine/x, systemPrompt: {file: ../prompt.md}}\n",
		"prompt.md":     "You are a.",
	}
	for name, change := range map[string]func(t *testing.T, dir string){
		"a file":        func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "agents/a.yaml"), "agents: []") },
		"a file beside": func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "prompt.md"), "You are another.") },
		"a new file":    func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "agents/b.yaml"), "agents: []") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := writeFiles(t, files)
			_, trail, err := Load(t.Context(), []string{filepath.Join(dir, "agents")}, nil, testKnown())
			if err != nil || trail.Changed() {
				t.Fatalf("Load = %v, changed %v", err, trail.Changed())
			}
			change(t, dir)
			if !trail.Changed() {
				t.Error("nothing has changed, want a change")
			}
		})
	}
}

func TestAMistakeHasALineAndAColumn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"agents:\n  - {name: a, modle: mine/x}\n":                `a.yaml:2:15: agent "a": there is no field "modle"`,
		"agents:\n  - name: a\n    model: mine/x\n    tools:\n":  "",
		"agents:\n  - name: a\n    name: b\n":                    `a.yaml:3:5: mapping key "name" already defined`,
		"agents:\n  - model: mine/x\n":                           "a.yaml:2:5: the agent has no name",
		"agents:\n  - name: \"a\n":                               "a.yaml:2:11: ",
		"agents: [{name: a, model: mine/x, tools: [note, nte]}]": `a.yaml:1:49: agent "a": there is no tool "nte"`,
	} {
		_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: error = %v, want %q", text, err, want)
		}
	}
}
