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
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// slowTool takes a second, unless it is cut.
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
		h := newSystem(t, define("demo", callsOnce("ok", "slow", `{}`), slowTool(&runs)))
		h.config.DrainGrace = 5 * time.Second
		first := h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		first.stop()
		<-first.ended
		r, released := h.run(run), len(h.released(run))
		if released != 1 || r.GetStepCount() != 1 || !live(r) {
			t.Errorf("run = %v, released %d times; want one step committed and the run released once", r, released)
		}
		h.open()
		h.end(run)
		if runs.Load() != 1 {
			t.Errorf("the tool ran %d times, want once", runs.Load())
		}
		want := []string{"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_start", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		if got := frameTypes(h.records("s")); !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
	})
}

func TestAStepThatOutlastsTheDrainGraceIsCutAndReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			if asked.Add(1) == 1 {
				say(model.TextDelta{Text: "It will take "})
				<-ctx.Done()
				return ctx.Err()
			}
			sendText(say, "done")
			return nil
		})))
		h.config.DrainGrace = 5 * time.Second
		first := h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		begin := time.Now()
		first.stop()
		<-first.ended
		if got := time.Since(begin); got < h.config.DrainGrace || got > h.config.DrainGrace+time.Second {
			t.Errorf("stopping took %v, want the drain grace of %v", got, h.config.DrainGrace)
		}
		if len(h.released(run)) != 1 {
			t.Errorf("run = %v, want it released", h.run(run))
		}
		h.open()
		h.end(run)
		if got, want := joinedText(h.records("s")), "done"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
	})
}

func TestHeartbeatsGoOnWhileTheExecutorDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, 4*time.Second)
			sendText(say, "done")
			return nil
		})))
		h.config.DrainGrace = 5 * time.Second
		e := h.open()
		run := h.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		before := h.heartbeats()
		e.stop()
		<-e.ended
		h.end(run)
		if got := h.heartbeats() - before; got < 5 {
			t.Errorf("%d heartbeats during 3 seconds of draining, want one each 500ms", got)
		}
	})
}

func TestHeartbeatsListTheHeldRunsNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, time.Minute)
			sendText(say, "done")
			return nil
		})))
		h.open()
		run := h.startRun("s", "demo", "hi")
		h.end(run)
		h.traffic.mu.Lock()
		defer h.traffic.mu.Unlock()
		if got := len(h.traffic.held); got < 3 || got > 4 {
			t.Errorf("%d lists in a minute, want one each 15s", got)
		}
		if want := []string{run}; !slices.Equal(h.traffic.held[0], want) {
			t.Errorf("held = %v, want %v", h.traffic.held[0], want)
		}
	})
}

func TestAForgottenExecutorStopsItsRunsAndAnnouncesItselfAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked, cut atomic.Int32
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			if asked.Add(1) == 1 {
				<-ctx.Done()
				cut.Add(1)
				return ctx.Err()
			}
			sendText(say, "done")
			return nil
		})))
		e := h.open()
		run := h.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		e.connection.silent.Store(true)
		time.Sleep(silentAfter + time.Second)
		e.connection.silent.Store(false)
		h.end(run)
		if cut.Load() != 1 || asked.Load() != 2 {
			t.Errorf("model called %d times and cut %d times, want 2 and 1", asked.Load(), cut.Load())
		}
		if got, released := h.run(run), len(h.released(run)); released != 0 || got.GetAttempt() != 2 {
			t.Errorf("run = %v, released %d times; want a second claim and no release", got, released)
		}
	})
}

func TestABrokenClaimStreamIsOpenedAgainWithTheHeldRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			sendText(say, "done")
			return nil
		})))
		e := h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		e.connection.cutStreams()
		if got := h.end(run); got.GetAttempt() != 1 {
			t.Errorf("run = %v, want a single claim", got)
		}
		if got := len(h.announced()); got != 2 {
			t.Fatalf("%d announcements, want 2", got)
		}
		again := h.announced()[1]
		if want := []string{run}; !slices.Equal(again.GetHeldRunIds(), want) || again.GetCredits() != 3 {
			t.Errorf("second announcement = %v, want the held run and 3 credits", again)
		}
	})
}

func TestAFencedWriterStopsItsRunWithoutAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "one "})
			pause(ctx, time.Second)
			sendText(say, "two")
			return nil
		})))
		h.faults.gate = func(context.Context, *streamv2.AppendRequest) error {
			return fault.New(fault.Stale, "WRITER_FENCED", "a newer epoch")
		}
		e := h.open()
		run := h.startRun("s", "demo", "hi")
		time.Sleep(h.config.HeldInterval / 2) // before a heartbeat that lists the held runs
		if got := h.written("s"); len(got) != 0 {
			t.Errorf("writes = %v, want none", got)
		}
		if got := e.worker.LiveRunIDs(); len(got) != 0 {
			t.Errorf("live runs = %v, want none", got)
		}
		if len(h.released(run)) != 0 {
			t.Errorf("the run was released, but it belongs to another executor")
		}
	})
}

