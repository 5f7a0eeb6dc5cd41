package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

const (
	completed = statev1.RunStatus_RUN_STATUS_COMPLETED
	failed    = statev1.RunStatus_RUN_STATUS_FAILED
)

// alwaysText is a model with one reply.
func alwaysText(texts ...string) modelFunc {
	return func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
		sendText(say, texts...)
		return nil
	}
}

// callsOnce is a model that makes the calls once and then sends the text.
func callsOnce(text string, pairs ...string) modelFunc {
	return func(_ context.Context, r model.Request, say func(model.Event) bool) error {
		if endsWithResults(r) {
			sendText(say, text)
		} else {
			sendCalls(say, pairs...)
		}
		return nil
	}
}

func TestATextTurnIsShownAndCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", alwaysText("Hello ", "world")))
		h.open()
		run := h.end(h.startRun("s", "demo", "hi"))
		if run.GetStatus() != completed || run.GetOutput() != `"Hello world"` {
			t.Errorf("run = %v, want it completed with the text", run)
		}
		records := h.records("s")
		want := []string{"run_started", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		if got := frameTypes(records); !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
		if got, want := joinedText(records), "Hello world"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
		if got := records[len(records)-1].GetTerminal().GetEnd().GetUsage().GetTotalTokens(); got != 15 {
			t.Errorf("usage = %d tokens, want 15", got)
		}
		if got := h.usage(); len(got) != 1 || got[0].GetTokens().GetModel() != "fake/mind" {
			t.Errorf("usage entries = %v, want the tokens of one call", got)
		}
	})
}

func TestAToolTurnRunsTheToolAndAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lookup := agent.Tool{Name: "lookup", InputSchema: anyObject, Execute: func(_ context.Context, c *agent.Call) (any, error) {
			return map[string]string{"for": string(c.Input)}, nil
		}}
		h := newSystem(t, define("demo", callsOnce("Sunny.", "lookup", `{"city":"Oslo"}`, "nothing", `{}`), lookup))
		h.open()
		run := h.end(h.startRun("s", "demo", "weather?"))
		if run.GetOutput() != `"Sunny."` {
			t.Errorf("output = %s, want \"Sunny.\"", run.GetOutput())
		}
		got := frameTypes(h.records("s"))
		want := []string{
			"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end", "tool_start",
			"tool_end", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end",
		}
		if !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
		if got, want := len(h.messages("s")), 5; got != want {
			t.Errorf("%d messages, want %d", got, want)
		}
		if got, want := len(h.usage()), 3; got != want {
			t.Errorf("%d usage entries, want %d: two model calls and the call of a tool that exists", got, want)
		}
	})
}

func TestALaterTurnSeesTheWholeConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t, define("demo", modelFunc(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			sendText(say, fmt.Sprintf("%d messages, first %q", len(r.Messages), r.Messages[0].Text()))
			return nil
		})))
		h.open()
		for _, text := range []string{"one", "two", "three"} {
			h.end(h.startRun("s", "demo", text))
		}
		if got, want := h.runsOf("s")[2].GetOutput(), `"5 messages, first \"one\""`; got != want {
			t.Errorf("output = %s, want %s", got, want)
		}
	})
}

func TestNoMoreRunsThanSlotsAreHeldAndAllAreDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		h := newSystem(t, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			pause(ctx, time.Second)
			sendText(say, "ok")
			return nil
		})))
		h.config.Slots = 2
		h.open()
		var runs []string
		for i := range 7 {
			runs = append(runs, h.startRun(fmt.Sprintf("s.%d *", i), "demo", "hi"))
		}
		for _, run := range runs {
			h.end(run)
		}
		if most.Load() != 2 {
			t.Errorf("%d runs at once, want 2", most.Load())
		}
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func TestCallsOfOneStepRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var here atomic.Int32
		all := make(chan struct{})
		meet := agent.Tool{Name: "meet", InputSchema: anyObject, Execute: func(ctx context.Context, _ *agent.Call) (any, error) {
			if here.Add(1) == 3 {
				close(all)
			}
			select {
			case <-all:
				return "met", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		h := newSystem(t, define("demo", callsOnce("ok", "meet", `{}`, "meet", `{}`, "meet", `{}`), meet))
		h.open()
		h.end(h.startRun("s", "demo", "hi"))
		for _, r := range h.results() {
			if !r.GetSuccess() {
				t.Errorf("result = %v, want success", r)
			}
		}
	})
}

