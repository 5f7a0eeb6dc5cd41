package registry

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
)

// storing returns the catalog of an executor that serves stored agents, with a scripted model of its files.
func storing(t *testing.T, change func(*AgentsConfig)) *Catalog {
	t.Helper()
	r := New()
	t.Cleanup(func() { _ = r.Close() })
	env := func(name string) (string, bool) {
		return "s3cret of " + name, strings.HasPrefix(name, "SHOP") || name == "PATH"
	}
	path := filepath.Join(t.TempDir(), "agents.yaml")
	writeText(t, path, "models: {told: {provider: scripted, script: \"models: {m: {rules: [{reply: hi}]}}\"}}\n"+
		"agents: [{name: own, model: told/m}]\n")
	files := AgentsConfig{AgentsFiles: path}
	if err := r.Load(t.Context(), files, Peers{LookupEnv: env}); err != nil {
		t.Fatal(err)
	}
	c := AgentsConfig{StoredAgents: true, StoredKept: 2, ToolHosts: []string{"shop.example", "10.0.0.1"}, FileEnv: []string{"*"}}
	if change != nil {
		change(&c)
	}
	if err := r.ServeStored(c, Peers{LookupEnv: env}); err != nil {
		t.Fatal(err)
	}
	all, err := NewCatalog(r, agent.Hooks{}, env)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestADefinitionIsCheckedAsAFileAndBecomesData(t *testing.T) {
	t.Parallel()
	c := storing(t, func(c *AgentsConfig) { c.StoredEnv = []string{"SHOP_*"} })
	file := `
defaults: {model: told/m}
tools:
  - {name: order, http: {url: "https://shop.example/{id}", headers: {Authorization: "Bearer ${SHOP_KEY}"}}, inputSchema: {type: object, properties: {id: {type: string}}}}
  - {name: unused, client: true}
agents:
  - {name: clerk, description: Helps., tools: [{use: order, approval: always}, calculate, {subAgent: own}], onBusy: enqueue}
  - {name: other, tools: [unused]}
`
	definition, described, err := c.CheckStored(t.Context(), "clerk", "shop.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	if described.Name != "clerk" || described.Description != "Helps." || described.OnBusy != agent.BusyEnqueue {
		t.Errorf("got the description %+v", described)
	}
	if text := string(definition); strings.Contains(text, "unused") || strings.Contains(text, "other") || strings.Contains(text, "s3cret") ||
		!strings.Contains(text, `"model":"told/m"`) || !strings.Contains(text, "${SHOP_KEY}") {
		t.Errorf("got the definition %s", text)
	}
	again, _, err := c.CheckStored(t.Context(), "clerk", "", definition)
	if err != nil || string(again) != string(definition) {
		t.Errorf("a definition is another one after another check: %v\n%s\n%s", err, definition, again)
	}
	single, _, err := c.CheckStored(t.Context(), "clerk", "", []byte("model: told/m\n"))
	if err != nil || string(single) != `{"agents":[{"model":"told/m","name":"clerk"}]}` {
		t.Errorf("got %s, %v of an agent without a name", single, err)
	}
}

func TestAHostileDefinitionIsRefused(t *testing.T) {
	t.Parallel()
	c := storing(t, nil)
	many := `{"model": "told/m", "tools": [` + strings.Repeat(`"calculate",`, 9_999) + `"calculate"]}`
	for name, test := range map[string]struct{ text, want string }{
		"a variable": {
			`{"name": "clerk", "model": "told/m", "tools": [{"name": "t", "http": {"url": "https://shop.example", "headers": {"X": "${SHOP_KEY}"}}}]}`,
			"is not one that stored agents may name: set HOLDFAST_EXECUTOR_STORED_ENV",
		},
		"a variable of Holdfast": {
			"model: told/m\ntools: [{name: t, http: {url: \"https://shop.example\", headers: {X: \"${HOLDFAST_INTERNAL_KEY}\"}}}]",
			"belongs to Holdfast",
		},
		"a host":               {"model: told/m\ntools: [{name: t, http: {url: \"https://evil.example\"}}]", "HOLDFAST_EXECUTOR_TOOL_HOSTS"},
		"a private host":       {"model: told/m\ntools: [{name: t, http: {url: \"http://169.254.169.254/\"}}]", "HOLDFAST_EXECUTOR_TOOL_HOSTS"},
		"this machine":         {"remote: {url: \"http://127.0.0.1:1\", agent: x}", "HOLDFAST_EXECUTOR_MODEL_HOSTS"},
		"a key of a remote":    {"remote: {url: \"https://far.example\", agent: x, apiKeyEnv: SHOP_KEY}", "HOLDFAST_EXECUTOR_STORED_ENV"},
		"a file as prompt":     {"model: told/m\nsystemPrompt: {file: /etc/passwd}", "clerk:2:16: agent \"clerk\": systemPrompt: a stored agent cannot name files"},
		"a file to include":    {"include: [/etc]\nagents: [{name: clerk, model: told/m}]", "a stored agent has no field \"include\""},
		"a provider":           {"models: {x: {provider: openai}}\nagents: [{name: clerk, model: x/m}]", "a stored agent has no field \"models\""},
		"an endpoint":          {"endpoints: [{url: \"https://e.example\"}]\nagents: [{name: clerk, model: told/m}]", "a stored agent has no field \"endpoints\""},
		"a program":            {"mcpServers: {s: {command: sh}}\nagents: [{name: clerk, model: told/m, tools: [{mcp: s}]}]", "cannot start programs"},
		"a document by URL":    {"model: told/m\ntools: [{openapi: \"https://shop.example/api\"}]", "give the document itself"},
		"a tool of a file":     {"model: told/m\ntools: [note]", "there is no tool \"note\""},
		"a function":           {"model: told/m\ncallbacks: [prompt]", "for the descriptions of endpoints"},
		"2 MiB":                {`{"model": "told/m", "systemPrompt": "` + strings.Repeat("x", 2<<20) + `"}`, "at most 1048576 are allowed"},
		"10,000 tools":         {many, "there are 10000 entries; at most 500 are allowed"},
		"another name":         {`{"name": "boss", "model": "told/m"}`, `clerk:1:2: the name is "boss"; the agent is to be stored as "clerk"`},
		"no such agent":        {`{"agents": [{"name": "boss", "model": "told/m"}]}`, `there is no agent "clerk" in the file`},
		"a member twice":       {`{"name": "clerk", "name": "boss"}`, "twice"},
		"no object":            {`[]`, "it is not an object"},
		"a mistake with place": {"{\n \"name\": \"clerk\",\n \"model\": \"told/m\",\n \"maxSteps\": \"many\"}", "clerk:4:2: agent \"clerk\": maxSteps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition, _, err := c.CheckStored(t.Context(), "clerk", "", []byte(test.text))
			if fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got %.200s, %v; want a mistake with %q", definition, err, test.want)
			}
			if strings.Contains(fmt.Sprint(err), "s3cret") {
				t.Errorf("the mistake has a secret: %v", err)
			}
		})
	}
}

