package registry

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// goodFile declares an agent that must be served whatever else is broken.
const goodFile = `
models: {scripted: {script: '` + hello + `'}}
agents:
  - {name: good, model: scripted/demo, tools: [calculate]}
`

// oddServer serves two tools over streamable HTTP, of which one has a schema that cannot be read.
func oddServer(t *testing.T) (url string) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "odd", Version: "1"}, nil)
	nothing := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	}
	server.AddTool(&mcp.Tool{Name: "fine", InputSchema: map[string]any{"type": "object"}}, nothing)
	server.AddTool(&mcp.Tool{Name: "odd", InputSchema: map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "int"}}}}, nothing)
	served := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(served.Close)
	return served.URL
}

// brokenParts are files beside goodFile, the types that are served beside good, the tools of the agent "a" if it is
// served, and the parts that the problems name.
func brokenParts(t *testing.T) map[string]struct{ text, types, tools, parts string } {
	t.Helper()
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	t.Cleanup(garbage.Close)
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	down := "http://127.0.0.1:1/"
	one := func(fields string) string { return "agents:\n  - {name: a, model: scripted/demo, " + fields + "}\n" }
	with := func(server, tools string) string {
		return "mcpServers: {s: {url: '" + server + "'}}\n" + one("tools: ["+tools+"]")
	}
	return map[string]struct{ text, types, tools, parts string }{
		"a file that is not YAML":           {"agents: [", "", "", "file second.yaml"},
		"an empty file":                     {"", "", "", "file second.yaml"},
		"an unknown field of a file":        {"agnts: []\n" + one("tools: [wait]"), "a", "wait", "file second.yaml"},
		"an included file that is missing":  {"include: [none.yaml]\n" + one("tools: [wait]"), "a", "wait", "file second.yaml"},
		"an agent with a misspelled field":  {one("tols: [wait]"), "", "", "agent a"},
		"an agent without a name":           {"agents: [{model: scripted/demo}, {name: a, model: scripted/demo}]\n", "a", "", "agent "},
		"an agent that is no object":        {"agents: [a, {name: a, model: scripted/demo}]\n", "a", "", "agent "},
		"an agent of a name twice":          {"agents: [{name: a, model: scripted/demo, tools: [wait]}, {name: a, model: scripted/demo}]\n", "a", "wait", "agent a"},
		"a name that Go has registered":     {"agents: [{name: in-go, model: scripted/demo}, {name: a, model: scripted/demo}]\n", "a", "", "agent in-go"},
		"a prompt with a wrong placeholder": {one(`prompt: "{{ nothing }}"`), "", "", "agent a"},
		"a prompt in a missing file":        {one("systemPrompt: {file: none.md}"), "", "", "agent a"},
		"a state schema that is none":       {one("stateSchema: {type: int}"), "", "", "agent a"},
		"an unknown provider":               {"agents:\n  - {name: a, model: nowhere/x}\n  - {name: b, model: scripted/demo}\n", "b", "", "agent a"},
		"a provider with a mistake":         {"models: {mine: {provider: openai, baseURL: nowhere}}\nagents:\n  - {name: a, model: mine/x}\n  - {name: b, model: scripted/demo}\n", "b", "", "agent a, provider mine"},
		"a provider without its key":        {"models: {openai: {}}\nagents:\n  - {name: a, model: openai/x}\n  - {name: b, model: scripted/demo}\n", "b", "", "agent a, provider openai"},
		"a fallback without its key":        {one("fallbacks: [openai/x], tools: [wait]"), "a", "wait", "provider openai of a"},
		"a provider declared in two ways":   {"models: {scripted: {script: 'models: {demo: {rules: [{reply: other}]}}'}}\n" + one("tools: [wait]"), "a", "wait", "provider scripted"},
		"an unknown tool":                   {one("tools: [wait, none]"), "a", "wait", "tool none of a"},
		"a tool with a misspelled approval": {one("tools: [wait, {use: calculate, aproval: always}]"), "a", "wait", "tool calculate of a"},
		"a tool twice":                      {one("tools: [wait, calculate, {use: calculate, approval: always}]"), "a", "wait", "tool calculate of a"},
		"an HTTP tool with a bad host":      {one("tools: [wait, {name: get, description: d, http: {url: 'https://elsewhere.example/'}}]"), "a", "wait", "tool get of a"},
		"a shared tool with a mistake":      {"tools: [{name: shared, client: 1}]\n" + one("tools: [wait, shared]"), "a", "wait", "tool shared"},
		"a schema of a tool that is none":   {one("tools: [wait, {name: t, client: true, inputSchema: {type: int}}]"), "a", "wait", "tool t of a"},
		"a rule for a tool that is missing": {one("tools: [wait, none], stopWhen: {tool: none}"), "a", "wait", "tool none of a"},
		"a server that is down":             {with(down, "wait, {mcp: s}"), "a", "wait", "mcpServer s"},
		"a server that answers garbage":     {with(garbage.URL, "wait, {mcp: s}"), "a", "wait", "mcpServer s"},
		"a server that answers too much":    {with(endless.URL, "wait, {mcp: s}"), "a", "wait", "mcpServer s"},
		"a server that is not allowed":      {with("https://elsewhere.example/", "wait, {mcp: s}"), "a", "wait", "mcpServer s, mcpServer s of a"},
		"a required server that is down":    {with(down, "{mcp: s, required: true}"), "", "", "agent a, mcpServer s"},
		"a required server with a mistake":  {with("https://elsewhere.example/", "{mcp: s, required: true}"), "", "", "agent a, mcpServer s"},
		"a secret that is not set":          {"mcpServers: {s: {url: 'http://127.0.0.1:1/', headers: {A: '${NOT_SET_KEY}'}}}\n" + one("tools: [wait, {mcp: s}]"), "a", "wait", "mcpServer s, mcpServer s of a"},
		"a tool of a server":                {with(oddServer(t), "wait, {mcp: s}"), "a", "wait fine", "tool s/odd"},
		"a listed tool that is missing":     {with(mcpServer(t), "wait, {mcp: s, tools: [shout, none]}"), "a", "wait shout", "tool none of a"},
		"an approval of a missing tool":     {"mcpServers: {s: {url: '" + mcpServer(t) + "', approve: [none]}}\n" + one("tools: [wait, {mcp: s}]"), "a", "wait", "mcpServer s"},
		"a remote agent at a bad address":   {"agents:\n  - {name: a, remote: {url: 'https://elsewhere.example', agent: x}}\n", "", "", "agent a"},
		"a sub-agent without a name":        {one("tools: [wait, {subAgent: ''}]"), "a", "wait", "tool subagent__ of a"},
	}
}

