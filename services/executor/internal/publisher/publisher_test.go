package publisher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

func startWith(t *testing.T, log *publishertest.Log, c publisher.Claim, config publisher.Config) *publisher.Publisher {
	t.Helper()
	p := publisher.New(publishertest.Client{Log: log}, c, config, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p
}

func event(step int32, name string) *eventv1.Chunk {
	return &eventv1.Chunk{Step: step, Timestamp: 7, Event: &eventv1.Chunk_Custom{Custom: &eventv1.Custom{EventName: name}}}
}

func stepStarted(step int32) *eventv1.Chunk {
	return &eventv1.Chunk{Step: step, Timestamp: 5, Event: &eventv1.Chunk_StepStarted{StepStarted: &eventv1.StepStarted{}}}
}

func toolEnd(step int32, result string) *eventv1.Chunk {
	return &eventv1.Chunk{Step: step, Timestamp: 9, Event: &eventv1.Chunk_ToolEnd{ToolEnd: &eventv1.ToolEnd{ToolCallId: "call", Result: result}}}
}

func show(t *testing.T, p *publisher.Publisher, chunks ...*eventv1.Chunk) {
	t.Helper()
	if err := p.Show(t.Context(), chunks...); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, p *publisher.Publisher) {
	t.Helper()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lines describes records: "1/33.1 begins[reason] <chunks>", or "1/2047.… boundary after 1/33.2".
func lines(records []*streamv2.Record) []string {
	var all []string
	for _, r := range records {
		at := position.Of(r.GetSequence())
		line := fmt.Sprintf("%d/%d.%d", at.Step, at.Attempt, at.N)
		if a := r.GetAttempt(); a != nil {
			line += " begins[" + a.GetReason() + "]"
		}
		if b := r.GetBoundary(); b != nil {
			last := position.Of(b.GetLast())
			line += fmt.Sprintf(" boundary behind %d/%d.%d", last.Step, last.Attempt, last.N)
		}
		for _, c := range r.GetChunks() {
			line += " " + cmp.Or(c.GetTextDelta().GetDelta(), c.GetCustom().GetEventName(), c.Type())
		}
		all = append(all, line)
	}
	return all
}

func expect(t *testing.T, log *publishertest.Log, want ...string) {
	t.Helper()
	if got := lines(log.History("s")); !slices.Equal(got, want) {
		t.Errorf("the log was sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if faults := log.Faults(); len(faults) > 0 {
		t.Errorf("the publisher broke the rules: %v", faults)
	}
}

func TestWhatWaitsGoesInOneRecordAndTheBoundaryNamesTheLastChunk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		show(t, p, stepStarted(1), text(1, "a"), toolEnd(1, ""))
		flush(t, p)
		show(t, p, text(1, "b"))
		show(t, p, text(1, "c"))
		p.Commit(committed(1), nil)
		show(t, p, text(2, "d"))
		p.Commit(committed(2), &publisher.Ended{Chunk: event(2, "end"), Terminal: &streamv2.Terminal{RunId: "run"}})
		flush(t, p)
		expect(t, log,
			"1/33.1 begins[] step_started a tool_end", "1/33.4 bc", "1/2047.524285 boundary behind 1/33.4",
			"2/1.1 begins[] d", "2/2047.524287 boundary behind 2/1.1")
		records := log.Records("s")
		if got, want := records[3].GetAttempt().GetStands(), position.Committed(1); got != want {
			t.Errorf("the attempt at step 2 stands behind %d, want %d", got, want)
		}
		if b := records[4].GetBoundary(); b.GetEnd().GetRunId() != "run" || b.GetRunEnded() == nil || b.GetStepCommitted() == nil {
			t.Errorf("the last boundary is %v, want the commit and the end", b)
		}
	})
}