func TestWhateverAToolDoesTheModelGetsAResultAndTheRunGoesOn(t *testing.T) {
	t.Parallel()
	tool := func(run func(ctx context.Context) (any, error)) agent.Tool {
		return agent.Tool{Name: "tool", InputSchema: anyObject, Timeout: time.Second, Execute: func(ctx context.Context, _ *agent.Call) (any, error) { return run(ctx) }}
	}
	tests := map[string]struct {
		tool agent.Tool
		want string
	}{
		"it fails":                 {tool(func(context.Context) (any, error) { return nil, errors.New("no such city") }), "no such city"},
		"it panics":                {tool(func(context.Context) (any, error) { panic("boom") }), "has crashed"},
		"it takes too long":        {tool(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }), "did not end within 1s"},
		"it ignores its deadline":  {tool(func(context.Context) (any, error) { time.Sleep(2 * time.Second); return 1, nil }), "did not end within 1s"},
		"its result is too large":  {tool(func(context.Context) (any, error) { return strings.Repeat("x", 2<<20), nil }), "at most"},
		"state finds it too large": {tool(func(context.Context) (any, error) { return strings.Repeat("x", 200_000), nil }), "more than can be stored"},
		"its result is no JSON":    {tool(func(context.Context) (any, error) { return make(chan int), nil }), "cannot be written as JSON"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newSystem(t, define("demo", callsOnce("ok", "tool", `{}`), test.tool))
				h.environ = []string{"HOLDFAST_STATE_MAX_RESULT_BYTES=100000"}
				h.open()
				run := h.end(h.startRun("s", "demo", "hi"))
				if run.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", run)
				}
				if got := h.results()[0]; got.GetSuccess() || !strings.Contains(got.GetError(), test.want) {
					t.Errorf("result = %v, want a failure with %q", got, test.want)
				}
			})
		})
	}
}

func TestARunThatCannotGoOnFailsAndLeavesNoActiveSession(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		engine modelFunc
		code   string
	}{
		"the model panics":     {func(context.Context, model.Request, func(model.Event) bool) error { panic("boom") }, "framework_internal_error"},
		"the model is unclear": {func(context.Context, model.Request, func(model.Event) bool) error { return errors.New("odd") }, ""},
		"the model is broken":  {func(context.Context, model.Request, func(model.Event) bool) error { return nil }, model.CodeInvalidResponse},
		"the model hangs": {func(ctx context.Context, _ model.Request, _ func(model.Event) bool) error {
			<-ctx.Done()
			return ctx.Err()
		}, model.CodeTimeout},
		"the model calls on and on": {func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			sendCalls(say, "nothing", `{}`)
			return nil
		}, "framework_max_steps"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newSystem(t, define("demo", test.engine))
				h.open()
				run := h.end(h.startRun("s", "demo", "hi"))
				if run.GetStatus() != failed || run.GetFailure().GetCode() != test.code || run.GetFailure().GetError() == "" {
					t.Errorf("run = %v, want it failed with code %q", run, test.code)
				}
				got := frameTypes(h.records("s"))
				if want := []string{"error", "fail"}; !slices.Equal(got[len(got)-2:], want) {
					t.Errorf("stream = %v, want it to end with %v", got, want)
				}
			})
		})
	}
}

// announcing is a catalog that also announces the agent "other", which it lacks.
type announcing struct{ catalog.Static }

func (a announcing) Types() []catalog.Type {
	return append(a.Static.Types(), catalog.Type{Name: "other"})
}

func TestARunWithoutItsAgentIsReleasedForAnotherExecutor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSystem(t)
		h.catalog = announcing{catalog.Static{define("demo", alwaysText("hi"))}}
		first := h.open()
		run := h.startRun("s", "other", "hi")
		synctest.Wait()
		if released := h.released(run); len(released) != 1 || released[0].GetDelayMs() != 5000 || len(h.written("s")) != 0 {
			t.Errorf("run = %v, released by %v; want it released for 5s, untouched", h.run(run), released)
		}
		first.stop()
		h.catalog = catalog.Static{define("other", alwaysText("here"))}
		h.open()
		if run := h.end(run); run.GetOutput() != `"here"` {
			t.Errorf("run = %v, want that the other executor has executed it", run)
		}
	})
}

