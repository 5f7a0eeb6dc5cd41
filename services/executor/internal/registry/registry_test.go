package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
)

const oneAgent = `
models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}
agents:
  - {name: demo, description: Answers., model: scripted/demo, tools: [wait]}
`

func make1(context.Context, registry.For) (agent.Agent, error) { return agent.Agent{}, nil }

func TestANameIsHeldByOneAgent(t *testing.T) {
	t.Parallel()
	r := registry.New()
	a := agent.Agent{Name: "a", Model: "openai/x"}
	if err := r.Register(a); err != nil {
		t.Fatal(err)
	}
	if err := r.RegisterFactory("f", "Made.", make1); err != nil {
		t.Fatal(err)
	}
	yaml, err := registry.ParseAgents([]byte(oneAgent), "", environment())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Use(yaml); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Types(), []string{"a", "demo", "f"}; !slices.Equal(got, want) || !r.Has("demo") || r.Has("b") {
		t.Errorf("types = %q, want %q", got, want)
	}
	for name, err := range map[string]error{
		"an agent twice":          r.Register(a),
		"a factory of an agent":   r.RegisterFactory("a", "", make1),
		"an agent of a factory":   r.Register(agent.Agent{Name: "f", Model: "openai/x"}),
		"an agent of YAML":        r.Register(agent.Agent{Name: "demo", Model: "openai/x"}),
		"replacing a factory":     second(r.Replace(agent.Agent{Name: "f", Model: "openai/x"})),
		"replacing one of a file": second(r.Replace(agent.Agent{Name: "demo", Model: "openai/x"})),
	} {
		if !isConflict(err) {
			t.Errorf("%s = %v, want AGENT_EXISTS", name, err)
		}
	}
	if was, err := r.Replace(a); !was || err != nil {
		t.Errorf("Replace = %v, %v, want that there was one", was, err)
	}
	if was, err := r.Replace(agent.Agent{Name: "b", Model: "openai/x"}); was || err != nil {
		t.Errorf("Replace = %v, %v, want that there was none", was, err)
	}
	if !r.Unregister("f") || r.Unregister("f") || r.Unregister("demo") {
		t.Error("Unregister takes away what is of Go, once")
	}
	if r.Clear(); len(r.Types()) != 0 {
		t.Errorf("types = %q, want none", r.Types())
	}
}

func TestARegistryGivesTheAgentsThatRunsWouldHave(t *testing.T) {
	t.Parallel()
	r := registry.New()
	if err := r.Register(agent.Agent{Name: "a", Model: "openai/x"}); err != nil {
		t.Fatal(err)
	}
	for name, factory := range map[string]registry.Factory{
		"f": func(_ context.Context, f registry.For) (agent.Agent, error) {
			return agent.Agent{Model: "openai/" + f.UserID}, nil
		},
		"wrong": make1,
	} {
		if err := r.RegisterFactory(name, "Made.", factory); err != nil {
			t.Fatal(err)
		}
	}
	yaml, err := registry.ParseAgents([]byte(oneAgent), "", environment())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Use(yaml); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		there  bool
		model  string // of a run's agent; empty for a fault
		reason string
	}{
		"a": {true, "openai/x", ""}, "demo": {true, "*", ""}, "f": {false, "openai/me", ""},
		"wrong": {false, "", "AGENT_INVALID"}, "nobody": {false, "", "AGENT_NOT_FOUND"},
	} {
		got, there := r.Get(name)
		if there != want.there || there && got.Name != name {
			t.Errorf("Get(%s) = %v, %v", name, got.Name, there)
		}
		made, err := r.Resolve(t.Context(), registry.For{AgentType: name, UserID: "me"})
		if fault.ReasonOf(err) != want.reason || want.model != "" && (made.Name != name || want.model != "*" && made.Model != want.model) {
			t.Errorf("Resolve(%s) = %s with %s, %v", name, made.Name, made.Model, err)
		}
	}
}

func isConflict(err error) bool {
	return fault.KindOf(err) == fault.Conflict && fault.ReasonOf(err) == "AGENT_EXISTS"
}

func second(_ bool, err error) error { return err }

func TestWhatNoRunCouldUseIsNotRegistered(t *testing.T) {
	t.Parallel()
	r := registry.New()
	for name, err := range map[string]error{
		"no name":                  r.Register(agent.Agent{Model: "openai/x"}),
		"no model":                 r.Register(agent.Agent{Name: "a"}),
		"a factory that is nil":    r.RegisterFactory("a", "", nil),
		"a factory without a name": r.RegisterFactory("", "", make1),
		"a replacement":            second(r.Replace(agent.Agent{Name: "a"})),
	} {
		if fault.ReasonOf(err) != "AGENT_INVALID" {
			t.Errorf("%s = %v, want AGENT_INVALID", name, err)
		}
	}
	for _, provider := range []string{"", "a/b", "a"} {
		if err := r.Model(provider, nil); fault.ReasonOf(err) != "MODEL_INVALID" {
			t.Errorf("Model(%q) = %v, want MODEL_INVALID", provider, err)
		}
	}
	if len(r.Types()) != 0 {
		t.Errorf("types = %q, want none", r.Types())
	}
}

func TestARegistryHoldsAsManyAgentsAsAnExecutorMayAnnounce(t *testing.T) {
	t.Parallel()
	r := registry.New()
	named := func(n int) agent.Agent {
		return agent.Agent{Name: fmt.Sprint("agent ", n), Model: "openai/any"}
	}
	for n := range 1000 {
		if err := r.Register(named(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Register(named(1000)); fault.ReasonOf(err) != "TOO_MANY_AGENTS" {
		t.Errorf("got %v, want TOO_MANY_AGENTS", err)
	}
	if _, err := r.Replace(named(1000)); fault.ReasonOf(err) != "TOO_MANY_AGENTS" {
		t.Errorf("got %v, want TOO_MANY_AGENTS", err)
	}
	if _, err := r.Replace(named(999)); err != nil {
		t.Errorf("got %v, want the agent in the place of the other", err)
	}
}

func TestANilSetIsReportedAndANilEnvironmentIsEmpty(t *testing.T) {
	t.Parallel()
	set, err := registry.ParseAgents([]byte("models: {openai: {apiKeyEnv: MY_KEY}}\nagents: [{name: a, model: openai/x}]"), "", nil)
	if fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(err.Error(), "MY_KEY is not set") {
		t.Errorf("without an environment: %v, want that MY_KEY is not set", err)
	}
	if err := registry.New().Use(set); fault.ReasonOf(err) != "AGENTS_MISSING" {
		t.Errorf("Use(nil) = %v, want AGENTS_MISSING", err)
	}
}
