package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
)

func TestAChatAsksForApprovalsAndResultsInTheTerminal(t *testing.T) {
	t.Parallel()
	o := openOffice(t, writeAgents(t, operatorAgents), t.TempDir())
	typed := strings.Join([]string{"What is 6 * 7?", "perhaps", "y", "And where am I?", "Rome", "And 6 * 7?", "n not today"}, "\n") + "\n"
	got, code := o.answers(typed, "chat", "sums", "--session", "talk")
	at := 0
	for _, want := range []string{
		"session talk", "Let me see.", `? run calculate {"expression":"6 * 7"}? y, or n and a reason: ? run calculate`, "It is 42.",
		"? result of ask {}: ", `You are in "Rome".`, "? run calculate", "reject not today", "They refuse.",
	} {
		i := strings.Index(got[at:], want)
		if i < 0 {
			t.Fatalf("no %q behind the first %d bytes of\n%s", want, at, got)
		}
		at += i
	}
	if code != 0 {
		t.Errorf("the chat ends with %d, want 0", code)
	}
}

func TestAChatPrintsTheAnswerAloneToStandardOutput(t *testing.T) {
	t.Parallel()
	r := start(t, "--data", t.TempDir())
	var out, notes bytes.Buffer
	err := run(t.Context(), []string{"chat", "demo", "--url", r.url, "-m", "What is 6 * 7?"}, nil, &out, &notes)
	if want := "Let me work that out.\nThat makes 42.\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v; want %q", out.String(), err, want)
	}
	for _, want := range []string{"A sum.", `> calculate {"expression":"6 * 7"}`, "completed"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("no %q in\n%s", want, notes.String())
		}
	}
}

func TestAChatAsksForApprovalsOfSubAgentsAndShowsTheAnswerOfTheRoot(t *testing.T) {
	t.Parallel()
	o := openOffice(t, writeAgents(t, treeAgents), t.TempDir())
	got, code := o.answers("y\n", "chat", "boss", "-m", "Go")
	for _, want := range []string{"> sub-agent manager in session", `? run calculate {"expression":"6 * 7"}?`, "The boss says: The manager says: It is 42.", "completed"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if code != 0 {
		t.Errorf("the chat ends with %d, want 0", code)
	}
	o.expects(5, []string{"holdfast calls approve tree call_"}, "chat", "boss", "--session", "tree", "-m", "Go")
	o.expects(0, []string{"it waits for 1 sub-session; an answer to 1 call", "SUB-SESSION"}, "sessions", "show", "tree")
	o.expects(0, nil, "calls", "deny", "tree", o.waitingCall(t, "tree"), "--reason", "no sums")
	o.expects(0, []string{"The boss says: The manager says: They refuse."}, "runs", "watch", "tree")
}

func TestAChatWithoutAPersonPrintsHowToAnswer(t *testing.T) {
	t.Parallel()
	o := openOffice(t, writeAgents(t, operatorAgents), t.TempDir())
	o.expects(5, []string{"Let me see.", "holdfast calls approve 'piped & one' call_", "SESSION_WAITS"}, "chat", "sums", "--session", "piped & one", "-m", "What is 6 * 7?")
	var out bytes.Buffer
	pipe := &cli.Terminal{In: strings.NewReader("Where am I?\n"), Out: &out, Err: &out, Environ: o.environ}
	err := execute(t.Context(), pipe, []string{"chat", "sums", "--session", "piped-two"})
	if fault.ReasonOf(err) != "SESSION_WAITS" || !strings.Contains(out.String(), "holdfast calls answer piped-two call_") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
	o.expects(0, []string{"accepted"}, "calls", "answer", "piped-two", o.waitingCall(t, "piped-two"), "--result", `"Rome"`)
	o.expects(0, []string{`You are in "Rome".`}, "runs", "watch", "piped-two")
	o.expects(0, []string{`"status": "completed"`}, "runs", "show", "piped-two", "--json")
	for reason, args := range map[string][]string{
		"MESSAGE_MISSING": {"chat", "sums"},
		"AGENT_NOT_FOUND": {"chat", "nobody", "-m", "hello"},
		"ANSWER_INVALID":  {"calls", "answer", "s", "c", "--result", "Rome"},
		"KIND_MISMATCH":   {"calls", "answer", "piped & one", o.waitingCall(t, "piped & one"), "--result", "1"},
	} {
		if err := run(t.Context(), args, o.environ, &out, &out); fault.ReasonOf(err) != reason {
			t.Errorf("%q: got %v, want %s", args, err, reason)
		}
	}
	o.expects(1, []string{"failed:", "provider_invalid_request"}, "chat", "broken", "-m", "hello")
}

func TestEveryListPrintsJSON(t *testing.T) {
	t.Parallel()
	o := openOffice(t, writeAgents(t, operatorAgents), t.TempDir())
	o.sends(t, "asks", "sums", "ben", "What is 6 * 7?")
	call := o.waitingCall(t, "asks")
	o.expects(0, nil, "calls", "deny", "asks", call)
	o.expects(0, []string{"They refuse."}, "runs", "watch", "asks")
	for _, args := range [][]string{
		{"sessions", "list"}, {"sessions", "show", "asks"}, {"runs", "list", "asks"}, {"runs", "show", "asks"}, {"calls", "list"}, {"agents", "list"},
		{"usage", "--by", "user"}, {"usage", "--by", "agent", "--from", "24h"}, {"usage", "--by", "model"}, {"audit"}, {"tokens", "create", "--subject", "ann"},
		{"keys", "list", "--file", o.keys}, {"agents", "describe", writeAgents(t, operatorAgents)}, {"agents", "check", writeAgents(t, operatorAgents)},
	} {
		got, code := o.types(append(slices.Clone(args), "--json")...)
		if code != 0 || !json.Valid([]byte(got)) {
			t.Errorf("%q --json ends with %d and prints\n%s", args, code, got)
		}
		if text, code := o.types(args...); code != 0 || json.Valid([]byte(text)) {
			t.Errorf("%q ends with %d and prints\n%s\nwant a text for people", args, code, text)
		}
	}
	o.expects(0, []string{"USER", "ben"}, "usage", "--by", "user")
	o.expects(0, []string{"sums"}, "usage", "--by", "agent")
	o.expects(0, []string{"call.denied", "key:ops"}, "audit", "--session", "asks")
	token := strings.TrimSpace(o.expects(0, nil, "tokens", "create", "--subject", "ann", "--ttl", "1m"))
	o.expects(0, []string{"SESSION"}, "sessions", "list", "--key", token)
	o.expects(4, []string{"SCOPE_MISSING"}, "audit", "--key", token)
	o.expects(3, nil, "sessions", "show", "asks", "--key", token)
	o.expects(0, []string{"asks\tsums, completed"}, "__complete", "runs", "watch", "")
	o.expects(0, []string{"sums\tDoes sums, but asks first."}, "__complete", "chat", "")
	lines := o.expects(0, nil, "runs", "watch", "asks", "--json")
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q is no JSON", line)
		}
	}
}

