// Package agents_test loads the examples.
package agents_test

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/services/executor"
)

// program starts the MCP server of the examples. In the tests it resolves to the test binary, which acts as the
// server.
const program = "npx"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == program {
		serveFiles()
		return
	}
	os.Exit(m.Run())
}

// path is the input of the tools.
type path struct {
	Path string `json:"path"`
}

// serveFiles is an MCP server with the tools of the example's server.
func serveFiles() {
	server := mcp.NewServer(&mcp.Implementation{Name: "files", Version: "1"}, nil)
	for _, name := range []string{"read_text_file", "list_directory", "write_file", "move_file"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, path) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}

func load(t *testing.T, c executor.AgentsConfig) []string {
	t.Helper()
	agents := executor.NewRegistry()
	err := agents.Load(t.Context(), c, executor.RegistryPeers{LookupEnv: func(name string) (string, bool) {
		if name == "OPENAI_API_KEY" {
			return "a key", true
		}
		return os.LookupEnv(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agents.Close() })
	return agents.Types()
}

func TestTheExamplesLoad(t *testing.T) {
	t.Parallel()
	got := load(t, executor.AgentsConfig{AgentsFiles: "agents.yaml", ToolHosts: []string{"api.open-meteo.com"}})
	if want := []string{"assistant", "echo", "treasurer", "triage"}; !slices.Equal(got, want) {
		t.Errorf("agents = %q, want %q", got, want)
	}
}

func TestTheExampleOfAnMCPServerLoads(t *testing.T) { // not parallel: it sets PATH
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, program)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	got := load(t, executor.AgentsConfig{AgentsFiles: "librarian.yaml", MCPCommands: []string{program}})
	if want := []string{"librarian"}; !slices.Equal(got, want) {
		t.Errorf("agents = %q, want %q", got, want)
	}
}
