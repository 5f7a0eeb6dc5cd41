package registry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

const hello = `models: {demo: {rules: [{reply: hi}]}}`

// newRegistry returns a registry with the agents and a model for them, and its catalog.
func newRegistry(t *testing.T, agents ...agent.Agent) (*Registry, *Catalog) {
	t.Helper()
	r := New()
	m, err := OpenModel(ModelConfig{Provider: "scripted", Script: hello})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Model("own", m); err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		if err := r.Register(a); err != nil {
			t.Fatal(err)
		}
	}
	return r, &Catalog{
		registry: r, lookupEnv: lookupIn([]string{"OPENAI_API_KEY=k"}), engines: map[string]model.Model{},
	}
}

// lookupIn finds variables in a list of "NAME=value".
func lookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, line := range environ {
			if key, value, _ := strings.Cut(line, "="); key == name {
				return value, true
			}
		}
		return "", false
	}
}

func demo(name string) agent.Agent { return agent.Agent{Name: name, Model: "own/demo"} }

func resolve(t *testing.T, c *Catalog, agentType string) (catalog.Agent, error) {
	t.Helper()
	return c.Resolve(t.Context(), catalog.For{AgentType: agentType, Tenant: "t", SessionID: "s", RunID: "r", UserID: "u"})
}

func TestTheModelOfAProviderIsMadeOnceAndShared(t *testing.T) {
	t.Parallel()
	a, b := demo("a"), demo("b")
	a.Model, a.Fallbacks, b.Model = "openai/x", []string{"own/demo"}, "openai/y"
	_, c := newRegistry(t, a, b)
	first, err := resolve(t, c, "a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := resolve(t, c, "b")
	if err != nil {
		t.Fatal(err)
	}
	if first.Models["openai/x"] == nil || first.Models["openai/x"] != second.Models["openai/y"] || first.Models["own/demo"] == nil {
		t.Errorf("models = %v and %v, want one of openai in both and the fallback's", first.Models, second.Models)
	}
}

func TestAnUnknownModelIsReportedAtTheStart(t *testing.T) {
	t.Parallel()
	a, b, d := demo("a"), demo("b"), demo("d")
	a.Model, b.Fallbacks = "anthropic/x", []string{"azure/x"}
	_, c := newRegistry(t, a, b, d)
	want := []Problem{
		{Kind: "agent", Name: "a", Text: `agent "a": the provider "anthropic": the environment variable ANTHROPIC_API_KEY is not set; it must hold the API key`},
		{Kind: "provider", Name: "azure", Agent: "b", Text: `agent "b": the provider "azure": it is unknown; register a model for it with Registry.Model`},
	}
	if got := c.Problems(); c.check() != nil || !slices.Equal(got, want) {
		t.Errorf("check = %v, problems = %v, want none and %v", c.check(), got, want)
	}
	if got := c.Types(); len(got) != 2 || got[0].Name != "b" || got[1].Name != "d" {
		t.Errorf("types = %v, want b and d", got)
	}
	if _, err := resolve(t, c, "a"); fault.ReasonOf(err) != "MODEL_INVALID" {
		t.Errorf("Resolve = %v, want MODEL_INVALID", err)
	}
	if got, err := resolve(t, c, "b"); err != nil || len(got.Fallbacks) != 0 || len(got.Models) != 1 {
		t.Errorf("Resolve = %v, %v, want the agent without its fallback", got, err)
	}
	_, alone := newRegistry(t, a)
	if err := alone.check(); fault.ReasonOf(err) != "MODEL_INVALID" || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY is not set") {
		t.Errorf("check = %v, want MODEL_INVALID where there is no other agent", err)
	}
}

func TestAnUnregisteredAgentIsNotFound(t *testing.T) {
	t.Parallel()
	r, c := newRegistry(t, demo("a"), demo("b"))
	if !r.Unregister("a") {
		t.Error("Unregister says that there was none")
	}
	_, err := resolve(t, c, "a")
	if f, ok := fault.From(err); !ok || f.Kind != fault.NotFound || f.Reason != "AGENT_NOT_FOUND" || !strings.Contains(f.Detail, "known: b") {
		t.Errorf("Resolve = %v, want AGENT_NOT_FOUND with what there is", err)
	}
}

func TestAFactoryMakesTheAgentOfARun(t *testing.T) {
	t.Parallel()
	r, c := newRegistry(t)
	for name, factory := range map[string]Factory{
		"made": func(_ context.Context, f For) (agent.Agent, error) {
			return agent.Agent{Model: "own/demo", SystemPrompt: strings.Join([]string{f.Tenant, f.SessionID, f.RunID, f.UserID}, " ")}, nil
		},
		"fails":   func(context.Context, For) (agent.Agent, error) { return agent.Agent{}, errors.New("no database") },
		"another": func(context.Context, For) (agent.Agent, error) { return demo("other"), nil },
		"invalid": func(context.Context, For) (agent.Agent, error) { return agent.Agent{Model: "x"}, nil },
	} {
		if err := r.RegisterFactory(name, "Made for you.", factory); err != nil {
			t.Fatal(err)
		}
	}
	made, err := resolve(t, c, "made")
	if err != nil || made.Name != "made" || made.SystemPrompt != "t s r u" || made.Models["own/demo"] == nil {
		t.Errorf("made = %+v, %v", made, err)
	}
	for name, want := range map[string]string{"fails": "no database", "another": `an agent with the name "other"`, "invalid": "provider/name"} {
		if _, err := resolve(t, c, name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `the factory of the agent "`+name) || errors.Is(err, fault.NotFound) {
			t.Errorf("Resolve(%s) = %v, want %q", name, err, want)
		}
	}
}

