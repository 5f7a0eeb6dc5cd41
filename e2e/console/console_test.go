package console_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestARunThatBeginsAppearsInTheListAndItsAnswerGrowsOnItsPage(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	p := harness.StartProvider(t, func(s *harness.Speech) {
		for _, word := range []string{"One ", "two ", "three"} {
			s.Text(word)
		}
		if s.Await(seen) {
			s.Text(" and four.")
			s.End()
		}
	})
	d := harness.StartDev(t, remoteAgent(p.URL))
	r := run(t, "watch", options{Gateway: d.URL, Session: "s1", Half: "One two three", Answer: "One two three and four."}, func(moment string) {
		switch moment {
		case "list":
			start(t, d.Client, "s1", "teller", "story")
		case "half":
			close(seen)
		}
	})
	r.checkSeen(t, "whole", "story", "One two three and four.")
}

func TestTheListIsPagedSearchedAndFilteredAndOpensAnId(t *testing.T) {
	t.Parallel()
	const sessions = 60 // more than a page
	d := harness.StartDev(t, agents())
	for i := range sessions {
		start(t, d.Client, fmt.Sprintf("s%02d", i), "demo", "hello")
	}
	finish(t, d.Client, "broken", "demo", "fail", "failed")
	r := run(t, "list", options{Gateway: d.URL, Session: "s00"}, nil)
	r.checkSeen(t, "counts", "50", "61", "10", "1", "0")
	r.checkSeen(t, "path", "/console/sessions/s00")
}

func TestTheTimelineShowsAToolWithArgumentsAndResultAndItsUsageByKeyboard(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "s1", "demo", "What is 6 * 7?", "completed")
	r := run(t, "timeline", options{Gateway: d.URL, Session: "s1"}, nil)
	r.checkSeen(t, "arguments", `{ "expression": "6 * 7" }`)
	r.checkSeen(t, "results", `{ "value": 42 }`)
	r.checkSeen(t, "gantt", "Model call", "calculate")
	rows := r.Seen["rows"]
	if len(rows) != 2 || !strings.HasPrefix(rows[0], `1 calculate {"expression":"6 * 7"}`) || !strings.HasPrefix(rows[1], "2 That makes 42.") {
		t.Errorf("the steps are %q", rows)
	}
	if usage := r.Seen["usage"]; len(usage) != 2 || !strings.HasPrefix(usage[0], "scripted/demo ") || !strings.HasPrefix(usage[1], "calculate ") {
		t.Errorf("the usage of the step is %q", usage)
	}
}

func TestAnApprovalIsGivenOnThePageOfWaitingCallsAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "s1", "demo", "write it", "suspended_client_tool")
	r := run(t, "answer", options{Gateway: d.URL, Path: "/console/waiting", Answers: []callAnswer{{Tool: "note", Press: "Approve"}}}, nil)
	r.checkSeen(t, "done", "Approved.")
	d.WaitStatus(t, "s1", "completed")
	checkLastText(t, d.Client, "s1", "It is written.")
}

func TestACallIsDeniedWithAReasonAndAClientToolIsAnsweredWithJSON(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "deny", "demo", "write it", "suspended_client_tool")
	finish(t, d.Client, "ask", "demo", "ask me", "suspended_client_tool")
	r := run(t, "answer", options{Gateway: d.URL, Path: "/console/waiting", Width: 390, Height: 800, Answers: []callAnswer{
		{Tool: "note", Fill: "not today", Press: "Deny"},
		{Tool: "ask_user", Invalid: "in Rome", Fill: `{"city":"Rome"}`, Press: "Send result"},
	}}, nil)
	r.checkSeen(t, "done", "Denied.", "The result was sent.")
	d.WaitStatus(t, "deny", "completed")
	d.WaitStatus(t, "ask", "completed")
	checkLastText(t, d.Client, "deny", "It stays unwritten.")
	checkLastText(t, d.Client, "ask", `You answered {"city":"Rome"}.`)
	if a := d.Do(t, "GET", "/history?sessionId=deny&limit=1000", nil).Body; !strings.Contains(a, "not today") {
		t.Errorf("the history lacks the reason: %s", a)
	}
}

