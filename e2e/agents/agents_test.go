package agents_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// Limits of the processes that the test starts.
const (
	installLimit = 5 * time.Minute
	driveLimit   = 5 * time.Minute
)

// run runs a command in this folder and returns its output.
func run(t *testing.T, limit time.Duration, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, complaints.String(), out)
	}
	return out
}

// servePage serves the app and returns its address.
func servePage(t *testing.T, address string) {
	t.Helper()
	script := run(t, driveLimit, filepath.Join("node_modules", ".bin", "esbuild"), "app/main.jsx",
		"--bundle", "--format=esm", "--jsx=automatic", `--define:process.env.NODE_ENV="production"`, "--log-level=warning")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /main.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(script)
	})
	mux.Handle("GET /", http.FileServer(http.Dir("app")))
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// wantChecks compares the lines {check, got} with the expected values, as JSON.
func wantChecks(t *testing.T, out []byte, want [][2]string) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for _, w := range want {
		var line struct {
			Check string
			Got   json.RawMessage
		}
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &line) != nil || line.Check != w[0] {
			t.Fatalf("got %q, want the check %q", lines.Text(), w[0])
		}
		if got := string(line.Got); got != w[1] {
			t.Errorf("%s: got %s, want %s", w[0], got, w[1])
		}
	}
}

func TestTheClientsOfCloudflareAgentsWorkUnmodified(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v (e2e/setup installs it)", err)
	}
	demo, err := os.ReadFile("../../internal/demo/scripted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	run(t, installLimit, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	page, methods := harness.FreeAddress(t), harness.FreeAddress(t)
	servePage(t, page)
	s := harness.Start(t, harness.Options{
		Agents: string(demo), Gateways: 2, States: 2, StateEnv: []string{harness.PatientState},
		GatewayEnv: []string{"HOLDFAST_GATEWAY_EXECUTOR_ADDRESSES=" + methods, "HOLDFAST_GATEWAY_CORS_ORIGINS=http://" + page},
	})
	counter := s.Executor(t, "counter", harness.Program(t, "e2e/agents/testdata/counter"), "OPENAI_API_KEY=a-key")
	counter.ServeAt(methods)
	counter.Start()
	s.WaitAgent(t, "Counter")
	first, second := strings.TrimPrefix(s.At(0).URL, "http://"), strings.TrimPrefix(s.At(1).URL, "http://")

	wantChecks(t, run(t, driveLimit, "node", "--no-warnings", "node.mjs", first, second, harness.Key), [][2]string{
		{"identity", `["room","counter",true]`},
		{"state", `[{"count":2},{"count":2}]`},
		{"call", `3`},
		{"stub", `3`},
		{"stream", `["go",[3,2,1]]`},
		{"unknown method", `"Method missing does not exist"`},
		{"tool", `"Method lookup is not callable"`},
		{"read-only", `["Connection is readonly","Connection is readonly"]`},
		{"fetch", `{"agent":"counter","name":"room","sessionId":"Counter:room","state":{"count":3}}`},
		{"bad key", `[4401,"API_KEY_WRONG"]`},
		{"unknown agent", `[4404,"AGENT_NOT_FOUND"]`},
	})
	const story = `"Once there was a lighthouse whose keeper never slept. Every evening she wrote one line into the log: who had passed, and how far they had come.\nOne night the storm put out the lamp and threw the door from its hinges. In the morning another keeper found the book. The last line was finished; below it stood nothing.\nShe lit the lamp, took the pen, and went on at the next line. The ships never knew that there had been two."`
	twice := func(parts string) string { return "[" + parts + "," + parts + "]" }
	wantChecks(t, run(t, driveLimit, "node", "--no-warnings", "browser.mjs", chromium, "http://"+page, first, second, harness.Key), [][2]string{
		{"state", `["{\"colour\":\"green\"}","{\"colour\":\"green\"}"]`},
		{"answer in both tabs", twice(`["You said “Hello”. I only follow a script; say help to hear what it holds."]`)},
		{"reload in the middle", "[[" + story + "],[" + story + "],4,4]"},
		{"client tool", twice(`["This I cannot know by myself.","tool-ask_user output-available \"red\"","You said \"red\". I would have waited for that for a day, and needed no memory meanwhile."]`)},
		{"approval", twice(`["A sum. I have a tool for that.","Let me work that out.","tool-calculate output-available {\"value\":7006652}","That makes 7006652."]`)},
		{"after stop", `["You said “Hello again”. I only follow a script; say help to hear what it holds."]`},
		{"a tool of the page, fast", `[[2,1],[4,2],[6,3],[8,1]]`},
		{"a tool of the page, slow", `[[2,1],[4,2],[6,3],[8,1]]`},
		{"a tool of the page, burst", `[[2,1],[4,2],[6,3],[8,1]]`},
		{"cleared", `["{\"colour\":\"green\"}",[]]`},
		{"complaints", `[]`},
	})
}
