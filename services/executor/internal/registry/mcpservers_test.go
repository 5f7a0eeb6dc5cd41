package registry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
)

type word struct {
	Word string `json:"word"`
}

// mcpServer serves two tools over streamable HTTP.
func mcpServer(t *testing.T) (url string) {
	t.Helper()
	served := httptest.NewServer(mcpHandler())
	t.Cleanup(served.Close)
	return served.URL
}

func mcpHandler() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "words", Version: "1"}, nil)
	for _, name := range []string{"shout", "whisper"} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "Says a word."}, func(_ context.Context, _ *mcp.CallToolRequest, in word) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " " + in.Word}}}, nil, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
}

// wordsFile writes a file with an agent that has tools of the server.
func wordsFile(t *testing.T, path, url, prompt, tools string) {
	t.Helper()
	err := os.WriteFile(path, []byte(`
models: {scripted: {script: '`+hello+`'}}
mcpServers:
  words: {url: "`+url+`", prefix: say_, safe: [whisper]}
agents:
  - {name: talker, model: scripted/demo, systemPrompt: `+prompt+`, tools: [`+tools+`]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
}

const allowed = "127.0.0.1"

func loadWords(t *testing.T, path string) (*Registry, *Catalog) {
	t.Helper()
	r, c := newRegistry(t)
	if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path, ToolHosts: []string{allowed}}, Peers{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, c
}

func toolNames(a catalog.Agent) (names []string) {
	for _, t := range a.Tools {
		names = append(names, t.Name)
	}
	return names
}

// call calls the tool of an agent.
func call(t *testing.T, a catalog.Agent, tool string) (any, error) {
	t.Helper()
	i := slices.IndexFunc(a.Tools, func(t agent.Tool) bool { return t.Name == tool })
	if i < 0 {
		t.Fatalf("there is no tool %q in %q", tool, toolNames(a))
	}
	return a.Tools[i].Execute(t.Context(), &agent.Call{ID: "c", Tool: tool, Input: []byte(`{"word":"hi"}`)})
}

func TestAnAgentHasTheToolsOfAnMCPServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	wordsFile(t, path, mcpServer(t), "x", "{mcp: words, approval: always, timeout: 5s}, calculate")
	_, c := loadWords(t, path)
	a, err := resolve(t, c, "talker")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := toolNames(a), []string{"calculate", "say_shout", "say_whisper"}; !slices.Equal(got, want) {
		t.Fatalf("tools = %q, want %q", got, want)
	}
	shout, whisper := a.Tools[1], a.Tools[2]
	if !shout.Approval || shout.Timeout != 5*time.Second || shout.Retry == agent.RetrySafe || whisper.Retry != agent.RetrySafe {
		t.Errorf("tools = %+v and %+v, want what the agent and the server's declaration say", shout, whisper)
	}
	got, err := call(t, a, "say_shout")
	if err != nil || !strings.Contains(toJSON(t, got), "shout hi") {
		t.Errorf("the call gives %v, %v", got, err)
	}
}

func TestAReloadKeepsServersThatStayAndClosesOthersBehindTheirLastRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	url := mcpServer(t)
	wordsFile(t, path, url, "first", "{mcp: words, tools: [say_shout]}")
	r, c := loadWords(t, path)
	connected := r.servers.list[0]

	runs := []string{"r"}
	live, err := resolve(t, c, "talker")
	if err != nil || len(live.Tools) != 1 {
		t.Fatalf("Resolve = %q, %v", toolNames(live), err)
	}
	wordsFile(t, path, url, "second", "{mcp: words}")
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.servers.list) != 1 || r.servers.list[0] != connected {
		t.Error("the reload has connected again, want the session that there was")
	}

	agentsFile(t, path, "without a server")
	if err := r.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.releaseEnded(func() []string { return runs })
	if _, err := call(t, live, "say_shout"); err != nil {
		t.Errorf("a live run has lost its tool: %v", err)
	}
	runs = nil
	(&Catalog{registry: r}).releaseEnded(func() []string { return runs }) // another executor's runs
	if len(r.servers.list) != 1 {
		t.Error("another executor has ended the run's server")
	}
	c.releaseEnded(func() []string { return runs })
	deadline := time.After(90 * time.Second)
	for {
		_, err := call(t, live, "say_shout")
		if fault.ReasonOf(err) == "MCP_UNAVAILABLE" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after its last run the server is not closed: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAnMCPServerThatTheProcessDoesNotAllowIsAMistake(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	text := `models: {scripted: {script: '` + hello + `'}}
mcpServers:
  shell: {command: sh, args: [-c, "touch hacked"]}
  web:
    url: http://127.0.0.1:1/mcp
    prefixx: a
agents:
  - {name: a, model: scripted/demo, tools: [{mcp: shel}, {mcp: shell, tools: [x]}], providerOptions: {scripted: {}, openai: {}}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := newRegistry(t)
	if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path}, Peers{LookupEnv: lookupIn([]string{"HOLDFAST_EXECUTOR_MCP_COMMANDS=sh"})}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(r.Diagnose(), "\n")
	for _, want := range []string{
		`:3:11: MCP server "shell": command: "sh" is not on the list of allowed commands`,
		`:6:5: MCP server "web": there is no field "prefixx"; did you mean "prefix"?`,
		`:8:46: agent "a": MCP server "shel": there is no such server under mcpServers; known: shell, web; did you mean "shell"?`,
		`agent "a": providerOptions.openai has no effect: the providers of its models are scripted`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("problems = %s\nwant them to have %q", got, want)
		}
	}
	if got := r.Types(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("types = %q, want the agent without the servers", got)
	}
}

func TestAServerThatDoesNotAnswerIsReportedWhenItsFileIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	wordsFile(t, path, "http://127.0.0.1:1/", "x", "{mcp: words}")
	r, _ := newRegistry(t)
	if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path, ToolHosts: []string{allowed}}, Peers{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	got := r.Problems()
	if len(got) != 1 || got[0].Kind != "mcpServer" || got[0].Name != "words" || !strings.HasPrefix(got[0].Text, `the MCP server "words" is not available`) {
		t.Errorf("problems = %v, want that the server is not available", got)
	}
	if got := r.Types(); !slices.Equal(got, []string{"talker"}) {
		t.Errorf("types = %q, want the agent without the server", got)
	}
}

func TestAChildOfAFileHasPathAndHomeAndNothingElseOfTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agents.yaml")
	text := `models: {scripted: {script: '` + hello + `'}}
mcpServers: {shell: {command: sh, args: [-c, "env > env.txt"], dir: .}}
agents: [{name: a, model: scripted/demo, tools: [{mcp: shell}]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ := newRegistry(t)
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere", "OPENAI_API_KEY=secret"}
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Load(t.Context(), AgentsConfig{AgentsFiles: path, FileEnv: []string{"*_KEY"}, MCPCommands: []string{"sh"}}, Peers{LookupEnv: lookupIn(environ)}); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "env.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range environ[:2] {
		if !slices.Contains(strings.Split(string(written), "\n"), want) {
			t.Errorf("the child does not have %s", want)
		}
	}
	for line := range strings.SplitSeq(string(written), "\n") {
		switch name, _, _ := strings.Cut(line, "="); name {
		case "PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "": // the rest is the shell's own
		default:
			t.Errorf("the child has %s", name)
		}
	}
}
