package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// everything is an MCP server from npm.
const everything = "../mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js"

// mcpFile declares an agent with the tools of two MCP servers: one over HTTP, and one over the standard input
// and output of a child.
func mcpFile(t *testing.T, url string) string {
	t.Helper()
	harness.InstallNPM(t, "../mcp")
	program, err := filepath.Abs(everything)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("PROGRAM", program, "ADDRESS", url).Replace(`
mcpServers:
  own: {url: "ADDRESS"}
  everything: {command: node, args: ["PROGRAM", stdio], include: [echo, trigger-long-running-operation]}
models:
  scripted:
    script: |
      models:
        caller:
          rules:
            - when: {lastRole: tool}
              reply: 'It said {{.LastResult}}.'
            - when: {lastUser: '^add'}
              reply: [{call: {name: add, arguments: {a: 2, b: 40}}}]
            - when: {lastUser: '^hang'}
              reply: [{call: {name: hang, arguments: {label: '{{.LastUser}}'}}}]
            - when: {lastUser: '^echo'}
              reply: [{call: {name: echo, arguments: {message: '{{.LastUser}}'}}}]
            - when: {lastUser: '^take long'}
              reply: [{call: {name: trigger-long-running-operation, arguments: {duration: 60, steps: 2}}}]
agents:
  - name: caller
    model: scripted/caller
    tools: [{mcp: own}, {mcp: everything}]
`)
}

func TestAYAMLAgentUsesMCPServersAndSurvivesTheirDeaths(t *testing.T) {
	t.Parallel()
	ledger := harness.StartLedger(t, nil)
	address := harness.FreeAddress(t)
	own := harness.StartProgram(t, "mcpserver", harness.Program(t, "e2e/executor/mcpserver"), address, "MCP_LISTEN="+address, "MCP_LEDGER="+ledger.URL)
	s := harness.Start(t, harness.Options{Agents: mcpFile(t, "http://"+address), ExecutorEnv: []string{
		"HOLDFAST_EXECUTOR_MCP_COMMANDS=node", "HOLDFAST_EXECUTOR_TOOL_HOSTS=" + address,
	}})
	checkCall(t, s, "add", "42")
	checkCall(t, s, "echo hello", "Echo: echo hello")

	t.Run("over HTTP", func(t *testing.T) {
		asking := s.Chat(t, "hang", "caller", "hang")
		ledger.Await(t, "hang")
		own.Kill()
		checkFailedCall(t, asking.ReadAll())
		own.Start()
		checkCall(t, s, "add again", "42")
	})
	t.Run("over standard input and output", func(t *testing.T) {
		child := childOf(t, s.Executors[0].PID(), "server-everything")
		before := read(t, child)
		asking := s.Chat(t, "long", "caller", "take long")
		harness.WaitFor(t, hangLimit, "the call to reach the server", func() (bool, string) {
			now := read(t, child)
			return now > before, fmt.Sprint(now)
		})
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Fatalf("kill the MCP server: %v", err)
		}
		checkFailedCall(t, asking.ReadAll())
		// A server that dies soon after its start is restarted with a delay.
		tries := 0
		harness.WaitFor(t, hangLimit, "calls to work again", func() (bool, string) {
			tries++
			answer := s.Chat(t, fmt.Sprint("again ", tries), "caller", "echo again").ReadAll()
			return strings.Contains(answer.Text(), "Echo: echo again"), answer.Content()
		})
	})
}

// checkCall makes a turn with one call and checks its result.
func checkCall(t *testing.T, s *harness.System, say, want string) {
	t.Helper()
	answer := s.Chat(t, "session of "+say, "caller", say).ReadAll()
	if !strings.Contains(answer.Content(), "output-available") || !strings.Contains(answer.Text(), want) {
		t.Errorf("%q: the answer is\n%s\nwant a result with %q", say, answer.Content(), want)
	}
}

// checkFailedCall checks an answer whose call failed: the run continued.
func checkFailedCall(t *testing.T, answer harness.UIMessage) {
	t.Helper()
	if !strings.Contains(answer.Content(), "output-error") || !strings.HasPrefix(answer.Text(), "It said ") {
		t.Errorf("the answer is\n%s\nwant a call that failed, and what the model says of it", answer.Content())
	}
}

// childOf finds the child process whose command line holds the text.
func childOf(t *testing.T, parent int, text string) int {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		status, err := os.ReadFile(folder + "/status")
		if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			continue // another parent's, or gone
		}
		if command, err := os.ReadFile(folder + "/cmdline"); err == nil && strings.Contains(string(command), text) {
			pid, err := strconv.Atoi(filepath.Base(folder))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("process %d has no child with %q in its command line", parent, text)
	return 0
}

// read returns how many bytes the process has read.
func read(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnAgentsFileMayNotAllowItselfToolServers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	// An agent that can be served without the servers would start.
	required := strings.ReplaceAll(mcpFile(t, "http://127.0.0.1:9/"), "{mcp: own}, {mcp: everything}", "{mcp: own, required: true}, {mcp: everything, required: true}")
	if err := os.WriteFile(file, []byte(required), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ allowed, refused string }{
		{"HOLDFAST_EXECUTOR_MCP_COMMANDS=npx", `"node" is not on the list of allowed commands`},
		{"HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1:10,example.com", "127.0.0.1:9"},
	} {
		said := harness.MustNotStart(t, "executor", "HOLDFAST_EXECUTOR_AGENTS="+file, "HOLDFAST_EXECUTOR_LISTEN="+harness.FreeAddress(t), test.allowed)
		if !strings.Contains(said, test.refused) {
			t.Errorf("with %s the executor says\n%s\nwant %q", test.allowed, said, test.refused)
		}
	}
}