func TestABrokenPartTakesDownOnlyItself(t *testing.T) {
	t.Parallel()
	for name, test := range brokenParts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeText(t, filepath.Join(dir, "first.yaml"), goodFile)
			writeText(t, filepath.Join(dir, "second.yaml"), test.text)
			r, c := newRegistry(t, demo("in-go"))
			var log bytes.Buffer
			config := AgentsConfig{AgentsFiles: dir, ToolHosts: []string{allowed}, FileEnv: []string{"*_KEY"}}
			if err := r.Load(t.Context(), config, Peers{Log: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
			want := []string{"good", "in-go"}
			if test.types != "" {
				want = append(want, test.types)
				slices.Sort(want)
			}
			if got := r.Types(); !slices.Equal(got, want) {
				t.Errorf("types = %q, want %q", got, want)
			}
			if a, err := resolve(t, c, "a"); err == nil && strings.Join(toolNames(a), " ") != test.tools {
				t.Errorf("tools = %q, want %q", toolNames(a), test.tools)
			}
			if got := parts(r.Problems(), dir); got != test.parts {
				t.Errorf("parts = %s, want %s\n%v", got, test.parts, r.Problems())
			}
			if len(r.Diagnose()) == 0 || !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("the author reads %q, and the log has\n%s", r.Diagnose(), log.String())
			}
			lines := strings.Count(log.String(), "\n")
			for range 3 {
				r.report(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
			}
			if got := strings.Count(log.String(), "out of service"); strings.Count(log.String(), "\n") > lines+1 {
				t.Errorf("the log has %d lines of the same problems:\n%s", got, log.String())
			}
		})
	}
}