// outage makes the stream tier unavailable until it ends.
type outage struct {
	mu    sync.Mutex
	ended bool
}

func (o *outage) gate(context.Context, *streamv2.AppendRequest) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")
	}
	return nil
}

func (o *outage) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = false
}

func (o *outage) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
}

func TestAStreamTierThatIsAwayFailsNoRunAndHoldsItUpForAShortTimeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := newSystem(t, define("demo", callsOnce("All done.", "slow", `{}`), slowTool(&runs)))
		h.config.Slots = 1
		away := &outage{}
		h.faults.gate = away.gate
		e := h.open()
		begin := time.Now()
		h.end(h.startRun("s", "demo", "hi"))
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the run took %v, want that of its tool", took)
		}
		h.end(h.startRun("t", "demo", "hi"))
		time.Sleep(h.config.StreamPatience)
		synctest.Wait()
		if got := e.worker.LiveRunIDs(); len(got) != 0 {
			t.Errorf("live runs = %v, want none", got)
		}
		want := []string{"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_start", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		for _, session := range []string{"s", "t"} {
			if got := frameTypes(h.stored(session)); !slices.Equal(got, want) {
				t.Errorf("steps of %s = %v, want %v", session, got, want)
			}
		}
	})
}

func TestAStreamTierThatComesBackInTheMiddleOfAStepIsShownTheRestOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		away := &outage{ended: true}
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			switch asked.Add(1) {
			case 1:
				say(model.TextDelta{Text: "One "})
				pause(ctx, time.Second)
				away.start()
				say(model.TextDelta{Text: "two "})
				pause(ctx, time.Minute)
				sendCalls(say, "nothing", `{}`)
			default:
				say(model.TextDelta{Text: "three "})
				pause(ctx, time.Minute)
				away.stop()
				pause(ctx, time.Minute)
				sendText(say, "four")
			}
			return nil
		})))
		h.faults.gate = away.gate
		h.open()
		h.end(h.startRun("s", "demo", "hi"))
		want := []string{
			"0 run_started 1", "1 step_started", "1 text One two ", "1 args call_0 {}", "1 end call_0", "1 step_committed",
			"2 step_started", "2 text three four", "2 step_committed", `2 run_completed "three four"`, `END "three four"`,
		}
		equalLines(t, "stream", streamLines(h.records("s")), want)
		h.verifyReaders("s")
		var reader publishertest.Reader
		reader.Read(h.history("s")...)
		if len(reader.ReadStored) != 1 || reader.ReadStored[0].UpTo != position.Committed(1) || !reader.Saw(position.Ended(2)) {
			t.Errorf("the reader asked for %v, want only the step committed meanwhile", reader.ReadStored)
		}
	})
}

func TestALogThatIsLostDuringALongReplyIsShownItAgainWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "one "})
			pause(ctx, time.Minute)
			sendText(say, "two")
			return nil
		})))
		h.open()
		run := h.startRun("s", "demo", "hi")
		time.Sleep(30 * time.Second)
		h.loseLog()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		var late publishertest.Reader
		late.Read(h.logs.get().recordsOf("s")...)
		if got := joinedText(framesOf(late.Chunks)); got != "one " {
			t.Errorf("a reader after the loss has %q, want the first delta", got)
		}
		h.end(run)
		equalLines(t, "stream", streamLines(h.records("s")), []string{
			"0 run_started 1", "1 step_started", "1 text one two", "1 step_committed", `1 run_completed "one two"`, `END "one two"`,
		})
		h.verifyReaders("s")
	})
}

func TestARetriedStepIsVoidBeforeTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "half"})
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		})))
		h.open()
		run := h.startRun("s", "demo", "hi")
		time.Sleep(500 * time.Millisecond) // the first wait is a second
		synctest.Wait()
		equalLines(t, "stream during the wait", streamLines(h.records("s")), []string{"0 run_started 1"})
		h.stopRun(run, statev1.StopKind_STOP_KIND_INTERRUPT, "enough")
		h.end(run)
		equalLines(t, "stream", streamLines(h.records("s")), []string{"0 run_started 1", "0 run_interrupted enough", "END INTERRUPTED "})
		h.verifyReaders("s")
	})
}

func TestTheSpansOfARunStayInTheTraceOfItsRequestAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		var runs atomic.Int32
		h := newSystem(t, define("demo", callsOnce("ok", "slow", `{}`), slowTool(&runs)))
		h.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
		first := h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		first.connection.kill()
		first.stop()
		h.open()
		h.end(run)
		<-first.ended
		names := map[string]int{}
		for _, span := range spans.Ended() {
			names[span.Name()]++
			if got, want := span.SpanContext().TraceID().String(), "0af7651916cd43dd8448eb211c80319c"; got != want {
				t.Errorf("span %s is in trace %s, want %s", span.Name(), got, want)
			}
		}
		if names["invoke_agent demo"] != 2 || names["chat mind"] != 2 || names["execute_tool slow"] != 1 {
			t.Errorf("spans = %v, want two runs, two model calls and one tool", names)
		}
	})
}