func TestAnOverloadedModelIsRetriedAfterASecondThenTwoThenFour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var times []time.Duration
		begin := time.Now()
		h := newSystem(t, define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			times = append(times, time.Since(begin))
			if len(times) <= 3 {
				say(model.TextDelta{Text: "half an ans"})
				return &model.Error{Code: model.CodeOverloaded, Retryable: true}
			}
			sendText(say, "whole")
			return nil
		})))
		h.open()
		h.end(h.startRun("s", "demo", "hi"))
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if !slices.Equal(times, want) {
			t.Errorf("model called at %v, want %v", times, want)
		}
		if got := joinedText(h.records("s")); got != "whole" {
			t.Errorf("text = %q, want %q: failed attempts are void", got, "whole")
		}
	})
}

func TestDeltasThatComeDuringAnAppendAreMerged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		words := make([]string, 1000)
		for i := range words {
			words[i] = fmt.Sprintf("%d ", i)
		}
		h := newSystem(t, define("demo", alwaysText(words...)))
		h.faults.gate = func(ctx context.Context, _ *streamv2.AppendRequest) error {
			pause(ctx, 100*time.Millisecond)
			return nil
		}
		h.open()
		h.end(h.startRun("s", "demo", "hi"))
		records := h.records("s")
		if got, want := joinedText(records), strings.Join(words, ""); got != want {
			t.Errorf("text has %d bytes, want the %d that the model sent", len(got), len(want))
		}
		if got := len(records); got > 10 {
			t.Errorf("%d records for 1000 words, want them merged", got)
		}
	})
}

func TestASlowStreamHoldsTheModelBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said atomic.Int64
		h := newSystem(t, define("demo", modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			for range 100 {
				say(model.TextDelta{Text: strings.Repeat("x", 1000)})
				said.Add(1000)
			}
			sendText(say, "end")
			return nil
		})))
		h.config.MaxQueuedBytes, h.config.MaxDeltaBytes = 10_000, 4_000
		open := make(chan struct{})
		h.faults.gate = func(ctx context.Context, r *streamv2.AppendRequest) error {
			if slices.ContainsFunc(r.GetRecords(), func(r *streamv2.Record) bool {
				return slices.ContainsFunc(r.GetChunks(), func(c *eventv1.Chunk) bool { return c.GetTextDelta() != nil })
			}) {
				select {
				case <-open:
				case <-ctx.Done():
				}
			}
			return nil
		}
		h.open()
		run := h.startRun("s", "demo", "hi")
		synctest.Wait()
		if got := said.Load(); got > 25_000 { // queued, and as much in the append in flight
			t.Errorf("the model sent %d bytes to a blocked stream, want about 20000 at most", got)
		}
		close(open)
		h.end(run)
		if got, want := len(joinedText(h.records("s"))), 100_003; got != want {
			t.Errorf("text has %d bytes, want %d", got, want)
		}
	})
}

func TestADeltaAboveTheLimitIsSplitBetweenRunes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("日本語", 1000)
		h := newSystem(t, define("demo", alwaysText(text)))
		h.config.MaxDeltaBytes = 1000
		h.open()
		h.end(h.startRun("s", "demo", "hi"))
		records := h.records("s")
		if got := joinedText(records); got != text {
			t.Errorf("text has %d bytes, want the %d that the model sent", len(got), len(text))
		}
		for _, r := range records {
			if n := len(r.GetChunk().GetTextDelta().GetDelta()); n > 1000 {
				t.Errorf("a delta has %d bytes, want 1000 at most", n)
			}
		}
	})
}

func TestWhatIsTooLargeForTheStreamIsOmittedThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 20_000)
		big := agent.Tool{Name: "big", InputSchema: anyObject, Execute: func(context.Context, *agent.Call) (any, error) { return long, nil }}
		h := newSystem(t, define("demo", callsOnce(long, "big", `{"q":"`+long+`"}`), big))
		h.config.MaxDeltaBytes = 1000
		h.environ = []string{"HOLDFAST_STREAM_CHUNK_BYTES=2000"}
		h.open()
		run := h.end(h.startRun("s", "demo", "hi"))
		if got, want := run.GetOutput(), `"`+long+`"`; got != want {
			t.Errorf("output has %d bytes, want %d", len(got), len(want))
		}
		records := h.records("s")
		if got := joinedText(records); got != long {
			t.Errorf("text has %d bytes, want %d", len(got), len(long))
		}
		var reader publishertest.Reader
		reader.Read(h.history("s")...)
		if len(reader.ReadStored) != 2 || reader.Ends[run.GetRunId()].GetEnd().GetOutput() != "" {
			t.Errorf("the reader asked for %v, want the step with the result and the end with the output", reader.ReadStored)
		}
	})
}
