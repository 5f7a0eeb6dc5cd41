package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/process"
)

var rerecord = flag.Bool("record", false, "write the recordings in testdata anew")

// operatorAgents are an agent that is slow, one that asks before it does sums, and one that fails.
const operatorAgents = `
models:
  scripted:
    script: |
      models:
        slow:
          rules: [{reply: [{text: 'I begin.'}, {wait: 1h}, {text: 'I end.'}]}]
        broken:
          rules: [{reply: [{error: {code: provider_invalid_request}}]}]
        sums:
          rules:
            - when: {toolFailed: calculate, lastUser: '\d'}
              reply: 'They refuse.'
            - when: {toolResult: calculate, lastUser: '\d'}
              reply: 'It is {{field .LastResult "value"}}.'
            - when: {toolResult: ask, lastUser: 'here'}
              reply: 'You are in {{.LastResult}}.'
            - when: {lastUser: 'here'}
              reply: [{call: {name: ask, arguments: {}}}]
            - reply: [{text: 'Let me see.'}, {call: {name: calculate, arguments: {expression: '6 * 7'}}}]
agents:
  - {name: broken, model: scripted/broken, description: Fails.}
  - name: sums
    model: scripted/sums
    description: Does sums, but asks first.
    tools:
      - {use: calculate, approval: always}
      - {name: ask, description: Asks where the user is., client: true, inputSchema: {type: object}}
`

const slowAgent = `
  - {name: slow, model: scripted/slow, description: Takes an hour.}
`

