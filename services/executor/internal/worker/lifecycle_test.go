package worker_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// slowTool takes a second, which a test can stop in the middle of.
func slowTool(runs *atomic.Int32) agent.Tool {
	return agent.Tool{Name: "slow", InputSchema: anyObject, Execute: func(ctx context.Context, _ *agent.Call) (any, error) {
		runs.Add(1)
		pause(ctx, time.Second)
		return "done", ctx.Err()
	}}
}

func TestAnExecutorThatStopsFinishesItsStepAndReleasesTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := newHouse(t, definition("demo", calls("ok", "slow", `{}`), slowTool(&runs)))
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		synctest.Wait()
		first.stop()
		<-first.ended
		r := h.state.find(run)
		if r.released != 1 || r.run.GetStepCount() != 1 || r.live() == false {
			t.Errorf("run = %v, released %d times; want one step committed and the run released once", r.run, r.released)
		}
		h.open()
		h.settled(run)
		if runs.Load() != 1 {
			t.Errorf("the tool ran %d times, want once", runs.Load())
		}
		want := []string{"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_start", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		if got := types(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
	})
}

func TestAStepThatOutlastsTheDrainGraceIsCutAndReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			if asked.Add(1) == 1 {
				say(model.TextDelta{Text: "It will take "})
				<-ctx.Done()
				return ctx.Err()
			}
			speak(say, "done")
			return nil
		})))
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		synctest.Wait()
		begin := time.Now()
		first.stop()
		<-first.ended
		if got := time.Since(begin); got < h.config.DrainGrace || got > h.config.DrainGrace+time.Second {
			t.Errorf("stopping took %v, want the drain grace of %v", got, h.config.DrainGrace)
		}
		if r := h.state.find(run); r.released != 1 {
			t.Errorf("run = %v, want it released", r.run)
		}
		h.open()
		h.settled(run)
		if got, want := texts(h.stream.records("s")), "done"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	})
}

func TestHeartbeatsGoOnWhileTheExecutorDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, 4*time.Second)
			speak(say, "done")
			return nil
		})))
		e := h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		h.state.mu.Lock()
		before := h.state.beats
		h.state.mu.Unlock()
		e.stop()
		<-e.ended
		h.settled(run)
		if got := h.state.beats - before; got < 5 {
			t.Errorf("%d heartbeats during 3 seconds of draining, want one each 500ms", got)
		}
	})
}

func TestHeartbeatsListTheHeldRunsNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, time.Minute)
			speak(say, "done")
			return nil
		})))
		h.open()
		run := h.state.startRun("s", "demo", "hi")
		h.settled(run)
		h.state.mu.Lock()
		defer h.state.mu.Unlock()
		if got := len(h.state.held); got < 3 || got > 4 {
			t.Errorf("%d lists in a minute, want one each 15s", got)
		}
		if want := []string{run}; !slices.Equal(h.state.held[0], want) {
			t.Errorf("held = %v, want %v", h.state.held[0], want)
		}
	})
}

func TestAForgottenExecutorStopsItsRunsAndAnnouncesItselfAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked, cut atomic.Int32
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			if asked.Add(1) == 1 {
				<-ctx.Done()
				cut.Add(1)
				return ctx.Err()
			}
			speak(say, "done")
			return nil
		})))
		e := h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		h.state.silence(e.id)
		h.settled(run)
		if cut.Load() != 1 || asked.Load() != 2 {
			t.Errorf("model asked %d times and cut %d times, want 2 and 1", asked.Load(), cut.Load())
		}
		if got := h.state.find(run); got.released != 0 || got.run.GetAttempt() != 2 {
			t.Errorf("run = %v, released %d times; want a second claim and no release", got.run, got.released)
		}
	})
}

func TestABrokenClaimStreamIsOpenedAgainWithTheHeldRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			speak(say, "done")
			return nil
		})))
		e := h.open()
		run := h.state.startRun("s", "demo", "hi")
		synctest.Wait()
		e.line.mu.Lock()
		for _, cut := range e.line.cut {
			cut()
		}
		e.line.mu.Unlock()
		if got := h.settled(run); got.GetAttempt() != 1 {
			t.Errorf("run = %v, want it never claimed again", got)
		}
		h.state.mu.Lock()
		defer h.state.mu.Unlock()
		if got := len(h.state.announced); got != 2 {
			t.Fatalf("%d announcements, want 2", got)
		}
		again := h.state.announced[1]
		if want := []string{run}; !slices.Equal(again.GetHeldRunIds(), want) || again.GetCredits() != 3 {
			t.Errorf("second announcement = %v, want the held run and 3 credits", again)
		}
	})
}

