package builtin_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/builtin"
)

func run(t *testing.T, c builtin.Config, name, input string) (map[string]any, error) {
	t.Helper()
	tool, ok := builtin.Tools(c)[name]
	if !ok {
		t.Fatalf("there is no tool %s", name)
	}
	value, err := tool.Execute(t.Context(), &agent.Call{IdempotencyKey: "key 1", Input: json.RawMessage(input)})
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var result map[string]any
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	return result, nil
}

func TestCalculateKnowsPrecedenceAndRefusesNonsense(t *testing.T) {
	t.Parallel()
	tests := []struct {
		expression string
		want       float64
		err        string
	}{
		{"2 + 3 * 4", 14, ""}, {"(2+3)*4", 20, ""}, {"10/4", 2.5, ""}, {"10 % 4", 2, ""}, {"2^3^2", 512, ""}, {"-2^2", -4, ""},
		{"2^-1", 0.5, ""}, {"--3", 3, ""}, {" 1.5\t+ .5", 2, ""}, {"7-2-1", 4, ""}, {"8/2/2", 2, ""},
		{"1/0", 0, "division by zero"}, {"1%0", 0, "division by zero"}, {"", 0, "is incomplete"}, {"2+", 0, "is incomplete"}, {"(1", 0, "is incomplete"},
		{"1 2", 0, "not expected at position 3"}, {"2*x", 0, `"x" is not expected`}, {"1.2.3", 0, "not a number"}, {"9^999", 0, "no finite value"},
		{strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500), 0, "bytes"}, {strings.Repeat("(", 300) + "1", 0, "nested too deeply"},
	}
	for _, test := range tests {
		got, err := run(t, builtin.Config{}, "calculate", `{"expression":`+quote(test.expression)+`}`)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("calculate(%.30q) = %v, %v, want an error with %q", test.expression, got, err, test.err)
			}
		case err != nil || math.Abs(got["value"].(float64)-test.want) > 1e-12:
			t.Errorf("calculate(%q) = %v, %v, want %v", test.expression, got, err, test.want)
		}
	}
}

func quote(text string) string {
	data, _ := json.Marshal(text) // a string always marshals
	return string(data)
}

func TestCurrentTimeIsToldInTheZoneThatIsAskedFor(t *testing.T) {
	t.Parallel()
	c := builtin.Config{Now: func() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }}
	got, err := run(t, c, "current_time", `{}`)
	if err != nil || got["time"] != "2026-07-01T12:00:00Z" || got["weekday"] != "Wednesday" {
		t.Errorf("current_time = %v, %v, want noon UTC on a Wednesday", got, err)
	}
	got, err = run(t, c, "current_time", `{"timezone":"Asia/Tokyo"}`)
	if err != nil || got["time"] != "2026-07-01T21:00:00+09:00" {
		t.Errorf("current_time = %v, %v, want 21:00 in Tokyo", got, err)
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "../etc/passwd"} {
		if _, err := run(t, c, "current_time", `{"timezone":`+quote(zone)+`}`); err == nil {
			t.Errorf("current_time in %q succeeds, want an error", zone)
		}
	}
}

func TestWaitTakesAsLongAsAskedAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if _, err := run(t, builtin.Config{}, "wait", `{"ms":1500}`); err != nil || time.Since(begin) != 1500*time.Millisecond {
			t.Errorf("wait took %v, %v, want 1.5s", time.Since(begin), err)
		}
		for _, ms := range []string{"-1", "60001"} {
			if _, err := run(t, builtin.Config{}, "wait", `{"ms":`+ms+`}`); err == nil {
				t.Errorf("wait %s succeeds, want an error", ms)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		_, err := builtin.Tools(builtin.Config{})["wait"].Execute(ctx, &agent.Call{Input: json.RawMessage(`{"ms":50000}`)})
		if err == nil || time.Since(begin) != time.Second {
			t.Errorf("wait = %v after %v, want the end of its context after 1s", err, time.Since(begin))
		}
	})
}

func TestNotesAreCountedAndWrittenOnceWhereAsked(t *testing.T) {
	t.Parallel()
	c := builtin.Config{NotesDir: t.TempDir()}
	for _, name := range []string{"note_once", "note_once", "note", "note"} {
		if _, err := run(t, c, name, `{"text":"hello\nworld","beforeMs":1,"afterMs":1}`); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(c.NotesDir, "notes.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	line := `{"key":"key 1","text":"hello\nworld"}` + "\n"
	if got, want := string(data), strings.Repeat(line, 3); got != want {
		t.Errorf("notes:\n%s\nwant one of note_once and two of note:\n%s", got, want)
	}
	tools := builtin.Tools(c)
	for name, want := range map[string]bool{"calculate": true, "current_time": true, "wait": false, "note": false, "note_once": false} {
		if got := tools[name].ReadOnly; got != want {
			t.Errorf("%s is read-only = %v, want %v", name, got, want)
		}
	}
	if tools["note"].Retry != agent.RetryNever || tools["note_once"].Retry != agent.RetrySafe {
		t.Errorf("retry = %s, %s, want never, safe", tools["note"].Retry, tools["note_once"].Retry)
	}
	if _, ok := builtin.Tools(builtin.Config{})["note"]; ok {
		t.Error("note exists without a folder")
	}
}