func TestAFailureIsListedWithItsCause(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "s1", "demo", "fail", "failed")
	finish(t, d.Client, "s2", "demo", "hello", "completed")
	r := run(t, "table", options{Gateway: d.URL, Path: "/console/failures", Name: "Failed sessions", Row: "s1"}, nil)
	rows := r.Seen["rows"]
	if len(rows) != 1 || !strings.Contains(rows[0], "The model refused the request. provider_invalid_request") {
		t.Errorf("the failures are %q", rows)
	}
}

func TestTheUsageIsShownByAgentModelAndUser(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "s1", "demo", "one two three", "completed") // words count as tokens
	for name, want := range map[string]string{"Tokens by agent": "demo", "Tokens by model": "scripted/demo", "Tokens by user": "ann"} {
		r := run(t, "table", options{Gateway: d.URL, Path: "/console/usage", Name: name, Row: want}, nil)
		r.checkSeen(t, "rows", want+" 3 0 5 8")
	}
}

func TestTheUsageHasCostsIfTheGatewayKnowsPrices(t *testing.T) {
	t.Parallel()
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(prices, []byte("currency: EUR\nmodels: {scripted/priced: {input: 1000000, output: 2000000}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := harness.StartDev(t, `
models:
  scripted:
    script: |
      models:
        priced: {rules: [{reply: 'five words are the answer'}]}
        other: {rules: [{reply: 'yes'}]}
agents:
  - {name: priced, description: Has a price., model: scripted/priced}
  - {name: other, description: Has none., model: scripted/other}
`, "HOLDFAST_GATEWAY_PRICES="+prices)
	finish(t, d.Client, "s1", "priced", "one two three", "completed") // words count as tokens
	finish(t, d.Client, "s2", "other", "hello", "completed")
	for name, want := range map[string]string{
		"Tokens by agent": "priced 3 0 5 8 13.00 EUR; other 1 0 1 2 0.00 EUR",
		"Tokens by model": "scripted/priced 3 0 5 8 13.00 EUR; scripted/other 1 0 1 2 no price",
		"Tokens by user":  "ann 4 0 6 10 13.00 EUR",
	} {
		r := run(t, "table", options{Gateway: d.URL, Path: "/console/usage", Width: 390, Height: 800, Name: name, Row: "EUR"}, nil)
		if got := strings.Join(r.Seen["rows"], "; "); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	run(t, "act", options{Gateway: d.URL, Steps: []step{
		{Go: "/console/usage", Shows: "The costs leave out models without a price: scripted/other."},
	}}, nil)
}

func TestThePartsThatAreOutOfServiceAreListedWithTheirReasons(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, `
mcpServers: {down: {url: 'http://127.0.0.1:1/'}}
models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}
agents:
  - {name: demo, model: scripted/demo, tools: [{mcp: down}, {use: wait, aproval: always}], fallbacks: [openai/x]}
  - {name: lost, model: nowhere/x}
`, "HOLDFAST_EXECUTOR_TOOL_HOSTS=127.0.0.1")
	r := run(t, "table", options{Gateway: d.URL, Path: "/console/agents", Name: "Out of service", Row: "mcpServer down"}, nil)
	rows := strings.Join(r.Seen["rows"], "\n")
	for part, reason := range map[string]string{
		"agent lost": "nowhere", "mcpServer down": "is not available", "provider openai of demo": "OPENAI_API_KEY", "tool wait of demo": "aproval",
	} {
		if !strings.Contains(rows, part) || !strings.Contains(rows, reason) {
			t.Errorf("the table is\n%s\nwant %s with %q", rows, part, reason)
		}
	}
}

func TestTheConnectedAgentsAreListed(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "s1", "demo", "fail", "failed")
	r := run(t, "table", options{Gateway: d.URL, Path: "/console/agents", Name: "Agents", Row: "Does sums"}, nil)
	rows := r.Seen["rows"]
	if want := "Does sums and repeats what you say. 1 0 1 0 1"; len(rows) != 3 || !strings.HasPrefix(rows[0], "demo") || !strings.HasSuffix(rows[0], want) {
		t.Errorf("the agents are %q, want 3, the first one with %q", rows, want)
	}
}

func TestAPersonLogsInWithAKeyAndIsLedBackWhenItIsRevoked(t *testing.T) {
	t.Parallel()
	const key = "the-key-of-a-person"
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeKeys(t, file, harness.Key, key)
	d := harness.Start(t, harness.Options{Agents: agents(), GatewayEnv: []string{"HOLDFAST_GATEWAY_API_KEYS=" + file}})
	r := run(t, "login", options{Gateway: d.URL, Keys: []string{"wrong", key}, Refused: true}, func(string) { writeKeys(t, file, harness.Key) })
	if got := r.Seen["refusals"]; len(got) != 1 || !strings.Contains(got[0], "API_KEY_WRONG") {
		t.Errorf("the wrong key was refused with %q", got)
	}
	if kept := strings.Join(r.Seen["kept"], " "); strings.Contains(kept, key) {
		t.Errorf("the key is kept outside of the session storage: %s", kept)
	}
}

func TestALongRunOpensAtItsNewestStepsWithASmallDocument(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents(), "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STREAM_BUS=memory", "HOLDFAST_LOG_LEVEL=warn")
	began := time.Now()
	finish(t, d.Client, "s1", "long", "go", "failed") // at its limit of steps
	t.Logf("%d steps in %v", *longSteps, time.Since(began).Round(time.Second))
	r := run(t, "long", options{Gateway: d.URL, Path: "/console/sessions/s1/timeline", Steps: *longSteps}, nil)
	t.Logf("opened in %v ms, %v rows, %v elements", r.Seen["opened"], r.Seen["rows"], r.Seen["nodes"])
	want := fmt.Sprintf("%d,%03d calculate", *longSteps/1000, *longSteps%1000)
	if got := r.Seen["newest"]; len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("the newest step is %q, want %q", got, want)
	}
	if got := r.Seen["oldest"]; len(got) != 1 || !strings.HasPrefix(got[0], "1 calculate") {
		t.Errorf("the oldest step is %q", got)
	}
	const most = 1500 // elements
	for _, name := range []string{"nodes", "nodesAfter"} {
		if n, err := strconv.Atoi(strings.Join(r.Seen[name], "")); err != nil || n > most {
			t.Errorf("%s: the document has %d elements, want at most %d (%v)", name, n, most, err)
		}
	}
}

func TestEveryPageIsAccessibleAndFitsWideAndNarrowInDarkAndLight(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "sum", "demo", "What is 6 * 7?", "completed")
	finish(t, d.Client, "fail", "demo", "fail", "failed")
	finish(t, d.Client, "write", "demo", "write it", "suspended_client_tool")
	finish(t, d.Client, "ask", "demo", "ask me", "suspended_client_tool")
	finish(t, d.Client, "help", "demo", "help", "completed")
	finish(t, d.Client, strings.Repeat("long-name", 20), "demo", strings.Repeat("long-word", 40), "completed")
	paths := []string{
		"/console/", "/console/sessions?status=failed&tag=blue", "/console/sessions/sum", "/console/sessions/sum/timeline", "/console/sessions/sum/details",
		"/console/sessions/fail", "/console/sessions/fail/timeline", "/console/sessions/write/timeline", "/console/sessions/help/timeline?step=1", "/console/sessions/help/details",
		"/console/sessions/" + strings.Repeat("long-name", 20), "/console/waiting", "/console/failures", "/console/usage", "/console/agents", "/console/nowhere",
		"/manual/", "/manual/quickstart", "/manual/configuration", "/manual/api",
	}
	for _, width := range []int{1280, 390} {
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprint(width, dark), func(t *testing.T) {
				t.Parallel()
				run(t, "visit", options{Gateway: d.URL, Width: width, Height: 850, Dark: dark, Paths: paths}, nil)
			})
		}
	}
}

func TestASubAgentIsShownWhereItsCallBeginsAndWhereItEnds(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "help", "demo", "help", "completed")
	r := run(t, "act", options{Gateway: d.URL, Steps: []step{
		{Go: "/console/sessions/help/timeline", Shows: "Helped: "},
		{Go: "/console/sessions/help/timeline?step=2", Shows: "Sub-agent helper:"},
		{Link: "Sub-agent helper", Status: "Completed", Shows: "You said: say something"},
	}}, nil)
	if paths := r.Seen["paths"]; strings.HasPrefix(paths[2], "/console/sessions/help") {
		t.Errorf("the link of the sub-agent leads to %s", paths[2])
	}
}

// remoteAgent returns an agents file whose agent's model is that of a provider.
func remoteAgent(url string) string {
	return fmt.Sprintf(`
models:
  openai: {baseURL: %q}
agents:
  - {name: teller, description: Tells what the provider says., model: openai/teller}
`, url)
}

func TestADiscardedAttemptIsShownWhileTheStepIsInFlight(t *testing.T) {
	t.Parallel()
	seen, shown := make(chan struct{}), make(chan struct{})
	p := harness.StartProvider(t, func(s *harness.Speech) {
		if s.Number == 1 {
			s.Text("Almost")
			s.Await(seen) // then the answer breaks off
			return
		}
		s.Text("Done")
		if s.Await(shown) {
			s.End()
		}
	})
	d := harness.StartDev(t, remoteAgent(p.URL))
	start(t, d.Client, "s1", "teller", "go")
	moments := map[string]chan struct{}{"seen": seen, "shown": shown}
	run(t, "act", options{Gateway: d.URL, Steps: []step{
		{Go: "/console/sessions/s1/timeline", Shows: "Almost"},
		{Tell: "seen", Shows: "Attempt 2 at step 1"},
		{Tell: "shown", Status: "Completed", Shows: "Done"},
	}}, func(moment string) { close(moments[moment]) })
}

func TestAPageSaysThatTheGatewayIsAwayAndGoesOnWhenItIsBack(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "first", "demo", "hello", "completed")
	r := run(t, "act", options{Gateway: d.URL, Steps: []step{
		{Shows: "first"},
		{Tell: "kill", Shows: "UNREACHABLE"},
		{Tell: "start", Open: "second", Shows: "You said: hello"},
	}, Refused: true}, func(moment string) {
		if moment == "kill" {
			d.Kill()
			return
		}
		d.Start()
		start(t, d.Client, "second", "demo", "hello")
	})
	if paths := r.Seen["paths"]; paths[2] != "/console/sessions/second" {
		t.Errorf("the pages were %q", paths)
	}
}

func TestTheColoursAreThoseOfTheSwitchAndStay(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "colours", options{Gateway: d.URL, Dark: true}, nil)
	got := r.Seen["grounds"]
	if len(got) != 4 || got[0] != got[1] || got[1] == got[2] || got[2] != got[3] {
		t.Errorf("system, dark, light and reloaded are %q; want the first two equal, and the last two", got)
	}
}

func TestASessionIsStoppedRetriedRewoundBranchedRunAgainAndDeleted(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	finish(t, d.Client, "fail", "demo", "fail", "failed")
	finish(t, d.Client, "sum", "demo", "What is 6 * 7?", "completed")
	r := run(t, "act", options{Gateway: d.URL, Steps: []step{
		{Tell: "wait", Open: "wait", Status: "Running"},
		{Press: "Stop", Status: "Stopped"},
		{Go: "/console/sessions/fail", Press: "Retry", Status: "Completed"},
		{Go: "/console/sessions/sum/timeline?step=1", Press: "Rewind to here…"},
		{Confirm: "Rewind", Status: "Paused"},
		{Press: "Branch from here", Moves: true, Status: "Paused"},
		{Go: "/console/sessions/sum", Press: "Run again…", Shows: "A new session begins with this prompt."},
		{Fill: "Prompt", Text: "hello there", Confirm: "Run", Moves: true, Shows: "You said: hello there"},
		{Go: "/console/sessions/sum", Press: "Delete…"},
		{Confirm: "Delete", Moves: true, Shows: "wait"},
		{Go: "/console/sessions/sum", Shows: "There is no such session."},
	}, Refused: true}, func(string) { start(t, d.Client, "wait", "demo", "wait") })
	if paths := r.Seen["paths"]; slices.Contains([]string{paths[5], paths[7]}, "/console/sessions/sum") || paths[9] != "/console/sessions" {
		t.Errorf("the pages were %q", paths)
	}
}

// writeKeys writes a keys file of the gateway.
func writeKeys(t *testing.T, file string, keys ...string) {
	t.Helper()
	var text strings.Builder
	for i, key := range keys {
		fmt.Fprintf(&text, "- {name: key%d, tenant: first, scopes: [operate], sha256: %x}\n", i, sha256.Sum256([]byte(key)))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Error(err)
	}
}

// checkLastText checks the end of the newest message.
func checkLastText(t *testing.T, c harness.Client, session, want string) {
	t.Helper()
	messages := c.Messages(t, session)
	parts := messages[len(messages)-1].Parts
	if got := parts[len(parts)-1].Text; got != want {
		t.Errorf("%s ends with %q, want %q", session, got, want)
	}
}