func TestAFencedWriterStopsItsRunWithoutAWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", says("hi")))
		h.stream.gate = func(context.Context, *streamv1.AppendRequest) error {
			return fault.New(fault.Stale, "WRITER_FENCED", "a newer epoch")
		}
		e := h.open()
		run := h.state.startRun("s", "demo", "hi")
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := h.state.sessions["s"].writes; len(got) != 0 {
			t.Errorf("writes = %v, want none", got)
		}
		if got := e.worker.LiveRunIDs(); len(got) != 0 {
			t.Errorf("live runs = %v, want none", got)
		}
		if got := h.state.find(run); got.released != 0 {
			t.Errorf("the run was released, but it is somebody else's")
		}
	})
}

// outage lets the stream tier answer nothing until it is over.
type outage struct {
	mu   sync.Mutex
	over bool
}

func (o *outage) gate(context.Context, *streamv1.AppendRequest) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")
	}
	return nil
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

func TestAStreamTierThatIsAwayFailsNoRunAndIsToldEverythingLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := newHouse(t, definition("demo", calls("All done.", "slow", `{}`), slowTool(&runs)))
		h.config.Slots = 1
		away := &outage{}
		h.stream.gate = away.gate
		h.open()
		first, second := h.state.startRun("s", "demo", "hi"), h.state.startRun("t", "demo", "hi")
		time.Sleep(time.Minute)
		h.state.mu.Lock()
		for _, run := range []string{first, second} {
			if r := h.state.find(run).run; r.GetStatus() != completed || r.GetSettled() {
				t.Errorf("run = %v, want it completed and not settled", r)
			}
		}
		h.state.mu.Unlock()
		away.end()
		h.settled(first)
		h.settled(second)
		want := []string{"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_start", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		for _, session := range []string{"s", "t"} {
			records := h.stream.records(session)
			if got := types(records); !slices.Equal(got, want) {
				t.Errorf("stream of %s = %v, want %v", session, got, want)
			}
			if got := texts(records); got != "All done." {
				t.Errorf("text of %s = %q, want all of it", session, got)
			}
		}
	})
}

func TestAStreamTierThatComesBackInTheMiddleOfARunIsToldWhatItMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		away := &outage{over: true}
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			switch asked.Add(1) {
			case 1:
				say(model.TextDelta{Text: "One "})
				pause(ctx, time.Second)
				away.mu.Lock()
				away.over = false
				away.mu.Unlock()
				say(model.TextDelta{Text: "two "})
				pause(ctx, time.Second)
				request(say, "nothing", `{}`)
			case 2:
				pause(ctx, time.Second)
				away.end()
				request(say, "nothing", `{}`)
			default:
				speak(say, "three")
			}
			return nil
		})))
		h.stream.gate = away.gate
		h.open()
		h.settled(h.state.startRun("s", "demo", "hi"))
		want := []string{
			"0 run_started 1", "1 step_started", "1 text One two ", "1 args call_0 {}", "1 end call_0", "1 step_committed",
			"2 step_started", "2 args call_0_1 {}", "2 end call_0_1", "2 step_committed",
			"3 step_started", "3 text three", "3 step_committed", `3 run_completed "three"`, `END "three"`,
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q, want %q", got, want)
		}
	})
}

func TestAnEpochThatCannotWriteAnyMoreIsFollowedByOneThatTellsTheWholeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", says("one ", "two")))
		h.stream.gate = func(_ context.Context, r *streamv1.AppendRequest) error {
			if r.GetEpoch() == 1 && r.GetChunk().GetTextDelta() != nil {
				h.stream.mu.Lock()
				defer h.stream.mu.Unlock()
				h.stream.logs["s"].number = 100
			}
			return nil
		}
		h.open()
		run := h.settled(h.state.startRun("s", "demo", "hi"))
		if run.GetOutput() != `"one two"` || run.GetAttempt() != 2 {
			t.Errorf("run = %v, want it completed, and claimed again to settle it", run)
		}
		want := []string{
			"0 run_started 1", "1 step_started", "1 text one two", "1 step_committed", `1 run_completed "one two"`, `END "one two"`,
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q, want %q", got, want)
		}
	})
}