func TestANewOwnerVoidsWhatTheFormerOneHasShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		former := start(t, log, claim())
		show(t, former, text(1, "a"))
		flush(t, former)
		second := claim()
		second.Epoch, second.Claims, second.TakenOver = 2, 2, true
		p := start(t, log, second)
		show(t, p, text(1, "b"))
		flush(t, p)
		expect(t, log, "1/33.1 begins[] a", "1/65.1 begins[executor_lost] b")
		show(t, former, text(1, "c"))
		if err := former.Flush(t.Context()); !errors.Is(err, publisher.ErrFenced) {
			t.Errorf("Flush of the former owner = %v, want ErrFenced", err)
		}
		if err := former.Show(t.Context(), text(1, "d")); !errors.Is(err, publisher.ErrFenced) {
			t.Errorf("Show of the former owner = %v, want ErrFenced", err)
		}
	})
}

func TestARetryTakesTheStepBackAtOnceAndWhatCameBeforeItStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		show(t, p, event(0, "early"), text(1, "a"))
		flush(t, p)
		p.Retry(publisher.ReasonStepRetried)
		flush(t, p)
		show(t, p, text(1, "b"))
		p.Commit(committed(1), nil)
		show(t, p, text(2, "c"))
		flush(t, p)
		p.Retry(publisher.ReasonStepRetried)
		flush(t, p)
		expect(t, log, "1/33.1 begins[] early a", "1/34.1 begins[step_retried] early", "1/34.2 b", "1/2047.524285 boundary behind 1/34.2",
			"2/1.1 begins[] c", "2/2.0 begins[step_retried]")
	})
}

func TestAnEndOutsideOfAStepTakesTheStepBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		show(t, p, event(0, "early"), text(1, "a"))
		flush(t, p)
		p.End(publisher.Ended{Chunk: event(0, "failed"), Terminal: &streamv2.Terminal{RunId: "run"}})
		flush(t, p)
		expect(t, log, "1/33.1 begins[] early a", "1/34.1 begins[step_retried] early", "1/64.524287 boundary behind 1/34.1")
		if got, want := log.Records("s")[2].GetSequence(), position.OutsideStep(1, 1); got != want {
			t.Errorf("the end stands at %d, want %d", got, want)
		}
	})
}

func TestASilentPublisherFindsThatTheLogWasLostAndShowsTheStepAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		var calls atomic.Int32
		log.Gate = func(context.Context, *streamv2.AppendRequest) error { calls.Add(1); return nil }
		p := start(t, log, claim())
		show(t, p, text(1, "a"))
		flush(t, p)
		log.Lose()
		time.Sleep(6 * time.Second)
		expect(t, log, "1/33.1 begins[] a", "1/34.1 begins[log_lost] a")
		calls.Store(0)
		time.Sleep(10 * time.Minute)
		if got := calls.Load(); got < 20 || got > 25 {
			t.Errorf("%d checks in ten minutes of silence, want one in 30 seconds", got)
		}
		p.Commit(committed(1), nil)
		flush(t, p)
		calls.Store(0)
		time.Sleep(10 * time.Minute)
		if got := calls.Load(); got != 0 {
			t.Errorf("%d checks of a step that nothing was shown of, want none", got)
		}
	})
}

func TestALogThatIsAwayHoldsNobodyUpForLongerThanThePatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		show(t, p, text(1, "a"))
		flush(t, p)
		log.Down.Store(true)
		begin := time.Now()
		show(t, p, text(1, "b"))
		flush(t, p)
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("Flush waited %v, want the patience of 10s", waited)
		}
		begin = time.Now()
		for range 20 {
			show(t, p, text(1, strings.Repeat("c", 900)))
		}
		flush(t, p)
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("a log that is away was waited for %v, want not at all", waited)
		}
		log.Down.Store(false)
		time.Sleep(2 * time.Second)
		var reader publishertest.Reader
		reader.Read(log.History("s")...)
		if got := len(joined(reader.Chunks)); got != 2+20*900 || len(reader.ReadStored) > 0 {
			t.Errorf("the reader has %d bytes and asked %v, want all of them without a question", got, reader.ReadStored)
		}
	})
}

func TestAStepThatIsCommittedWhileTheLogIsAwayIsNotShownAfterwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		show(t, p, text(1, "a"))
		flush(t, p)
		log.Down.Store(true)
		show(t, p, text(1, "b"))
		flush(t, p)
		p.Commit(committed(1), nil)
		show(t, p, text(2, "c"))
		p.Commit(committed(2), nil)
		show(t, p, text(3, "d"))
		log.Down.Store(false)
		time.Sleep(2 * time.Second)
		expect(t, log, "1/33.1 begins[] a", "2/2047.524285 boundary behind 0/0.0", "3/1.1 begins[] d")
	})
}