func TestTheHooksOfTheHostComeBehindTheAgents(t *testing.T) {
	t.Parallel()
	var order []string
	note := func(name string) agent.Hooks {
		return agent.Hooks{OnStart: func(context.Context, *agent.HookCall) { order = append(order, name) }}
	}
	a := demo("a")
	a.Hooks = note("agent")
	_, c := newRegistry(t, a)
	c.hooks = note("host")
	resolved, err := resolve(t, c, "a")
	if err != nil {
		t.Fatal(err)
	}
	resolved.Hooks.OnStart(t.Context(), nil)
	if want := []string{"agent", "host"}; !slices.Equal(order, want) {
		t.Errorf("order = %q, want %q", order, want)
	}
}

func changed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestOnlyWhatIsAnnouncedCountsAsAChange(t *testing.T) {
	t.Parallel()
	r, c := newRegistry(t, demo("a"))
	before := c.Changed()
	other := demo("a")
	other.SystemPrompt = "Be brief."
	if was, err := r.Replace(other); !was || err != nil {
		t.Fatalf("Replace = %v, %v", was, err)
	}
	if changed(before) {
		t.Error("another prompt is announced, want silence")
	}
	other.OnBusy = agent.BusyEnqueue
	if _, err := r.Replace(other); err != nil {
		t.Fatal(err)
	}
	if !changed(before) || c.Types()[0].OnBusy != agent.BusyEnqueue {
		t.Error("another policy is not announced")
	}
	before = c.Changed()
	r.Clear()
	if !changed(before) || len(c.Types()) != 0 {
		t.Error("that nothing is left is not announced")
	}
}

func agentsFile(t *testing.T, path, prompt string, more ...string) {
	t.Helper()
	text := "models: {scripted: {script: '" + hello + "'}}\nagents:\n  - {name: yaml, model: scripted/demo, systemPrompt: " + prompt + "}\n"
	if err := os.WriteFile(path, []byte(text+strings.Join(more, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// logLines collects log lines.
type logLines struct{ lines chan string }

func (l logLines) Write(p []byte) (int, error) {
	l.lines <- string(p)
	return len(p), nil
}

func TestFilesThatChangeAreServedWithoutARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "agents.yaml")
		agentsFile(t, path, "first")
		r, c := newRegistry(t, demo("go"))
		if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path, AgentsPoll: 2 * time.Second}, Peers{}); err != nil {
			t.Fatal(err)
		}
		log := logLines{make(chan string, 10)}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			r.follow(ctx, slog.New(slog.NewTextHandler(log, nil)))
			close(ended)
		}()
		prompt := func() string {
			a, err := resolve(t, c, "yaml")
			if err != nil {
				t.Error(err)
			}
			return a.SystemPrompt
		}
		live, _ := resolve(t, c, "yaml")

		agentsFile(t, path, "second one")
		time.Sleep(5 * time.Second)
		if got := prompt(); got != "second one" || live.SystemPrompt != "first" {
			t.Errorf("a new run has the prompt %q and a live one %q, want the second and the first", got, live.SystemPrompt)
		}
		<-log.lines

		agentsFile(t, path, "third", "  - {name: go, model: scripted/demo}\n")
		time.Sleep(time.Minute)
		<-log.lines
		if got := r.Problems(); prompt() != "third" || len(got) != 1 || !strings.Contains(got[0].Text, "AGENT_EXISTS") || len(log.lines) > 0 {
			t.Errorf("a name that Go holds: prompt %q, problems %v; want the other agent and one problem", prompt(), got)
		}
		agentsFile(t, path, "fourth", "  - {nmae: other}\n")
		time.Sleep(time.Minute)
		<-log.lines
		if got := r.Problems(); prompt() != "fourth" || len(got) == 0 || !strings.Contains(got[0].Text, "agents.yaml:4:") || len(log.lines) > 0 {
			t.Errorf("a mistake: prompt %q, problems %v; want the other agent and the mistake", prompt(), got)
		}
		agentsFile(t, path, "fourth and a half\n    no: yaml: [")
		time.Sleep(time.Minute)
		<-log.lines
		if got := r.Problems(); prompt() != "fourth" || len(got) != 1 || got[0].Kind != "file" || len(log.lines) > 0 {
			t.Errorf("a file that is not YAML: prompt %q, problems %v; want the former agent and the file", prompt(), got)
		}

		before := c.Changed()
		agentsFile(t, path, "fifth of all", "  - {name: other, model: own/demo}\n")
		time.Sleep(5 * time.Second)
		if !changed(before) || !slices.Equal(r.Types(), []string{"go", "other", "yaml"}) || prompt() != "fifth of all" {
			t.Errorf("types = %q, want those of Go and both of YAML", r.Types())
		}
		stop()
		<-ended
	})
}

func TestAReloadThatIsAskedForDoesNotWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	agentsFile(t, path, "first")
	r, c := newRegistry(t)
	if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path}, Peers{}); err != nil {
		t.Fatal(err)
	}
	agentsFile(t, path, "second")
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, err := resolve(t, c, "yaml"); err != nil || a.SystemPrompt != "second" {
		t.Errorf("agent = %q, %v, want the second", a.SystemPrompt, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(t.Context()); fault.ReasonOf(err) != "AGENTS_NOT_FOUND" || !r.Has("yaml") {
		t.Errorf("Reload = %v, want AGENTS_NOT_FOUND and the former agents", err)
	}
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
