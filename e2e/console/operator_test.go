package console_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var rerecord = flag.Bool("record", false, "write the recording in testdata anew")

// act is what an operator does next, in the order of the fields, and what the page has to show before it is recorded.
type act struct {
	Because string `json:"-"`              // begins a chapter of the recording
	Tell    string `json:"tell,omitempty"` // happens elsewhere: reports to the test
	Go      string `json:"go,omitempty"`   // a path
	Row     string `json:"row,omitempty"`  // a text of the row or card that the link, field or button is in
	Open    string `json:"open,omitempty"` // the name of a link
	Choose  string `json:"choose,omitempty"`
	Fill    string `json:"fill,omitempty"` // the label of the field for Text
	Text    string `json:"text,omitempty"`
	Press   string `json:"press,omitempty"`
	Shows   string `json:"shows"`
	Without string `json:"without,omitempty"` // a text that must be gone
	Status  string `json:"status,omitempty"`  // of the session
}

// String tells what the operator does.
func (a act) String() string {
	var did []string
	say := func(format, value string) {
		if value != "" {
			did = append(did, fmt.Sprintf(format, value))
		}
	}
	say("sees, when %s", a.Tell)
	say("goes to %s", a.Go)
	say("opens %q", a.Open)
	if a.Choose != "" {
		say("chooses %s", a.Choose+": "+a.Text)
	}
	if a.Fill != "" {
		say("fills in %s", a.Fill+": "+a.Text)
	}
	say("presses %q", a.Press)
	return strings.Join(did, ", ")
}

// operatorAgents returns the agents file of the operator's test. Without the clerk, nobody serves the clerk's runs.
func operatorAgents(provider string, clerk bool) string {
	text := `
models:
  vendor: {provider: openai, baseURL: "` + provider + `/v1", apiKeyEnv: VENDOR_KEY}
  scripted:
    script: |
      models:
        slow:
          rules: [{reply: [{text: 'I begin.'}, {wait: 1h}, {text: 'I end.'}]}]
        clerk:
          rules: [{reply: 'Here I am.'}]
        writer:
          rules:
            - when: {toolResult: note}
              reply: 'It is written.'
            - reply: [{text: 'I note that.'}, {call: {name: note, arguments: {text: 'Rent is paid.'}}}]
agents:
  - {name: slow, model: scripted/slow}
  - {name: helper, model: vendor/gpt-x}
  - {name: writer, model: scripted/writer, tools: [{use: note, approval: always}]}
`
	if clerk {
		text += "  - {name: clerk, model: scripted/clerk}\n"
	}
	return text
}

func TestAnOperatorFindsAndEndsTroubleWithTheConsoleAlone(t *testing.T) {
	t.Parallel()
	var repaired atomic.Bool
	provider := harness.StartProvider(t, func(s *harness.Speech) {
		if !repaired.Load() {
			s.Refuse(401, "invalid_api_key")
			return
		}
		s.Text("Now I can answer.")
		s.End()
	})
	d := harness.StartDev(t, operatorAgents(provider.URL, true), "VENDOR_KEY=wrong", "HOLDFAST_EXECUTOR_AGENTS_POLL=200ms")
	finish(t, d.Client, "done", "clerk", "Are you there?", "completed")
	d.Kill()
	writeAgents(t, d, operatorAgents(provider.URL, false))
	d.Start()
	start(t, d.Client, "stuck", "slow", "Go")
	start(t, d.Client, "lost", "clerk", "Where are you?")
	finish(t, d.Client, "refused", "helper", "Hello", "failed")
	finish(t, d.Client, "asks", "writer", "Rent is paid.", "suspended_client_tool")
	acts := operatorActs()
	r := run(t, "operate", options{Gateway: d.URL, Acts: acts}, func(event string) {
		switch event {
		case keyRepaired:
			repaired.Store(true)
		case clerkDeployed:
			writeAgents(t, d, operatorAgents(provider.URL, true))
		}
	})
	checkRecording(t, "operator.txt", acts, r.Records)
}

// What happens outside of the console.
const (
	keyRepaired   = "the key of the vendor is repaired"
	clerkDeployed = "an executor with the clerk is deployed"
)

func operatorActs() []act {
	return []act{
		{Because: "A run does not end.", Go: "/console/sessions", Choose: "Status", Text: "Running", Shows: "stuck", Without: "done"},
		{Open: "stuck", Shows: "I begin."},
		{Open: "Timeline", Shows: "In the queue"},
		{Press: "Stop", Shows: "Finish", Status: "Stopped"},

		{Because: "A run does not begin: no executor serves its agent.", Go: "/console/agents", Shows: "none since"},
		{Go: "/console/sessions/lost", Shows: "no executor serves"},
		{Tell: clerkDeployed, Shows: "Here I am.", Status: "Completed"},

		{Because: "The key of a model provider is wrong.", Go: "/console/failures", Shows: "refused"},
		{Open: "refused", Shows: "provider_unauthenticated"},
		{Tell: keyRepaired, Press: "Retry", Shows: "Now I can answer.", Status: "Completed"},

		{Because: "A session waits for an approval.", Go: "/console/waiting", Shows: "waits for an approval"},
		{Row: "note", Fill: "Reason (optional)", Text: "I have checked it", Press: "Approve", Shows: "Approved."},
		{Row: "note", Open: "asks", Shows: "It is written.", Status: "Completed"},
	}
}

func writeAgents(t *testing.T, d *harness.Dev, text string) {
	t.Helper()
	if err := os.WriteFile(d.Agents, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var passing = regexp.MustCompile(`\bnow\b|\b\d+ (s|min|h|d) ago\b|\b(\d+ min )?[0-9.]+ (ms|s)\b|\b\d\d:\d\d:\d\d\b|\b[A-Z][a-z]{2} \d+, \d{4}, [0-9:]+\s[AP]M\b`)

// checkRecording compares what the operator did and saw with a file of testdata. Times have placeholders.
func checkRecording(t *testing.T, name string, acts []act, seen [][]string) {
	t.Helper()
	if len(seen) != len(acts) {
		t.Fatalf("%d pages were recorded, want %d", len(seen), len(acts))
	}
	var b strings.Builder
	for i, a := range acts {
		if a.Because != "" {
			fmt.Fprintf(&b, "# %s\n\n", a.Because)
		}
		fmt.Fprintf(&b, "The operator %v\n", a)
		for _, text := range seen[i] {
			fmt.Fprintf(&b, "  | %s\n", passing.ReplaceAllString(strings.Join(strings.Fields(text), " "), "<time>"))
		}
		b.WriteByte('\n')
	}
	file := filepath.Join("testdata", name)
	if *rerecord {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, b.String(), want)
	}
}
