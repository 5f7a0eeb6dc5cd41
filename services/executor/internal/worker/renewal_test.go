package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// loseAt loses the log, and gives how many runs were told to their end before.
func (p *rehearsal) loseAt() (ended int) {
	for _, r := range p.stream.records("s") {
		if r.GetTerminal() != nil {
			ended++
		}
	}
	p.stream.lose()
	return ended
}

// verifyAfterLoss checks a play whose log was lost: the stream holds every run that
// was not told to its end then, whole, and what came later. A run that was is told
// again only where its settling was.
func (p *rehearsal) verifyAfterLoss(ended int) {
	p.t.Helper()
	p.verifyEffects()
	p.verifyMessages()
	whole := wholeScript()
	tails := [][]string{whole, whole[slices.Index(whole, "2 run_started 2"):], {}}
	got := script(p.stream.records("s"))
	if !slices.ContainsFunc(tails[:ended+1], func(tail []string) bool { return slices.Equal(got, tail) }) {
		p.t.Errorf("stream:\n%s\nbut %d runs were told to their end before the log was lost", strings.Join(got, "\n"), ended)
	}
	if len(got) > 0 { // else nobody has written since, so nobody knows
		p.verifyReaders("s")
	}
}

func TestALogThatIsLostAtAnyCallIsToldTheWholeRunUnderTheSameClaim(t *testing.T) {
	t.Parallel()
	for n := range callsOfPlay(t) + 4 { // telling again takes calls as well
		synctest.Test(t, func(t *testing.T) {
			p := newRehearsal(t)
			hit, ended := "", 0
			begin := time.Now()
			p.play(func(call int, method string) verdict {
				if call == n {
					hit, ended = method, p.loseAt()
				}
				return pass
			}, "first", "second")
			p.verifyAfterLoss(ended)
			for _, r := range p.state.order {
				if r.run.GetAttempt() != 1 {
					t.Errorf("run %s took %d claims, want one", r.run.GetRunId(), r.run.GetAttempt())
				}
			}
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("it took %v, want the second that the model's retry waits", took)
			}
			if p.plans != 1 || p.runs["call_0"] != 1 || p.runs["call_1"] != 1 {
				t.Errorf("%d plans and the executions %v, want one each", p.plans, p.runs)
			}
			if t.Failed() {
				t.Fatalf("at call %d (%s)", n, hit)
			}
		})
	}
}

func TestALogThatIsLostAndAnExecutorThatDiesSoonAfterLoseNothingAndDoubleNothing(t *testing.T) {
	t.Parallel()
	calls := callsOfPlay(t)
	// Before it knows, once it has found out, once it has rewound, and while it tells
	// again. To die after a call is to die before the next one.
	for _, later := range []int{0, 1, 2, 4} {
		t.Run(fmt.Sprintf("%d calls later", later), func(t *testing.T) {
			t.Parallel()
			for n := range calls {
				loseAndDie(t, n, later)
			}
		})
	}
}

func loseAndDie(t *testing.T, n, later int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newRehearsal(t)
		ended := 0
		p.play(func(call int, _ string) verdict {
			if call == n {
				ended = p.loseAt()
			}
			if call == n+later {
				return dieBefore
			}
			return pass
		}, "first", "second")
		p.verifyAfterLoss(ended)
		if t.Failed() {
			t.Fatalf("lost at call %d", n)
		}
	})
}

// kindOf names what an append says.
func kindOf(r *streamv1.AppendRequest) string {
	if r.GetTerminal() != nil {
		return "terminal"
	}
	return r.GetChunk().Type()
}