func TestAnAppendWithoutAnswerIsRepeatedAndStoredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := openPlayWith(t, log, []outcome{{After: true}, {Before: true}, {After: true}})
		show(t, p, text(1, "a"))
		flush(t, p)
		show(t, p, text(1, "b"))
		flush(t, p)
		expect(t, log, "1/33.1 begins[] a", "1/33.2 b")
	})
}

func TestAChunkThatTheLogFindsTooLargeIsHalvedOrLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{MaxChunk: 500}
		p := start(t, log, claim())
		show(t, p, text(1, strings.Repeat("a", 900)), text(1, "b"))
		p.Commit(committed(1), nil)
		show(t, p, text(2, "c"), toolEnd(2, strings.Repeat("d", 900)))
		p.Commit(committed(2), nil)
		flush(t, p)
		var reader publishertest.Reader
		reader.Read(log.History("s")...)
		if got := joined(reader.Chunks); got != strings.Repeat("a", 900)+"b" {
			t.Errorf("the reader has %q, want step 1 as it was shown", got)
		}
		want := []publishertest.Range{{After: position.Start(2), UpTo: position.Committed(2)}}
		if !slices.Equal(reader.ReadStored, want) {
			t.Errorf("the reader asked for %v, want %v: step 2 was shown without the end of its call", reader.ReadStored, want)
		}
	})
}

func TestAChunkThatTheLogNeverTakesIsLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{MaxChunk: 50}
		p := start(t, log, claim())
		show(t, p, event(1, strings.Repeat("e", 100)), text(1, "a"))
		p.Commit(committed(1), nil)
		flush(t, p)
		expect(t, log, "1/33.1 begins[] a", "1/2047.524285 boundary behind 0/0.0")
	})
}

func TestAnAppendThatTheLogFindsTooLargeGoesInSmallerOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{MaxAppend: 300}
		p := start(t, log, claim())
		var want []string
		for i := range 40 {
			name := fmt.Sprint("event ", i)
			show(t, p, event(1, name))
			want = append(want, name)
		}
		p.Commit(committed(1), nil)
		flush(t, p)
		var reader publishertest.Reader
		reader.Read(log.History("s")...)
		var got []string
		for _, c := range reader.Chunks {
			if c.GetCustom() != nil {
				got = append(got, c.GetCustom().GetEventName())
			}
		}
		if !slices.Equal(got, want) || len(reader.ReadStored) > 0 {
			t.Errorf("the reader has %q and asked %v, want all events without a question", got, reader.ReadStored)
		}
		if faults := log.Faults(); len(faults) > 0 {
			t.Errorf("the publisher broke the rules: %v", faults)
		}
	})
}

func TestAMarkThatTheLogNeverTakesEndsInTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		log.Gate = func(_ context.Context, r *streamv2.AppendRequest) error {
			if slices.ContainsFunc(r.GetRecords(), func(r *streamv2.Record) bool { return r.GetAttempt() != nil }) {
				return fault.New(fault.Invalid, "RECORD_INVALID", "an attempt")
			}
			return nil
		}
		p := start(t, log, claim())
		show(t, p, text(1, "a"), event(1, "b"))
		flush(t, p)
		p.Commit(committed(1), nil)
		flush(t, p)
		expect(t, log, "1/2047.524285 boundary behind 0/0.0")
	})
}

func TestShowWaitsWhileTooMuchIsQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{Gate: func(context.Context, *streamv2.AppendRequest) error { time.Sleep(time.Second / 2); return nil }}
		p := start(t, log, claim())
		begin := time.Now()
		for range 10 {
			show(t, p, toolEnd(1, strings.Repeat("x", 1000)))
		}
		if waited := time.Since(begin); waited < time.Second {
			t.Errorf("10 KB went into a queue of 4 KB within %v", waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin = time.Now()
		if err := p.Show(ctx, toolEnd(1, strings.Repeat("x", 9000))); err != nil || time.Since(begin) > 0 {
			t.Errorf("Show with an ended context = %v after %v, want no wait", err, time.Since(begin))
		}
	})
}

