package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestABrokenPartIsNamedEverywhereAndEverythingElseIsServed(t *testing.T) {
	t.Parallel()
	const broken = `
  - name: clerk
    model: scripted/sums
    tools: [calculate, {mcp: down}, {use: wait, aproval: always}]
  - {name: lost, model: nowhere/x}
`
	const server = "mcpServers: {down: {url: 'http://127.0.0.1:1/secret-path'}}\n"
	file := writeAgents(t, server+operatorAgents+broken)
	o := openOffice(t, file, t.TempDir(), "HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1", "HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS=127.0.0.1", "HOLDFAST_EXECUTOR_AGENTS_POLL=20ms")

	o.awaits("OUT OF SERVICE", "agents", "list")
	o.expects(0, []string{"clerk", "sums", "mcpServer down", "127.0.0.1:1: connect", "tool wait of agent clerk (1 executor)", "aproval", "agent lost", "nowhere"}, "agents", "list")
	o.expects(1, []string{"fail  readiness", `mcpServer "down"`, "fail  agents", "aproval"}, "doctor")
	o.expects(1, []string{"agents.yaml:", "aproval", "nowhere", "down"}, "agents", "check", file)
	ready := o.do(t, http.MethodGet, "/readyz", "")
	if !strings.Contains(ready, `"status":"ok"`) || !strings.Contains(ready, "out of service") || strings.Contains(ready, "secret-path") || strings.Contains(ready, "aproval") {
		t.Errorf("/readyz = %s, want it ready, with the names of parts and without reasons", ready)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url+"/agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+o.key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), `"kind":"mcpServer","name":"down","text":"`) {
		t.Errorf("/agents = %s, %v, want the server with its reason", body, err)
	}
	o.sends(t, "s", "clerk", "", "Which agent answers?")

	if err := os.WriteFile(file, []byte(operatorAgents), 0o600); err != nil {
		t.Fatal(err)
	}
	o.awaits("ok    readiness", "doctor")
}