func TestALogThatIsLostBeforeAnyKindOfRecordIsWholeAgainAtOnce(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"run_started", "step_started", "tool_arg_stream_start", "tool_start", "tool_end", "step_committed", "text_delta",
		"run_completed", "terminal",
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var runs atomic.Int32
				h := newHouse(t, definition("demo", calls("ok", "slow", `{}`), slowTool(&runs)))
				second := false // the turn that the log is lost in
				h.stream.gate = func(_ context.Context, r *streamv1.AppendRequest) error {
					if second && kindOf(r) == kind {
						second = false
						h.stream.lose()
					}
					return nil
				}
				h.open()
				h.settled(h.state.startRun("s", "demo", "one"))
				second = true
				begin := time.Now()
				run := h.settled(h.state.startRun("s", "demo", "two"))
				if took := time.Since(begin); took > 1100*time.Millisecond {
					t.Errorf("the turn took %v, want the second of its tool", took)
				}
				if run.GetAttempt() != 1 || runs.Load() != 2 {
					t.Errorf("%d claims and %d calls of the tool, want 1 and 2", run.GetAttempt(), runs.Load())
				}
				want := []string{
					"2 run_started 2", "3 step_started", "3 args call_0_lf6wi34z {}", "3 start call_0_lf6wi34z", "3 end call_0_lf6wi34z", "3 step_committed",
					"4 step_started", "4 text ok", "4 step_committed", `4 run_completed "ok"`, `END "ok"`,
				}
				if got := script(h.stream.records("s")); !slices.Equal(got, want) {
					t.Errorf("stream = %q\nwant     %q", got, want)
				}
				h.verifyReaders("s")
			})
		})
	}
}

// longMind makes one call, and then says a word a second for a minute.
func longMind(after func(second int)) mind {
	return func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
		if !answered(r) {
			request(say, "nothing", `{}`)
			return nil
		}
		for second := range 60 {
			say(model.TextDelta{Text: fmt.Sprintf("%d ", second)})
			pause(ctx, time.Second)
			after(second)
		}
		speak(say, "end")
		return nil
	}
}

// upTo is the text of longMind up to the second.
func upTo(second int) string {
	var text strings.Builder
	for s := range second + 1 {
		fmt.Fprintf(&text, "%d ", s)
	}
	return text.String()
}

func TestALogThatIsLostDuringALongReplyIsWholeAgainWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h *house
		h = newHouse(t, definition("demo", longMind(func(second int) {
			switch second {
			case 10:
				h.stream.lose()
			case 12: // word 11 has found out
				want := []string{
					"0 run_started 1", "1 step_started", "1 args call_0 {}", "1 end call_0", "1 step_committed",
					"2 step_started", "2 text " + upTo(12),
				}
				if got := script(h.stream.records("s")); !slices.Equal(got, want) {
					t.Errorf("stream = %q\nwant     %q", got, want)
				}
			}
		})))
		h.open()
		h.settled(h.state.startRun("s", "demo", "hi"))
		if got, want := texts(h.stream.records("s")), upTo(59)+"end"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
		h.verifyReaders("s")
	})
}

func TestAStreamTierThatComesBackDuringALongReplyIsToldWhatItMissedWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	for reason, refusal := range map[string]*fault.Fault{
		"it is away": fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log"),
		"it is full": fault.New(fault.Exhausted, "LOG_FULL", "no room"),
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				var h *house
				h = newHouse(t, definition("demo", longMind(func(second int) {
					switch second {
					case 3:
						away.Store(true)
					case 30:
						away.Store(false)
					case 33:
						if got, want := texts(h.stream.records("s")), upTo(33); got != want {
							t.Errorf("text = %q three seconds after the outage, want %q", got, want)
						}
					}
				})))
				h.stream.gate = func(context.Context, *streamv1.AppendRequest) error {
					if away.Load() {
						return refusal
					}
					return nil
				}
				h.open()
				run := h.settled(h.state.startRun("s", "demo", "hi"))
				if got, want := texts(h.stream.records("s")), upTo(59)+"end"; got != want || run.GetStatus() != completed {
					t.Errorf("run = %v with text %q, want it completed with %q", run, got, want)
				}
				h.verifyReaders("s")
			})
		})
	}
}