// writeAgents writes the agents, and returns their file.
func writeAgents(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// desk is where an operator types commands. It records them with what they print and their exit codes.
type desk struct {
	t       *testing.T
	environ []string
	record  strings.Builder
	ids     map[string]string // placeholders of ids
	secrets map[string]string // placeholders of other texts
}

func newDesk(t *testing.T, environ ...string) *desk {
	return &desk{t: t, environ: environ, ids: map[string]string{}, secrets: map[string]string{}}
}

// types runs a command, and returns what it prints and its exit code.
func (d *desk) types(args ...string) (output string, code int) {
	d.t.Helper()
	return d.answers("", args...)
}

// answers runs a command with a person at the terminal who types the lines; nobody for an empty text.
func (d *desk) answers(typed string, args ...string) (output string, code int) {
	d.t.Helper()
	var out bytes.Buffer
	t := &cli.Terminal{In: strings.NewReader(typed), Out: &out, Err: &out, Environ: d.environ, Asks: typed != ""}
	err := execute(d.t.Context(), t, args)
	if err != nil {
		fmt.Fprintf(&out, "holdfast: %v\n", err)
	}
	code = process.ExitCode(err)
	line := make([]string, len(args))
	for i, arg := range args {
		if line[i] = arg; strings.Contains(arg, " ") {
			line[i] = "'" + arg + "'"
		}
	}
	fmt.Fprintf(&d.record, "$ holdfast %s\n%s[exit %d]\n\n", strings.Join(line, " "), out.String(), code)
	return out.String(), code
}

// expects runs a command that must end with the code and print the texts.
func (d *desk) expects(code int, texts []string, args ...string) string {
	d.t.Helper()
	got, ended := d.types(args...)
	if ended != code {
		d.t.Errorf("holdfast %s: exit code %d, want %d\n%s", strings.Join(args, " "), ended, code, got)
	}
	for _, want := range texts {
		if !strings.Contains(got, want) {
			d.t.Errorf("holdfast %s: no %q in\n%s", strings.Join(args, " "), want, got)
		}
	}
	return got
}

// awaits repeats a command until it prints the text, and records the last time.
func (d *desk) awaits(text string, args ...string) string {
	d.t.Helper()
	before := d.record.String()
	for deadline := time.Now().Add(limit); ; {
		d.record.Reset()
		d.record.WriteString(before)
		got, _ := d.types(args...)
		if strings.Contains(got, text) {
			return got
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("holdfast %s: no %q in\n%s", strings.Join(args, " "), text, got)
		}
	}
}

var (
	randomID = regexp.MustCompile(`(?:\b|_)[a-z2-7]{26}\b`)
	duration = regexp.MustCompile(`\b([0-9.]+(ms|µs|m|h|d|s))+\b`)
	moment   = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`)
	blanks   = regexp.MustCompile(`(\S) {2,}`)
)

// matches compares the record with a file of testdata. Ids, times and durations have placeholders.
func (d *desk) matches(name string) {
	d.t.Helper()
	got := randomID.ReplaceAllStringFunc(d.record.String(), func(id string) string {
		if d.ids[id] == "" {
			d.ids[id] = fmt.Sprintf("_ID%d", len(d.ids)+1)
		}
		return d.ids[id]
	})
	for text, placeholder := range d.secrets {
		got = strings.ReplaceAll(got, text, placeholder)
	}
	got = moment.ReplaceAllString(duration.ReplaceAllString(got, "<time>"), "<moment>")
	got = blanks.ReplaceAllString(got, "$1  ")
	file := filepath.Join("testdata", name)
	if *rerecord {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	if want := string(read(d.t, file)); got != want {
		d.t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// office is a system with API keys, and a desk whose key may do everything.
type office struct {
	*running
	*desk
	key, keys string // the key, and the file with its hash
	variables []string
}

// openOffice starts the system with further variables.
func openOffice(t *testing.T, agents, data string, variables ...string) *office {
	t.Helper()
	o := &office{keys: filepath.Join(t.TempDir(), "keys.yaml"), variables: variables}
	made, code := newDesk(t).types("keys", "new", "--tenant", "acme", "--name", "ops", "--scopes", "admin", "--file", o.keys)
	if code != 0 {
		t.Fatalf("no key: %s", made)
	}
	o.key, o.desk = strings.TrimSpace(made), newDesk(t)
	o.opens(t, agents, data)
	return o
}

// opens starts the system with other agents. The former one must have ended.
func (o *office) opens(t *testing.T, agents, data string) {
	t.Helper()
	o.running = startWith(t, append([]string{
		"HOLDFAST_GATEWAY_API_KEYS=" + o.keys, "HOLDFAST_STATE_ORPHANED_AFTER=100ms", "HOLDFAST_STATE_EXPIRE_EVERY=100ms",
		"HOLDFAST_GATEWAY_TOKEN_SECRET=" + strings.Repeat("s", 32),
	}, o.variables...), "--data", data, "--agents", agents)
	o.environ = []string{cli.URLVariable + "=" + o.url, cli.KeyVariable + "=" + o.key}
	o.secrets[o.url] = "<gateway>"
}

// sends starts a run with a message.
func (o *office) sends(t *testing.T, session, agentType, user, message string) {
	t.Helper()
	body := fmt.Sprintf(`{"sessionId":%q,"agentType":%q,"userId":%q,"message":%q}`, session, agentType, user, message)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url+"/start", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+o.key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("start a run of %s: %s", agentType, answer.Status)
	}
}

// waitingCall returns the id of the call that a session, or one below it, waits for.
func (o *office) waitingCall(t *testing.T, session string) string {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		text, _ := (&desk{t: t, environ: o.environ}).types("calls", "list", "--json")
		var calls []struct{ SessionID, RootSessionID, ToolCallID string }
		if err := json.Unmarshal([]byte(text), &calls); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		for _, c := range calls {
			if c.SessionID == session || c.RootSessionID == session {
				return c.ToolCallID
			}
		}
	}
	t.Fatalf("session %s waits for no call", session)
	return ""
}

func TestAnOperatorFindsAndEndsWhatIsStuckWithTheCommandLine(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	o := openOffice(t, writeAgents(t, operatorAgents+slowAgent), data)
	o.sends(t, "stuck", "slow", "ann", "Go")
	o.sends(t, "asks", "sums", "ben", "What is 6 * 7?")

	// A run is stuck: it is found and stopped.
	o.awaits("its run has been executing", "sessions", "show", "stuck")
	o.expects(0, []string{"running", "key:ops"}, "runs", "list", "stuck")
	o.expects(0, []string{"stopped run"}, "runs", "stop", "stuck", "--reason", "it takes too long")
	o.expects(0, []string{"interrupted", "it takes too long"}, "sessions", "show", "stuck")
	o.expects(0, []string{"stopped session"}, "runs", "stop", "stuck")

	// A session waits for an approval: it is found and approved.
	call := o.waitingCall(t, "asks")
	o.expects(0, []string{"an approval", "sums", "ben", `{"expression":"6 * 7"}`}, "calls", "list", "--user", "ben")
	o.expects(0, []string{"it waits for an answer to 1 call"}, "sessions", "show", "asks")
	o.expects(3, []string{"UNKNOWN_TOOL_CALL"}, "calls", "approve", "asks", "call_9")
	o.expects(5, []string{"SESSION_SUSPENDED"}, "runs", "retry", "asks")
	o.expects(0, []string{"accepted: run", "continues"}, "calls", "approve", "asks", call, "--reason", "it is a small sum")
	o.expects(0, []string{"It is 42.", "completed"}, "runs", "watch", "asks")
	o.expects(3, []string{"UNKNOWN_TOOL_CALL"}, "calls", "approve", "asks", call)

	// The executors have lost an agent: its run is queued for ever.
	o.end(t)
	o.opens(t, writeAgents(t, operatorAgents), data)
	o.sends(t, "lost", "slow", "", "Go")
	o.awaits(`no executor serves the agent "slow"`, "sessions", "show", "lost")
	o.expects(0, []string{"stopped run"}, "runs", "stop", "lost", "--abort")
	o.expects(0, []string{"lost"}, "sessions", "list", "--status", "failed")
	o.expects(0, []string{"deleted 1"}, "sessions", "delete", "lost")
	o.expects(3, []string{"SESSION_NOT_FOUND"}, "sessions", "show", "lost")

	// The key is wrong.
	o.expects(4, []string{"--key or HOLDFAST_API_KEY"}, "sessions", "list", "--key", "wrong")
	o.matches("operator.txt")
}

func TestAnOperatorSaysHowLongASessionWaits(t *testing.T) {
	t.Parallel()
	o := openOffice(t, writeAgents(t, operatorAgents), t.TempDir())
	o.sends(t, "forgotten", "sums", "ben", "What is 6 * 7?")
	o.waitingCall(t, "forgotten")
	o.expects(0, []string{"session forgotten never expires"}, "sessions", "expire", "forgotten", "--never")
	if got := o.expects(0, nil, "sessions", "show", "forgotten"); strings.Contains(got, "expires") {
		t.Errorf("it expires: %s", got)
	}
	o.expects(0, []string{"session forgotten expires at 2"}, "sessions", "expire", "forgotten", "--in", "72h")
	o.expects(0, []string{"expires", "it waits for an answer to 1 call"}, "sessions", "show", "forgotten")
	o.expects(2, []string{"--in must be 0s or more"}, "sessions", "expire", "forgotten", "--in", "-1s")
	o.expects(2, []string{"DURATION_INVALID"}, "sessions", "expire", "forgotten", "--in", "1s", "--never")
	o.expects(3, []string{"SESSION_NOT_FOUND"}, "sessions", "expire", "unknown")
	o.expects(0, []string{`"sessionId": "forgotten"`, `"expiresAt"`}, "sessions", "expire", "forgotten", "--json")
	o.awaits("session_expired", "sessions", "show", "forgotten")
	o.expects(5, []string{"SESSION_ENDED", "is failed already"}, "sessions", "expire", "forgotten")
	o.expects(0, []string{"session.expiry_set", "key:ops"}, "audit", "--session", "forgotten")

	o.expects(0, []string{"session forgotten has version"}, "sessions", "state", "forgotten", "--set", `plan="free"`, "--append", "seen=[1]", "--set", "draft=1", "--delete", "draft", "--append", "seen=[2]")
	o.expects(0, []string{`"plan":"free"`, `"seen":[1,2]`}, "sessions", "state", "forgotten")
	o.expects(0, []string{`"version"`}, "sessions", "state", "forgotten", "--set", "plan=null", "--json")
	o.expects(2, []string{"STATE_INVALID"}, "sessions", "state", "forgotten", "--set", "plan=free")
	o.expects(5, []string{"VERSION_STALE"}, "sessions", "state", "forgotten", "--set", "plan=1", "--version", "1")
	o.expects(0, nil, "sessions", "store", "forgotten", "--delete", "orders/o-1")
	o.expects(0, nil, "sessions", "store", "forgotten", "--prefix", "orders/")
	o.expects(0, []string{`"entries"`}, "sessions", "store", "forgotten", "orders/o-1", "--json")
	o.expects(5, []string{"STATUS_UNEXPECTED", "is failed"}, "sessions", "set-status", "forgotten", "completed", "--if", "active,paused")
	o.expects(0, []string{"session forgotten is paused"}, "sessions", "set-status", "forgotten", "paused", "--if", "failed")
	o.expects(2, []string{"FAILURE_MISSING"}, "sessions", "set-status", "forgotten", "failed")
	o.expects(0, []string{`"newVersion"`}, "sessions", "set-status", "forgotten", "failed", "--error", "Refused.", "--code", "policy", "--json")
	o.expects(0, []string{"Refused. (policy)"}, "sessions", "show", "forgotten")
	o.expects(0, []string{"session.status_set", "state.changed", "store.changed"}, "audit", "--session", "forgotten")

	o.expects(0, []string{"LAST USED", "ops", "admin", "never", "ago"}, "keys", "list")
	o.expects(0, []string{`"name": "ops"`, `"lastUsedAt"`}, "keys", "list", "--json")
}

func TestUsageHasItsCosts(t *testing.T) {
	t.Parallel()
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	text := "currency: EUR\nmodels: {scripted/sums: {input: 1000000, output: 2000000}}\n"
	if err := os.WriteFile(prices, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := openOffice(t, writeAgents(t, operatorAgents+slowAgent), t.TempDir(), "HOLDFAST_GATEWAY_PRICES="+prices)
	o.sends(t, "asks", "sums", "ben", "What is 6 * 7?")
	o.expects(0, []string{"accepted"}, "calls", "approve", "asks", o.waitingCall(t, "asks"))
	o.expects(0, []string{"It is 42."}, "runs", "watch", "asks")
	for _, by := range []string{"agent", "model", "user"} {
		var rows []struct {
			PromptTokens, CompletionTokens, Cost float64
			Currency                             string
		}
		got := o.expects(0, nil, "usage", "--by", by, "--json")
		if err := json.Unmarshal([]byte(got), &rows); err != nil || len(rows) != 1 {
			t.Fatalf("by %s: %v in %s", by, err, got)
		}
		if r := rows[0]; r.Cost != r.PromptTokens+2*r.CompletionTokens || r.Cost == 0 || r.Currency != "EUR" {
			t.Errorf("by %s: got %+v, want the prices of %s", by, r, text)
		}
		o.expects(0, []string{"COST EUR"}, "usage", "--by", by)
	}
	o.expects(0, []string{" EUR"}, "sessions", "show", "asks")
	if err := os.WriteFile(prices, []byte("currency: EUR\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.end(t)
	o.opens(t, writeAgents(t, operatorAgents), t.TempDir())
	o.sends(t, "asks", "sums", "ben", "What is 6 * 7?")
	o.waitingCall(t, "asks")
	o.expects(0, []string{"0.0000", "without a price: scripted/sums"}, "usage")
}
