package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// brokenPart is a part that is out of service until it is repaired.
type brokenPart struct {
	kind, name, agent string // agent is empty for a part of several agents
	reason            string // a text in its reason
	file              string // with the part; second.yaml
	repaired          string // the file without the mistake; empty leaves the repair to repair
}

// brokenParts are of each kind. The tool servers are repaired by the function.
func brokenParts(t *testing.T) (parts []brokenPart, repair func()) {
	t.Helper()
	nothing := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "odd", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "fine", InputSchema: map[string]any{"type": "object"}}, nothing)
	server.AddTool(&mcp.Tool{Name: "odd", InputSchema: map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "int"}}}}, nothing)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	odd := httptest.NewServer(handler)
	t.Cleanup(odd.Close)
	t.Cleanup(odd.CloseClientConnections)
	var up atomic.Bool
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(down.Close)
	t.Cleanup(down.CloseClientConnections)
	one := func(name, fields string) string {
		return "agents:\n  - {name: " + name + ", model: scripted/sums, " + fields + "}\n"
	}
	served := func(name, url string) string {
		return "mcpServers: {" + name + ": {url: '" + url + "'}}\n" + one("of-"+name, "tools: [{mcp: "+name+"}]")
	}
	return []brokenPart{
			{"file", "file.yaml", "", "sequence end token", "agents: [", one("in-file", "tools: []")},
			{"provider", "openai", "falls-back", "OPENAI_API_KEY", one("falls-back", "fallbacks: [openai/x]"), one("falls-back", "tools: []")},
			{"mcpServer", "down", "", "Service Unavailable", served("down", down.URL+"/secret-path"), ""},
			{"tool", "odd/odd", "", `"int"`, served("odd", odd.URL), ""},
			{"tool", "wait", "clerk", "aproval", one("clerk", "tools: [calculate, {use: wait, aproval: always}]"), one("clerk", "tools: [calculate]")},
			{"agent", "lost", "", "nowhere", "agents:\n  - {name: lost, model: nowhere/x}\n", one("lost", "tools: []")},
			{"agent", "far", "", "elsewhere.example", "agents:\n  - {name: far, remote: {url: 'https://elsewhere.example', agent: x}}\n", one("far", "tools: []")},
		}, func() {
			up.Store(true)
			server.AddTool(&mcp.Tool{Name: "odd", InputSchema: map[string]any{"type": "object"}}, nothing)
		}
}

func TestABrokenPartOfEachKindIsNamedEverywhereAndTriedAgain(t *testing.T) { //nolint:paralleltest // metrics belong to the process: each system that starts takes them
	parts, repair := brokenParts(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("office.yaml", operatorAgents)
	for i, p := range parts {
		write(p.fileName(i), p.file)
	}
	metrics := freeAddress(t)
	o := openOffice(t, dir, t.TempDir(), "HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1", "HOLDFAST_EXECUTOR_TOOL_PRIVATE_HOSTS=127.0.0.1",
		"HOLDFAST_EXECUTOR_AGENTS_POLL=20ms", "HOLDFAST_METRICS_LISTEN="+metrics)

	o.awaits("OUT OF SERVICE", "agents", "list")
	listed := o.expects(0, []string{"sums", "clerk", "of-odd", "of-down"}, "agents", "list")
	examined := o.expects(1, []string{"fail  readiness", "fail  agents"}, "doctor")
	ready := o.do(t, http.MethodGet, "/readyz", "")
	api := o.get(t, o.url+"/agents") // the console shows this
	measured := o.get(t, "http://"+metrics+"/metrics")
	count := map[string]int{}
	for _, p := range parts {
		count[p.kind]++
		for place, text := range map[string]string{"agents list": listed, "doctor": examined} {
			if !strings.Contains(text, p.partName(dir)) || !strings.Contains(text, p.reason) {
				t.Errorf("%s = %s\nwant %q with %q", place, text, p.partName(dir), p.reason)
			}
		}
		if want := p.readyName(); !strings.Contains(ready, want) {
			t.Errorf("/readyz = %s, want %s in it", ready, want)
		}
		if !strings.Contains(api, fmt.Sprintf(`"kind":%q,"name":`, p.kind)) || !strings.Contains(api, p.name+`"`) {
			t.Errorf("/agents = %s, want %s in it", api, p.partName(dir))
		}
	}
	if !strings.Contains(ready, `"status":"ok"`) || strings.Contains(ready, "secret-path") || strings.Contains(ready, "aproval") || strings.Contains(ready, dir) {
		t.Errorf("/readyz = %s, want it ready, with the names of parts and without reasons and folders", ready)
	}
	for kind, n := range count {
		if !hasMetric(measured, "holdfast_executor_problems", fmt.Sprintf("kind=%q", kind), n) {
			t.Errorf("the metrics have no %d problems of the kind %s:\n%s", n, kind, measured)
		}
	}
	o.expects(1, []string{"aproval", "nowhere", "file.yaml"}, "agents", "check", dir)
	o.sends(t, "s", "clerk", "", "Which agent answers?")

	repair()
	for i, p := range parts {
		if p.repaired != "" {
			write(p.fileName(i), p.repaired)
		}
	}
	o.awaits("ok    readiness", "doctor")
	o.expects(0, []string{"far", "lost", "in-file"}, "agents", "list")
	if api := o.get(t, o.url+"/agents"); strings.Contains(api, "problems") {
		t.Errorf("/agents = %s, want no problems", api)
	}
	if measured := o.get(t, "http://"+metrics+"/metrics"); !hasMetric(measured, "holdfast_executor_problems", `kind="agent"`, 0) {
		t.Errorf("the metrics have problems still:\n%s", measured)
	}
}

func (p brokenPart) fileName(i int) string {
	if p.kind == "file" {
		return p.name
	}
	return fmt.Sprintf("part%d.yaml", i)
}

// partName names the part as the command line does.
func (p brokenPart) partName(dir string) string {
	text := p.kind + " " + p.name
	if p.kind == "file" {
		text = "file " + filepath.Join(dir, p.name)
	}
	if p.agent != "" {
		text += " of agent " + p.agent
	}
	return text
}

// readyName names the part as the public route does.
func (p brokenPart) readyName() string {
	text := fmt.Sprintf(`%s \"%s\"`, p.kind, p.name)
	if p.agent != "" {
		text += fmt.Sprintf(` of agent \"%s\"`, p.agent)
	}
	return text
}

// hasMetric reports whether a metric with a label has a value, in the format of Prometheus.
func hasMetric(text, name, label string, value int) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, name+"{") && strings.Contains(line, label) && strings.HasSuffix(line, fmt.Sprintf(" %d", value)) {
			return true
		}
	}
	return false
}

// get reads an address with the key of the office.
func (o *office) get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+o.key)
	answer, err := (&http.Client{Timeout: time.Minute}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