func TestALogThatIsLostWhileToolsRunIsWholeAgainBeforeTheLastOfThemEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h *house
		tool := func(name string, d time.Duration) agent.Tool {
			return agent.Tool{Name: name, InputSchema: anyObject, Execute: func(ctx context.Context, _ *agent.Call) (any, error) {
				pause(ctx, d)
				return name, ctx.Err()
			}}
		}
		h = newHouse(t, definition("demo", calls("ok", "short", `{}`, "long", `{}`), tool("short", 2*time.Second), tool("long", 30*time.Second)))
		h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		h.stream.lose()
		time.Sleep(2 * time.Second)
		want := []string{
			"0 run_started 1", "1 step_started", "1 args call_0 {}", "1 args call_1 {}", "1 start call_0", "1 start call_1", "1 end call_0",
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q\nwant     %q", got, want)
		}
		h.settled(run)
		want = append(want, "1 end call_1", "1 step_committed", "2 step_started", "2 text ok", "2 step_committed", `2 run_completed "ok"`, `END "ok"`)
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q\nwant     %q", got, want)
		}
		h.verifyReaders("s")
	})
}

func TestALogThatIsLostAgainAndAgainIsWholeInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", longMind(func(int) {})))
		appends := 0
		h.stream.gate = func(context.Context, *streamv1.AppendRequest) error {
			if appends++; appends%9 == 0 && appends < 500 {
				h.stream.lose()
			}
			return nil
		}
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

func TestWhatRetentionHasTakenIsNotToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h *house
		h = newHouse(t, definition("demo", longMind(func(second int) {
			if second == 10 {
				h.stream.mu.Lock()
				h.stream.logs["s"].entries = nil
				h.stream.mu.Unlock()
			}
		})))
		h.open()
		h.settled(h.state.startRun("s", "demo", "hi"))
		if got, want := texts(h.stream.records("s")), strings.TrimPrefix(upTo(59), upTo(10))+"end"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
		if got, want := texts(h.stream.view("s")), upTo(59)+"end"; got != want {
			t.Errorf("a reader has %q, want %q", got, want)
		}
	})
}

func TestAStreamOfWhichTooMuchStandsToBeToldIsResetAndToldAgain(t *testing.T) {
	t.Parallel()
	for n := range callsOfPlay(t) {
		synctest.Test(t, func(t *testing.T) {
			p := newRehearsal(t)
			p.stream.maxKept = 1
			p.play(func(call int, _ string) verdict {
				if call == n {
					return dieAfter
				}
				return pass
			}, "first", "second")
			p.verifyEffects()
			p.verifyMessages()
			p.verifyReaders("s")
			got, want := script(p.stream.records("s")), wholeScript()
			second := want[slices.Index(want, "2 run_started 2"):]
			if !slices.Equal(got, want) && !slices.Equal(got, second) {
				t.Fatalf("died at call %d: stream:\n%s", n, strings.Join(got, "\n"))
			}
		})
	}
}

func TestARunOfWhichTheEndStandsAlreadyIsNeitherFailedNorToldBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", says("hi")))
		h.stream.mu.Lock()
		// The state service was put back to before the run.
		end := &streamv1.Record{Sequence: 1, Record: &streamv1.Record_Terminal{Terminal: &streamv1.Terminal{RunId: "s/run 1"}}}
		h.stream.logs["s"] = &fakeLog{over: "s/run 1", entries: []*entry{{Record: end}}}
		h.stream.mu.Unlock()
		h.open()
		begin := time.Now()
		run := h.settled(h.state.startRun("s", "demo", "hi"))
		if took := time.Since(begin); run.GetStatus() != completed || took > time.Second {
			t.Errorf("run = %v after %v, want it completed at once", run, took)
		}
		if got := types(h.stream.records("s")); !slices.Equal(got, []string{"end", "end"}) {
			t.Errorf("stream = %v, want no chunk behind the end", got)
		}
	})
}
