package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// refusal refuses calls from the first one on.
type refusal struct {
	kind  fault.Kind
	lasts time.Duration // 0: the first call only
	begin time.Time
	calls int
}

func (r *refusal) answer() error {
	if r.calls++; r.calls == 1 {
		r.begin = time.Now()
	}
	if r.calls > 1 && time.Since(r.begin) >= r.lasts {
		return nil
	}
	return fault.New(r.kind, "REFUSED", "not now")
}

// eachRefusal has a test meet every refusal, in a bubble of its own.
func eachRefusal(t *testing.T, test func(t *testing.T, r *refusal)) {
	t.Helper()
	for name, kind := range map[string]fault.Kind{
		"unavailable": fault.Unavailable, "not found": fault.NotFound, "internal": fault.Internal,
	} {
		for _, lasts := range []time.Duration{0, 12 * time.Second} {
			t.Run(fmt.Sprintf("%s for %v", name, lasts), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := &refusal{kind: kind, lasts: lasts}
					test(t, r)
					if r.calls < 2 || r.calls > 30 {
						t.Errorf("%d calls, want some, and no busy loop", r.calls)
					}
				})
			})
		}
	}
}

// failingMind says FIRST and makes a call; then it says forty words, one a second,
// and fails, and says them again.
func failingMind() mind {
	var asked atomic.Int32
	return func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
		if !answered(r) {
			say(model.TextDelta{Text: "FIRST "})
			request(say, "nothing", `{}`)
			return nil
		}
		for second := range 40 {
			say(model.TextDelta{Text: fmt.Sprintf("%d ", second)})
			pause(ctx, time.Second)
		}
		if asked.Add(1) == 1 {
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		}
		speak(say, "end")
		return nil
	}
}

// verifyRetained checks what a reader has of the failing mind's turn that was there
// all the time.
func (h *house) verifyRetained() {
	h.t.Helper()
	output := upTo(39) + "end"
	want := []string{
		"0 run_started 1", "1 step_started", "1 text FIRST ", "1 args call_0 {}", "1 end call_0", "1 step_committed",
		"2 step_started", "2 text " + output, "2 step_committed", fmt.Sprintf("2 run_completed %q", output), fmt.Sprintf("END %q", output),
	}
	if got := script(h.stream.view("s")); !slices.Equal(got, want) {
		h.t.Errorf("a reader has %q\nwant          %q", got, want)
	}
}

func TestAnAttemptThatRetentionHasCutIsTakenBackAndTheRunIsNotToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", failingMind()))
		h.stream.retained = 20
		h.open()
		h.settled(h.state.startRun("s", "demo", "hi"))
		h.verifyRetained()
	})
}

func TestAMenderThatIsNotToldWhereTheLogWasBegunAsksAgain(t *testing.T) {
	t.Parallel()
	eachRefusal(t, func(t *testing.T, r *refusal) {
		h := newHouse(t, definition("demo", failingMind()))
		h.stream.retained = 20
		h.stream.info = r.answer
		h.open()
		h.settled(h.state.startRun("s", "demo", "hi"))
		h.verifyRetained()
	})
}

func TestAMenderThatIsNotGivenTheConversationAsksAgain(t *testing.T) {
	t.Parallel()
	eachRefusal(t, func(t *testing.T, r *refusal) {
		var h *house
		h = newHouse(t, definition("demo", longMind(func(second int) {
			switch second {
			case 10:
				h.state.list = r.answer
				h.stream.lose()
			case 28:
				if got, want := texts(h.stream.records("s")), upTo(28); got != want {
					t.Errorf("text = %q, want %q while the model speaks", got, want)
				}
			}
		})))
		h.open()
		run := h.settled(h.state.startRun("s", "demo", "hi"))
		want := []string{
			"0 run_started 1", "1 step_started", "1 args call_0 {}", "1 end call_0", "1 step_committed",
			"2 step_started", "2 text " + upTo(59) + "end", "2 step_committed", "2 run_completed " + run.GetOutput(), "END " + run.GetOutput(),
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q\nwant     %q", got, want)
		}
		h.verifyReaders("s")
	})
}

// slowMind makes calls of the tool in so many steps, and speaks for half a minute
// before each.
func slowMind(tool string, steps int) mind {
	return func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
		say(model.TextDelta{Text: "Hm. "})
		pause(ctx, 30*time.Second)
		done := 0
		for _, m := range r.Messages {
			done += len(m.Results())
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case done == steps:
			speak(say, "End.")
		default:
			request(say, tool, `{}`)
		}
		return nil
	}
}

// bury ends the executor as a crash does.
func (h *house) bury(e *executor) {
	e.line.kill()
	e.stop()
	h.state.silence(e.id)
}

func TestWhatALossyCommitSaysOfTheStreamBelongsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", slowMind("nothing", 3)))
		var away atomic.Bool
		h.stream.gate = func(context.Context, *streamv1.AppendRequest) error {
			if away.Load() {
				return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")
			}
			return nil
		}
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(29 * time.Second)
		away.Store(true)
		time.Sleep(16 * time.Second) // the first step is committed, as one that does not stand
		away.Store(false)
		time.Sleep(5 * time.Second) // it is told, during the second step
		h.bury(first)
		h.open()
		time.Sleep(5 * time.Second) // the second owner has found it
		away.Store(true)
		var step int32
		var sequence int64
		err := h.state.await(t.Context(), func() bool {
			session := h.state.sessions["s"].session
			step, sequence = session.GetStreamStep(), session.GetStreamSequence()
			return session.GetStepCount() == 2
		})
		if err != nil {
			t.Fatal(err)
		}
		records := h.stream.records("s")
		committed := slices.IndexFunc(records, func(r *streamv1.Record) bool { return r.GetChunk().GetStepCommitted() != nil })
		if committed < 1 || step != 1 || sequence != records[committed-1].GetSequence() {
			t.Errorf("stream_step %d stands up to %d, want the last record of step 1 in %q", step, sequence, records)
		}
		away.Store(false)
		h.settled(run)
		h.verifyReaders("s")
	})
}

func TestAStreamThatALostOwnerHasResetIsToldTheWholeRunByTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := newHouse(t, definition("demo", slowMind("slow", 2), slowTool(&runs)))
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(61500 * time.Millisecond) // the tool runs in the second step
		h.bury(first)
		h.stream.mu.Lock()
		h.stream.maxKept = 1
		h.stream.mu.Unlock()
		died := make(chan struct{})
		second := h.open(func(_ int, method string) verdict {
			if method == "Reset" {
				return dieAfter
			}
			return pass
		})
		second.line.mu.Lock()
		second.line.onDead = func() { close(died) }
		second.line.mu.Unlock()
		<-died
		h.bury(second)
		h.open()
		h.settled(run)
		want := []string{
			"0 run_started 1", "1 step_started", "1 text Hm. ", "1 args call_0 {}", "1 start call_0", "1 end call_0", "1 step_committed",
			"2 step_started", "2 text Hm. ", "2 args call_0_1 {}", "2 start call_0_1", "2 end call_0_1", "2 step_committed",
			"3 step_started", "3 text Hm. End.", "3 step_committed", `3 run_completed "Hm. End."`, `END "Hm. End."`,
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q\nwant     %q", got, want)
		}
		h.verifyReaders("s")
	})
}