func TestTheCommandLineTellsUsageFromOtherFailures(t *testing.T) {
	t.Parallel()
	broken := writeAgents(t, "agents:\n  - {name: a, model: nobody/x, tols: [calculate]}\n")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{0, "Exit codes:", []string{"--help"}},
		{0, "Exit codes:", []string{"sessions", "list", "--help"}},
		{0, "holdfast ", []string{"--version"}},
		{0, "holdfast", []string{"completion", "bash"}},
		{2, `did you mean "list"`, []string{"sessions", "lst"}},
		{2, "usage: holdfast sessions show SESSION", []string{"sessions", "show"}},
		{2, "URL_INVALID", []string{"sessions", "list", "--url", "gateway:8080"}},
		{2, "TIME_INVALID", []string{"usage", "--from", "yesterday"}},
		{2, "FLAG_INVALID", []string{"usage", "--by", "week"}},
		{6, "GATEWAY_UNREACHABLE", []string{"sessions", "list", "--url", "http://127.0.0.1:1"}},
		{1, "agents.yaml:2:", []string{"agents", "check", broken}},
		{2, "AGENTS_INVALID", []string{"agents", "describe", broken}},
		{3, "AGENTS_NOT_FOUND", []string{"agents", "check", "none.yaml"}},
	} {
		d := newDesk(t)
		d.expects(c.code, []string{c.want}, c.args...)
	}
	if process.ExitCode(cli.ErrFailed) != 1 {
		t.Error("a failure that was printed must end with 1")
	}
}

func TestColoursAreForTerminalsAndControlCharactersForNobody(t *testing.T) {
	t.Parallel()
	for _, colors := range []bool{false, true} {
		var out bytes.Buffer
		terminal := &cli.Terminal{Out: &out, Colors: colors}
		if err := terminal.Table([]string{"TITLE"}, [][]string{{"a\x1b[2Jb\u202ec\nd"}}); err != nil {
			t.Fatal(err)
		}
		want := "TITLE\na[2Jbc d\n"
		if colors {
			want = "\x1b[2mTITLE\x1b[0m\na[2Jbc d\n"
		}
		if out.String() != want {
			t.Errorf("with colours %v: got %q, want %q", colors, out.String(), want)
		}
	}
}