// parts names the parts of problems, each once.
func parts(problems []Problem, dir string) string {
	var names []string
	for _, p := range problems {
		name := p.Kind + " " + strings.TrimPrefix(p.Name, dir+string(filepath.Separator))
		if p.Agent != "" {
			name += " of " + p.Agent
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAnAgentThatBreaksKeepsItsFormerDefinition(t *testing.T) {
	t.Parallel()
	const former = "models: {scripted: {script: '" + hello + "'}}\nagents:\n  - {name: a, model: scripted/demo, systemPrompt: former, tools: [wait]}\n  - {name: b, model: scripted/demo, systemPrompt: former}\n"
	for name, test := range map[string]struct{ text, a, b string }{
		"its model is unknown":        {strings.ReplaceAll(strings.Replace(former, "a, model: scripted/demo", "a, model: none/demo", 1), "former", "new"), "former", "new"},
		"a tool of it has a mistake":  {strings.ReplaceAll(strings.Replace(former, "[wait]", "[wait, {use: calculate, aproval: always}]", 1), "former", "new"), "former", "new"},
		"its file is not YAML":        {"agents: [", "former", "former"},
		"its file is empty":           {"", "former", "former"},
		"its provider is gone":        {"agents:\n  - {name: a, model: scripted/demo, systemPrompt: new}\n", "former", ""},
		"it is no longer in its file": {"models: {scripted: {script: '" + hello + "'}}\nagents:\n  - {name: b, model: scripted/demo, systemPrompt: new}\n", "", "new"},
		"it is declared twice":        {strings.ReplaceAll(former, "former", "new") + "  - {name: a, model: scripted/demo}\n", "former", "new"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeText(t, filepath.Join(dir, "first.yaml"), "agents: [{name: good, model: own/demo}]\n")
			path := filepath.Join(dir, "second.yaml")
			writeText(t, path, former)
			r, c := newRegistry(t)
			if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: dir}, Peers{Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
			writeText(t, path, test.text)
			for range 2 { // a second reload keeps it as well
				if err := r.Reload(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for agent, want := range map[string]string{"a": test.a, "b": test.b} {
				got, err := resolve(t, c, agent)
				if want == "" && fault.ReasonOf(err) != "AGENT_NOT_FOUND" || want != "" && (err != nil || got.SystemPrompt != want) {
					t.Errorf("%s has the prompt %q, %v, want %q", agent, got.SystemPrompt, err, want)
				}
			}
			writeText(t, path, strings.ReplaceAll(former, "former", "repaired"))
			if err := r.Reload(t.Context()); err != nil || len(r.Problems()) > 0 {
				t.Fatalf("Reload = %v, problems = %v, want none", err, r.Problems())
			}
			if got, err := resolve(t, c, "a"); err != nil || got.SystemPrompt != "repaired" {
				t.Errorf("the repaired agent has the prompt %q, %v", got.SystemPrompt, err)
			}
		})
	}
}

func TestAKeptAgentKeepsItsMCPServers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	wordsFile(t, path, mcpServer(t), "x", "{mcp: words}")
	r, c := loadWords(t, path)
	for _, text := range []string{"agents: [", "agents: [{name: talker, model: none/x}]\n"} {
		writeText(t, path, text)
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.releaseEnded(func() []string { return nil })
		a, err := resolve(t, c, "talker")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, a, "say_shout"); err != nil {
			t.Errorf("%q: the agent that is served has lost its server: %v", text, err)
		}
	}
}

func TestAFileWithNothingToServeIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	writeText(t, path, "agents: [{name: a, model: none/x}]\n")
	r := New()
	err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path}, Peers{})
	if fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(err.Error(), "agents.yaml:1:") {
		t.Errorf("Load = %v, want AGENTS_INVALID with the line", err)
	}
	if _, err := NewCatalog(r, agent.Hooks{}, nil); err != nil {
		t.Errorf("NewCatalog = %v, want no error for an empty registry", err)
	}
}
