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
		h.ended(run)
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
		h.ended(run)
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
		h.ended(run)
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
		h.ended(run)
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
		h.ended(run)
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
		if got := h.ended(run); got.GetAttempt() != 1 {
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
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "one "})
			pause(ctx, time.Second)
			speak(say, "two")
			return nil
		})))
		h.stream.Gate = func(context.Context, *streamv2.AppendRequest) error {
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

func (o *outage) gate(context.Context, *streamv2.AppendRequest) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")
	}
	return nil
}

func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = false
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

func TestAStreamTierThatIsAwayFailsNoRunAndHoldsItUpForAShortTimeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := newHouse(t, definition("demo", calls("All done.", "slow", `{}`), slowTool(&runs)))
		h.config.Slots = 1
		away := &outage{}
		h.stream.Gate = away.gate
		e := h.open()
		begin := time.Now()
		h.ended(h.state.startRun("s", "demo", "hi"))
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the run took %v, want that of its tool", took)
		}
		h.ended(h.state.startRun("t", "demo", "hi"))
		time.Sleep(h.config.StreamPatience)
		synctest.Wait()
		if got := e.worker.LiveRunIDs(); len(got) != 0 {
			t.Errorf("live runs = %v, want none: nothing is left to do for them", got)
		}
		want := []string{"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_start", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		for _, session := range []string{"s", "t"} {
			if got := types(h.stream.stored(session)); !slices.Equal(got, want) {
				t.Errorf("steps of %s = %v, want %v", session, got, want)
			}
		}
	})
}

func TestAStreamTierThatComesBackInTheMiddleOfAStepIsShownTheRestOfIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		away := &outage{over: true}
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			switch asked.Add(1) {
			case 1:
				say(model.TextDelta{Text: "One "})
				pause(ctx, time.Second)
				away.begin()
				say(model.TextDelta{Text: "two "})
				pause(ctx, time.Minute)
				request(say, "nothing", `{}`)
			default:
				say(model.TextDelta{Text: "three "})
				pause(ctx, time.Minute)
				away.end()
				pause(ctx, time.Minute)
				speak(say, "four")
			}
			return nil
		})))
		h.stream.Gate = away.gate
		h.open()
		h.ended(h.state.startRun("s", "demo", "hi"))
		want := []string{
			"0 run_started 1", "1 step_started", "1 text One two ", "1 args call_0 {}", "1 end call_0", "1 step_committed",
			"2 step_started", "2 text three four", "2 step_committed", `2 run_completed "three four"`, `END "three four"`,
		}
		equalLines(t, "stream", script(h.stream.records("s")), want)
		h.verifyReaders("s")
		var reader publishertest.Reader
		reader.Read(h.stream.History("s")...)
		if len(reader.Asked) != 1 || reader.Asked[0].UpTo != position.Committed(1) || !reader.Saw(position.Ended(2)) {
			t.Errorf("the reader asked for %v, want the step that was committed meanwhile alone", reader.Asked)
		}
	})
}

func TestALogThatIsLostDuringALongReplyIsShownItAgainWhileTheModelSpeaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "one "})
			pause(ctx, time.Minute)
			speak(say, "two")
			return nil
		})))
		h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(30 * time.Second)
		h.stream.Lose()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		var late publishertest.Reader
		late.Read(h.stream.Records("s")...)
		if got := texts(framesOf(late.Chunks)); got != "one " {
			t.Errorf("a reader that comes behind the loss has %q, want what was said", got)
		}
		h.ended(run)
		equalLines(t, "stream", script(h.stream.records("s")), []string{
			"0 run_started 1", "1 step_started", "1 text one two", "1 step_committed", `1 run_completed "one two"`, `END "one two"`,
		})
		h.verifyReaders("s")
	})
}

func TestAStepThatIsRetriedIsTakenBackBeforeTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "half"})
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		})))
		h.open()
		run := h.state.startRun("s", "demo", "hi")
		time.Sleep(500 * time.Millisecond) // the first wait is a second
		synctest.Wait()
		equalLines(t, "stream during the wait", script(h.stream.records("s")), []string{"0 run_started 1"})
		h.state.stopRun(run, statev1.StopKind_STOP_KIND_INTERRUPT, "enough")
		h.ended(run)
		equalLines(t, "stream", script(h.stream.records("s")), []string{"0 run_started 1", "0 run_interrupted enough", "END INTERRUPTED "})
		h.verifyReaders("s")
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
		h.ended(run)
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
