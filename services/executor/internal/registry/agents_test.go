package registry_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
)

// environment finds variables in a list of names and values in turn.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

const scriptFile = `
models:
  demo:
    rules:
      - reply: Hello.
`

const goodAgents = `
models:
  openai: {apiKeyEnv: MY_KEY}
  anthropic: {baseURL: "http://127.0.0.1:9/"}
  scripted: {file: scripts/demo.yaml}
agents:
  - name: demo
    description: Answers.
    model: scripted/demo
    systemPrompt: |
      Be brief.
    tools: [current_time, calculate]
    maxSteps: 5
  - name: "agent mit Ümlaut"
    model: openai/gpt-5
    maxOutputTokens: 100
    temperature: 0
  - {name: claude, model: anthropic/claude-sonnet-4-5, tools: [note]}
`

func TestAgentsAreReadWithTheirModelsAndTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "scripts", "demo.yaml"), []byte(scriptFile), 0o600); err != nil {
		t.Fatal(err)
	}
	agents, err := registry.ParseAgents([]byte(goodAgents), dir, environment("MY_KEY", "secret", "HOLDFAST_EXECUTOR_NOTES_DIR", dir))
	if err != nil {
		t.Fatal(err)
	}
	definitions := agents.Definitions()
	var names []string
	for _, a := range definitions {
		names = append(names, a.Name)
	}
	if want := []string{"agent mit Ümlaut", "claude", "demo"}; !slices.Equal(names, want) {
		t.Fatalf("agents = %q, want %q", names, want)
	}
	demo := definitions[2]
	if demo.SystemPrompt != "Be brief.\n" || demo.MaxSteps != 5 || len(demo.Tools) != 2 || demo.Model != "scripted/demo" {
		t.Errorf("demo = %+v", demo)
	}
	if other := definitions[0]; other.Temperature == nil || *other.Temperature != 0 || other.MaxOutputTokens != 100 {
		t.Errorf("agent = %+v, want temperature 0 and 100 tokens", other)
	}
}

func TestMistakesInAgentsAreAllReportedWithTheirLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []string
	}{
		"not YAML":            {"agents: [", []string{"agents.yaml:1:"}},
		"empty":               {"", []string{"agents.yaml:1:1: no agents"}},
		"unknown field":       {"agents:\n  - name: a\n    modle: x/y\n", []string{"agents.yaml:3:", "modle"}},
		"wrong type":          {"agents:\n  - name: a\n    maxSteps: many\n", []string{"agents.yaml:3:"}},
		"two documents":       {"agents: []\n---\nagents: []\n", []string{"more than one YAML document"}},
		"unknown tool":        {"models: {scripted: {script: S}}\nagents:\n  - name: a\n    model: scripted/demo\n    tools:\n      - calculate\n      - calcluate\n", []string{`agents.yaml:7:9: agent "a": there is no tool "calcluate"; known: calculate, current_time, wait`}},
		"unknown provider":    {"models: {azure: {}}\nagents:\n  - name: a\n    model: mistral/x\n", []string{`agents.yaml:1:10: there is no provider "azure"`, `agents.yaml:4:5: agent "a": there is no provider "mistral"`}},
		"provider not set up": {"agents:\n  - name: a\n    model: openai/x\n", []string{`agents.yaml:3:5: agent "a": the provider "openai" has no settings`}},
		"bad model":           {"agents:\n  - name: a\n    model: gpt\n", []string{`agents.yaml:3:5: agent "a": the model is "gpt"; it must be provider/name`}},
		"twice": {"models: {scripted: {script: S}}\nagents:\n  - {name: a, model: scripted/demo}\n  - {name: a, model: scripted/demo, tools: [wait, wait]}\n",
			[]string{`agents.yaml:4:6: the agent "a" is declared twice`, `agents.yaml:4:51: agent "a": the tool "wait" is listed twice`}},
		"no name":      {"models: {scripted: {script: S}}\nagents:\n  - model: scripted/demo\n", []string{"agents.yaml:3:5: the agent has no name"}},
		"bad name":     {"models: {scripted: {script: S}}\nagents:\n  - {name: \"a\\nb\", model: scripted/demo}\n", []string{"control characters"}},
		"bad numbers":  {"models: {scripted: {script: S}}\nagents:\n  - {name: a, model: scripted/demo, maxSteps: -1, maxOutputTokens: -2, temperature: 3}\n", []string{"maxSteps is -1", "maxOutputTokens is -2", "temperature is 3"}},
		"key not set":  {"models: {openai: {}}\nagents:\n  - {name: a, model: openai/x}\n", []string{"agents.yaml:1:10: openai: the environment variable OPENAI_API_KEY is not set"}},
		"bad base URL": {"models:\n  openai:\n    baseURL: nowhere\nagents:\n  - {name: a, model: openai/x}\n", []string{"openai", "nowhere"}},
		"no script":    {"models: {scripted: {}}\nagents:\n  - {name: a, model: scripted/demo}\n", []string{"agents.yaml:1:10: scripted: give either script"}},
		"bad script":   {"models: {scripted: {script: 'models: 1'}}\nagents:\n  - {name: a, model: scripted/demo}\n", []string{"agents.yaml:1:10: scripted: "}},
		"lost script":  {"models: {scripted: {file: gone.yaml}}\nagents:\n  - {name: a, model: scripted/demo}\n", []string{"agents.yaml:1:21: scripted: file cannot be read: there is no file"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.ReplaceAll(test.text, "script: S", "script: 'models: {demo: {rules: [{reply: hi}]}}'")
			_, err := registry.ParseAgents([]byte(text), t.TempDir(), environment())
			if f, ok := fault.From(err); !ok || f.Kind != fault.Invalid || f.Reason != "AGENTS_INVALID" {
				t.Fatalf("error = %v, want AGENTS_INVALID", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v\nwant it to have %q", err, want)
				}
			}
		})
	}
}

func TestAMissingAgentsFileIsNotFound(t *testing.T) {
	t.Parallel()
	err := registry.New().Load(t.Context(), registry.AgentsConfig{AgentsFiles: filepath.Join(t.TempDir(), "none.yaml")}, registry.Peers{})
	if fault.ReasonOf(err) != "AGENTS_NOT_FOUND" {
		t.Errorf("error = %v, want AGENTS_NOT_FOUND", err)
	}
}

func TestTheAgentsOfTwoFilesTogetherPreferTheSecond(t *testing.T) {
	t.Parallel()
	parse := func(agents string) *registry.Agents {
		t.Helper()
		a, err := registry.ParseAgents([]byte("models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\nagents:\n"+agents), "", environment())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := parse("  - {name: a, model: scripted/demo, description: old}\n  - {name: b, model: scripted/demo}\n")
	both := first.With(parse("  - {name: c, model: scripted/demo}\n  - {name: a, model: scripted/demo, description: new}\n")).Definitions()
	if len(both) != 3 || both[0].Description != "new" || both[1].Name != "b" || both[2].Name != "c" {
		t.Errorf("agents = %+v, want the new a, b and c", both)
	}
}
