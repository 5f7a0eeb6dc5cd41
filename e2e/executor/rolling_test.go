package executor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	rollers     = 10 // conversations at a time
	rollingTime = 5 * time.Minute
	// drainTime is the time for a step in flight: its tool takes rollingTool.
	drainTime   = "20s"
	rollingTool = 400
)

// rollingFile declares an agent with runs of three steps. The first two steps call a tool that must not run
// twice.
var rollingFile = fmt.Sprintf(`
models:
  scripted:
    script: |
      models:
        notes:
          rules:
            - when: {step: 3}
              reply: [{text: 'Two notes are made for you.', chunk: 1 word, delay: 30ms}]
            - when: {step: 2}
              reply: [{call: {name: note, arguments: {text: '{{.LastUser}} second', beforeMs: %[1]d, afterMs: %[1]d}}}]
            - reply: [{text: 'Let me see. '}, {call: {name: note, arguments: {text: '{{.LastUser}} first', beforeMs: %[1]d, afterMs: %[1]d}}}]
agents:
  - {name: notes, model: scripted/notes, tools: [note]}
`, rollingTool/2)

func TestARollingRestartOfTheExecutorsIsSeenByNobody(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Agents: rollingFile, Executors: 2, StateEnv: []string{harness.PatientState}, ExecutorEnv: []string{
		"HOLDFAST_EXECUTOR_DRAIN_GRACE=" + drainTime, "HOLDFAST_SHUTDOWN_GRACE=40s",
	}})
	ctx, cancel := context.WithTimeout(t.Context(), rollingTime)
	defer cancel()
	var talking sync.WaitGroup
	rolled := make(chan struct{})
	counts := make([]int, rollers)
	for i := range rollers {
		talking.Go(func() { counts[i] = roll(ctx, t, s, i, rolled) })
	}
	for range 2 {
		for _, p := range s.Executors {
			harness.WaitFor(t, rollingTime, p.Name+" to have work", func() (bool, string) { return s.Live(p) > 0, "it has none" })
			t.Logf("%s took %v to stop", p.Name, p.Stop(harness.StopLimit))
			p.Start()
		}
	}
	close(rolled)
	talking.Wait()

	runs := 0
	for i, n := range counts {
		runs += n
		for k := range n {
			checkRolled(t, s, fmt.Sprintf("roll-%d-%d.", i, k))
		}
	}
	t.Logf("%d runs saw four restarts", runs)
}

// roll starts runs one after the other until the executors are restarted, and returns their number.
func roll(ctx context.Context, t *testing.T, s *harness.System, i int, rolled <-chan struct{}) int {
	for n := 0; ; n++ {
		select {
		case <-rolled:
			return n
		default:
		}
		session := fmt.Sprintf("roll-%d-%d.", i, n)
		m, err := s.Converse(ctx, session, "notes", session)
		if err != nil {
			t.Errorf("run %s: %v", session, err)
			return n
		}
		if want := "Let me see. Two notes are made for you."; m.Text() != want {
			t.Errorf("the answer in %s is %q, want %q", session, m.Text(), want)
		}
	}
}

// checkRolled checks a run: it has completed, no tool ran twice, and every result is known.
func checkRolled(t *testing.T, s *harness.System, session string) {
	t.Helper()
	s.WaitStatus(t, session, "completed")
	for _, which := range []string{"first", "second"} {
		if lines := s.Effects.Lines(session + " " + which); len(lines) != 1 {
			t.Errorf("the %s tool of %s has run %d times, want once", which, session, len(lines))
		}
	}
	messages := s.Messages(t, session)
	if all := harness.Transcript(messages); strings.Contains(all, "output-error") || strings.Count(all, "output-available") != 2 {
		t.Errorf("the conversation of %s is\n%s\nwant two results that are known", session, all)
	}
}