func TestWhereTheAttemptsAreUsedUpNothingIsShownUntilTheCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &publishertest.Log{}
		p := start(t, log, claim())
		for range position.PerClaim + 3 {
			show(t, p, text(1, "a"))
			flush(t, p)
			p.Retry(publisher.ReasonStepRetried)
			flush(t, p)
		}
		p.Commit(committed(1), nil)
		show(t, p, text(2, "b"))
		flush(t, p)
		got := lines(log.History("s"))
		want := []string{"1/64.1 a", "1/2047.524285 boundary behind 0/0.0", "2/1.1 begins[] b"}
		if got := got[len(got)-3:]; !slices.Equal(got, want) {
			t.Errorf("the log ends with %q, want %q", got, want)
		}
		for _, claims := range []int32{-1, position.MaxClaims + 1} {
			c := claim()
			c.Claims = claims
			log := &publishertest.Log{}
			p := start(t, log, c)
			show(t, p, text(1, "a"))
			p.Commit(committed(1), nil)
			show(t, p, text(2, "b"))
			flush(t, p)
			expect(t, log, "1/2047.524285 boundary behind 0/0.0", "2/1.1 begins[] b")
		}
	})
}

func TestTheRecordHasWhatNoMessageHoldsInTheOrderShown(t *testing.T) {
	t.Parallel()
	p := publisher.New(nil, claim(), publisher.Config{MaxDeltaBytes: 1000, MaxQueuedBytes: 1 << 20}, slog.New(slog.DiscardHandler))
	transient := event(1, "fleeting")
	transient.GetCustom().Transient = true
	start := &eventv1.Chunk{Step: 1, Event: &eventv1.Chunk_ToolStart{ToolStart: &eventv1.ToolStart{ToolCallId: "call", AwaitsClient: true}}}
	show(t, p, event(0, "early"), stepStarted(1), text(1, "void"), event(1, "void"))
	p.Retry(publisher.ReasonStepRetried)
	show(t, p, stepStarted(1), event(1, "before"), text(1, "a"), text(1, "b"), start, transient, toolEnd(1, "{}"), event(1, "after"))
	var got []string
	for _, e := range p.Record().GetEvents() {
		got = append(got, strings.Join([]string{
			e.GetCustom().GetEventName(), e.GetToolStart().GetToolCallId(), e.GetToolEnd(), map[bool]string{true: "reply"}[e.GetReply() != nil],
		}, ""))
	}
	if want := []string{"early", "before", "reply", "call", "call", "after"}; !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}
	if r := p.Record(); r.GetStartedAt() != 5 || r.GetEvents()[1].GetTimestamp() != 7 || !r.GetEvents()[3].GetToolStart().GetAwaitsClient() {
		t.Errorf("record = %v, want the times of the chunks and that a client is waited for", r)
	}
	p.Commit(committed(1), nil)
	if r := p.Record(); len(r.GetEvents()) > 0 || r.GetStartedAt() != 0 {
		t.Errorf("record of the next step = %v, want it empty", r)
	}
}

func TestARecordLeavesOutTheEventsThatAreTooMuchTogether(t *testing.T) {
	t.Parallel()
	p := publisher.New(nil, claim(), publisher.Config{MaxDeltaBytes: 1000, MaxQueuedBytes: 1 << 30}, slog.New(slog.DiscardHandler))
	large := event(1, strings.Repeat("x", 3<<20))
	show(t, p, large, event(1, strings.Repeat("y", 3<<20)), toolEnd(1, "{}"))
	events := p.Record().GetEvents()
	if len(events) != 2 || !strings.HasPrefix(events[0].GetCustom().GetEventName(), "x") || events[1].GetToolEnd() == "" {
		t.Errorf("%d events, want the first large one and the end of the call", len(events))
	}
}

func joined(chunks []*eventv1.Chunk) string {
	var all strings.Builder
	for _, c := range chunks {
		all.WriteString(c.GetTextDelta().GetDelta())
	}
	return all.String()
}