func TestStepsThatALostExecutorCouldNotTellAreToldByTheNextOwner(t *testing.T) {
	t.Parallel()
	want := []string{
		"0 run_started 1", "1 step_started", "1 text One two ", "1 args call_0 {}", "1 end call_0", "1 step_committed",
		"2 step_started", "2 text three", "2 step_committed", `2 run_completed "three"`, `END "three"`,
	}
	for name, dies := range map[string]func(*fakeSession, *fakeRun) bool{
		"while the next step runs": func(s *fakeSession, _ *fakeRun) bool { return s.session.GetStepCount() == 1 },
		"once the run is finished": func(_ *fakeSession, r *fakeRun) bool { return !r.live() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				away := &outage{over: true}
				h := newHouse(t, definition("demo", mind(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
					if len(r.Messages) > 1 {
						pause(ctx, 30*time.Second)
						speak(say, "three")
						return nil
					}
					say(model.TextDelta{Text: "One "})
					pause(ctx, time.Second)
					away.mu.Lock()
					away.over = false
					away.mu.Unlock()
					say(model.TextDelta{Text: "two "})
					pause(ctx, time.Second)
					request(say, "nothing", `{}`)
					return nil
				})))
				h.stream.gate = away.gate
				first := h.open()
				run := h.state.startRun("s", "demo", "hi")
				err := h.state.await(t.Context(), func() bool { return dies(h.state.sessions["s"], h.state.find(run)) })
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				first.line.kill()
				first.stop()
				h.state.silence(first.id)
				away.end()
				h.open()
				h.settled(run)
				if got := script(h.stream.records("s")); !slices.Equal(got, want) {
					t.Errorf("stream = %q\nwant     %q", got, want)
				}
			})
		})
	}
}

func TestARunThatWasToldAfterAnOutageIsNotToldAgainWhenItsExecutorDiesBeforeItIsSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := &outage{}
		h := newHouse(t, definition("demo", mind(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			speak(say, "one two")
			return nil
		})))
		h.stream.gate = away.gate
		first := h.open()
		died := make(chan struct{})
		first.line.mu.Lock()
		first.line.onDead = func() { close(died) }
		first.line.decide = func(_ int, method string) verdict {
			if method == "SettleRun" {
				return dieBefore
			}
			return pass
		}
		first.line.mu.Unlock()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(time.Minute) // the run has finished, and the stream does not know
		away.end()
		<-died
		first.stop()
		h.state.silence(first.id)
		h.open()
		h.settled(run)
		want := []string{
			"0 run_started 1", "1 step_started", "1 text one two", "1 step_committed", `1 run_completed "one two"`, `END "one two"`,
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q\nwant     %q", got, want)
		}
	})
}

func TestAPlanWhoseChunksWereLostIsToldAnewByTheNextOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		away := &outage{}
		h := newHouse(t, definition("demo", calls("ok", "slow", `{}`), slowTool(&runs)))
		h.stream.gate = away.gate
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		// The run goes on without the stream tier after its patience, and the
		// executor dies while the tool runs.
		if err := h.state.await(t.Context(), func() bool { return h.state.sessions["s"].journal != nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first.line.kill()
		first.stop()
		h.state.silence(first.id)
		away.end()
		h.open()
		h.settled(run)
		want := []string{
			"0 run_started 1", "1 step_started", "1 args call_0 {}", "1 start call_0", "1 end call_0", "1 step_committed",
			"2 step_started", "2 text ok", "2 step_committed", `2 run_completed "ok"`, `END "ok"`,
		}
		if got := script(h.stream.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %q, want %q", got, want)
		}
	})
}

func TestTheSpansOfARunStayInTheTraceOfItsRequestAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		var runs atomic.Int32
		h := newHouse(t, definition("demo", calls("ok", "slow", `{}`), slowTool(&runs)))
		h.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		first := h.open()
		run := h.state.startRun("s", "demo", "hi")
		synctest.Wait()
		first.line.kill()
		first.stop()
		h.state.silence(first.id)
		h.open()
		h.settled(run)
		<-first.ended
		names := map[string]int{}
		for _, span := range spans.Ended() {
			names[span.Name()]++
			if got, want := span.SpanContext().TraceID().String(), "0af7651916cd43dd8448eb211c80319c"; got != want {
				t.Errorf("span %s is in trace %s, want %s", span.Name(), got, want)
			}
		}
		if names["holdfast.run"] != 2 || names["holdfast.llm"] != 2 || names["holdfast.tool"] != 1 {
			t.Errorf("spans = %v, want two runs, two model calls and one tool", names)
		}
	})
}