func TestAStoredAgentIsLoadedOnceAndKeptWithinTheLimit(t *testing.T) {
	t.Parallel()
	c := storing(t, nil)
	loads := map[string]int{}
	resolve := func(hash string) error {
		got, err := c.ResolveStored(t.Context(), catalog.For{AgentType: "clerk", RunID: "r"}, hash, func(context.Context) ([]byte, error) {
			loads[hash]++
			if hash == "gone" {
				return nil, fault.New(fault.NotFound, "DEFINITION_NOT_FOUND", "gone")
			}
			return fmt.Appendf(nil, `{"agents":[{"model":"told/m","name":"clerk","description":%q}]}`, hash), nil
		})
		if err == nil && (got.Description != hash || got.Models["told/m"] == nil) {
			return fmt.Errorf("got %+v", got.Agent)
		}
		return err
	}
	for _, hash := range []string{"a", "a", "b", "a", "c", "a", "b"} {
		if err := resolve(hash); err != nil {
			t.Error(err)
		}
	}
	if want := map[string]int{"a": 1, "b": 2, "c": 1}; fmt.Sprint(loads) != fmt.Sprint(want) {
		t.Errorf("got the loads %v, want %v: the least used one of three is dropped", loads, want)
	}
	for range 2 {
		if err := resolve("gone"); fault.ReasonOf(err) != "DEFINITION_NOT_FOUND" {
			t.Errorf("got %v", err)
		}
	}
	if loads["gone"] != 2 {
		t.Errorf("a failure was kept")
	}
	if err := c.registry.Reload(t.Context()); err != nil { // its providers may be others now
		t.Fatal(err)
	}
	if err := errors.Join(resolve("a"), resolve("a")); err != nil || loads["a"] != 2 {
		t.Errorf("got %v and %d loads after the files were read again, want 2", err, loads["a"])
	}
}

func TestOneLoadServesAllRunsThatBeginTogether(t *testing.T) {
	t.Parallel()
	c := storing(t, nil)
	began, release := make(chan struct{}), make(chan struct{})
	results := make(chan error, 8)
	resolve := func(ctx context.Context, load func(context.Context) ([]byte, error)) {
		_, err := c.ResolveStored(ctx, catalog.For{AgentType: "clerk", RunID: "r"}, "h", load)
		results <- err
	}
	go resolve(t.Context(), func(context.Context) ([]byte, error) {
		close(began)
		<-release
		return nil, errors.New("the connection broke")
	})
	<-began
	good := func(context.Context) ([]byte, error) {
		return []byte(`{"agents":[{"model":"told/m","name":"clerk"}]}`), nil
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	go resolve(canceled, good)
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of a run that was stopped", err)
	}
	for range 6 {
		go resolve(t.Context(), good)
	}
	close(release)
	failed := 0
	for range 7 {
		if err := <-results; err != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d runs failed, want the one whose load did", failed)
	}
}
