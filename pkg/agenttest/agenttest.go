package agenttest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/services/executor"
)

// Config is what a test runs.
type Config struct {
	// Agents are agents in Go. Models replaces their models and fallbacks.
	Agents []agent.Agent
	// Files are agents in YAML: files, folders and patterns, with semicolons between them.
	Files string
	// Env has the environment variables of the files, such as HOLDFAST_EXECUTOR_TOOL_HOSTS. API keys of model
	// providers are not needed.
	Env map[string]string
	// Models are the models by the name of the agent.
	Models map[string]Model
	// Tools replace what the tools of these names do, in all agents. The schemas stay.
	Tools map[string]func(ctx context.Context, call *agent.Call) (any, error)
}

// Run runs a scenario on a system with one executor. It ends when the scenario returns.
func Run(t *testing.T, c Config, scenario func(s *System)) {
	t.Helper()
	run(t, c, 0, scenario)
}

// maxCrashes bounds the runs of RunWithCrashes.
const maxCrashes = 500

// RunWithCrashes runs the scenario without a crash, and then as often as it passes a point where an executor could
// crash, each time with a crash at the next point. The runs are subtests.
func RunWithCrashes(t *testing.T, c Config, scenario func(s *System)) {
	t.Helper()
	var passed []string
	if !t.Run("without a crash", func(t *testing.T) { passed = run(t, c, 0, scenario) }) {
		return
	}
	if len(passed) > maxCrashes {
		t.Fatalf("the scenario passes %d points of a crash, and %d are tested: make it shorter", len(passed), maxCrashes)
	}
	for i, point := range passed {
		t.Run(fmt.Sprintf("crash %d, %s", i+1, point), func(t *testing.T) { run(t, c, i+1, scenario) })
	}
}

// run runs the scenario. The executor crashes at the given point, counted from 1; 0 is no crash. It returns the points
// passed by the first executor.
func run(t *testing.T, c Config, crash int, scenario func(s *System)) (passed []string) {
	t.Helper()
	agents, done := c.definitions(t)
	defer done()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, c, agents, crash)
		defer s.close()
		scenario(s)
		passed = s.points()
	})
	return passed
}

// definitions returns all agents, with the models of the test. done releases what the files have opened.
func (c Config) definitions(t *testing.T) (agents []agent.Agent, done func()) {
	t.Helper()
	agents, done = slices.Clone(c.Agents), func() {}
	if c.Files != "" {
		registry := c.load(t)
		for _, name := range registry.Types() {
			if a, ok := registry.Get(name); ok {
				agents = append(agents, a)
			}
		}
		done = func() {
			if err := registry.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	for i := range agents {
		agents[i].Fallbacks = nil
		if agents[i].Remote == nil {
			agents[i].Model = provider + "/" + agents[i].Name
		}
		agents[i].Tools = c.replaced(agents[i].Tools)
	}
	c.check(t, agents)
	return agents, done
}

// check fails the test for names in Models and Tools that no agent has.
func (c Config) check(t *testing.T, agents []agent.Agent) {
	t.Helper()
	known, tools := map[string]bool{}, map[string]bool{}
	for _, a := range agents {
		known[a.Name] = true
		for _, tool := range a.Tools {
			tools[tool.Name] = true
		}
	}
	for name := range c.Models {
		if !known[name] {
			t.Fatalf("Config.Models has a model for %q, and the agents are %q", name, slices.Sorted(maps.Keys(known)))
		}
	}
	for name := range c.Tools {
		if !tools[name] {
			t.Fatalf("Config.Tools replaces %q, and the tools are %q", name, slices.Sorted(maps.Keys(tools)))
		}
	}
}

func (c Config) replaced(tools []agent.Tool) []agent.Tool {
	tools = slices.Clone(tools)
	for i, tool := range tools {
		if execute, ok := c.Tools[tool.Name]; ok {
			tools[i].Execute, tools[i].Client = execute, false
		}
	}
	return tools
}

// load reads the files.
func (c Config) load(t *testing.T) *executor.Registry {
	t.Helper()
	var environ []string
	for name, value := range c.Env {
		environ = append(environ, name+"="+value)
	}
	var files executor.AgentsConfig
	if err := config.Load(&files, environ); err != nil {
		t.Fatal(err)
	}
	files.AgentsFiles = c.Files
	registry := executor.NewRegistry()
	if err := registry.Load(t.Context(), files, executor.RegistryPeers{LookupEnv: c.lookUp}); err != nil {
		t.Fatal(err)
	}
	return registry
}

// lookUp finds the variables of Env, made-up keys and tokens, and the other variables of the process.
func (c Config) lookUp(name string) (string, bool) {
	value, ok := c.Env[name]
	switch {
	case ok:
		return value, true
	case strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_TOKEN"):
		return "made-up", true
	}
	return os.LookupEnv(name)
}
