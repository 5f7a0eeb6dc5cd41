package stream_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

func (w *writer) reset(t *testing.T) *streamv1.ResetResponse {
	t.Helper()
	answer, err := w.Reset(t.Context(), &streamv1.ResetRequest{
		Stream: w.ref, Epoch: w.epoch, Number: w.number + 1, ExpectedLastSequence: w.last, RunId: w.run,
	})
	if err != nil {
		t.Fatalf("reset: %v", err)
	}
	w.number++
	w.last = answer.GetSequence()
	return answer
}

func (w *writer) resume(t *testing.T) *streamv1.ResumeResponse {
	t.Helper()
	answer, err := w.Resume(t.Context(), &streamv1.ResumeRequest{
		Stream: w.ref, Epoch: w.epoch, Number: w.number + 1, ExpectedLastSequence: w.last, RunId: w.run,
	})
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	w.number++
	w.last = answer.GetSequence()
	return answer
}

func paused(run string) *streamv1.Terminal {
	return &streamv1.Terminal{RunId: run, Outcome: &streamv1.Terminal_End{End: &streamv1.End{Status: streamv1.EndStatus_END_STATUS_PAUSED}}}
}

func TestAResetStreamIsEmptyAndKnown(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("reset")
		w := h.writer(ref, "run", 1)
		w.say(t, 1, "a", "b")
		seen := w.last
		r := h.read(t, &streamv1.ReadRequest{Stream: ref, EveryRun: true})
		equal(t, []string{r.next(t), r.next(t), r.next(t)}, "a", "b", "caught up")
		w.end(t, ended("run"))
		equal(t, []string{r.next(t)}, "end run")
		late := h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: w.last, EveryRun: true})
		equal(t, []string{late.next(t)}, "caught up")

		heir := h.writer(ref, "next", 2)
		marker := heir.reset(t)
		frame, err := r.stream.Recv()
		if told := frame.GetRewound(); err != nil || told == nil || told.GetAt() != 0 || told.GetReason() != "reset" ||
			told.GetSequence() != marker.GetSequence() || told.GetSessionId() != "reset" || told.GetRunId() != "next" {
			t.Fatalf("got %v, %v; want rewound at 0 by the reset", frame, err)
		}
		equal(t, []string{late.next(t)}, "rewound")
		equal(t, h.stored(t, ref), "caught up")
		for _, cursor := range []int64{seen, w.last} {
			equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor, HistoryOnly: true}).rest(t), "rewound", "caught up")
		}
		list, err := h.List(t.Context(), &streamv1.ListRequest{Stream: ref})
		if err != nil || len(list.GetRecords()) != 0 || list.GetHasMore() || list.GetNextSequence() != marker.GetSequence() || list.GetLatestSequence() != marker.GetSequence() {
			t.Errorf("got %v, %v; want an empty list up to the marker", list, err)
		}
		info, err := h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
		if err != nil || info.GetStatus() != streamv1.StreamStatus_STREAM_STATUS_ACTIVE || info.GetFirstSequence() != marker.GetSequence() || info.GetEpoch() != 2 {
			t.Errorf("got %v, %v; want an active stream with the marker alone", info, err)
		}
		refused(t, w.text(t.Context(), 2, "x"), fault.Stale, "WRITER_FENCED")
		heir.say(t, 1, "c")
		equal(t, []string{r.next(t), late.next(t)}, "c", "c")
		equal(t, h.stored(t, ref), "c", "caught up")
	})
}

func TestAResetIsRepeatedAndFenced(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("reset again")
		w := h.writer(ref, "run", 2)
		w.say(t, 1, "a")
		first := w.reset(t)
		w.number--
		if again := w.reset(t); again.GetSequence() != first.GetSequence() {
			t.Errorf("got marker %d, want the first one, %d", again.GetSequence(), first.GetSequence())
		}
		w.say(t, 1, "b")
		for reason, r := range map[string]*streamv1.ResetRequest{
			"WRITER_FENCED":       {Stream: ref, Epoch: 1, Number: 1, RunId: "run"},
			"APPEND_OUT_OF_ORDER": {Stream: ref, Epoch: 2, Number: 2, RunId: "run"},
		} {
			_, err := h.Reset(t.Context(), r)
			refused(t, err, fault.Stale, reason)
		}
		equal(t, h.stored(t, ref), "b", "caught up")
	})
}

func TestAStreamThatWasNeverWrittenCanBeReset(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("reset first"), "run", 1)
		r := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
		equal(t, []string{r.next(t)}, "caught up")
		w.reset(t)
		w.say(t, 1, "a")
		w.end(t, ended("run"))
		equal(t, r.rest(t), "a", "end run")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: w.ref}).rest(t), "a", "end run")
	})
}

func TestARunThatHasEndedWritesNothingUntilItsStreamIsResumed(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("resumed")
		w := h.writer(ref, "run", 1)
		w.say(t, 1, "a")
		w.end(t, paused("run"))
		cursor := w.last
		for range 2 {
			refused(t, w.text(t.Context(), 1, "x"), fault.Conflict, "STREAM_NOT_ACTIVE")
		}
		heir := h.writer(ref, "run", 2)
		refused(t, heir.text(t.Context(), 1, "x"), fault.Conflict, "STREAM_NOT_ACTIVE")
		heir.rewind(t, w.last, 1) // settles the run; its stream stays paused
		refused(t, heir.text(t.Context(), 1, "x"), fault.Conflict, "STREAM_NOT_ACTIVE")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref}).rest(t), "a", "end run")

		first := heir.resume(t)
		heir.number--
		if again := heir.resume(t); again.GetSequence() != first.GetSequence() {
			t.Errorf("got marker %d, want the first one, %d", again.GetSequence(), first.GetSequence())
		}
		info, err := h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
		if err != nil || info.GetStatus() != streamv1.StreamStatus_STREAM_STATUS_ACTIVE {
			t.Errorf("got %v, %v; want an active stream", info, err)
		}
		r := h.read(t, &streamv1.ReadRequest{Stream: ref})
		equal(t, []string{r.next(t), r.next(t)}, "a", "caught up")
		late := h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor})
		equal(t, []string{late.next(t)}, "caught up")
		heir.say(t, 2, "b")
		heir.resume(t) // of an active stream: nobody is told
		heir.say(t, 2, "c")
		heir.end(t, ended("run"))
		equal(t, r.rest(t), "b", "c", "end run")
		equal(t, late.rest(t), "b", "c", "end run")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref, EveryRun: true, HistoryOnly: true}).rest(t),
			"a", "end run", "b", "c", "end run", "caught up")
	})
}

func TestAnotherRunMakesAnEndedStreamActiveByWriting(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("next run")
		one, two := h.writer(ref, "one", 1), h.writer(ref, "two", 2)
		one.end(t, ended("one"))
		two.say(t, 1, "b")
		equal(t, h.stored(t, ref), "b", "caught up")
		two.end(t, ended("two"))
		two.end(t, &streamv1.Terminal{RunId: "two", Outcome: &streamv1.Terminal_Fail{Fail: &streamv1.Fail{Error: "no"}}})
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref}).rest(t), "b", "fail two")
	})
}

func TestALastingReaderIsGivenEveryTerminalRecordInItsPlace(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		root := refOf("lasting")
		below := &streamv1.StreamRef{Tenant: "acme", RootSessionId: "lasting", SessionId: "child"}
		one, child := h.writer(root, "one", 1), h.writer(below, "child run", 1)
		one.say(t, 1, "a")
		child.say(t, 1, "c")
		child.end(t, ended("child run"))
		r := h.read(t, &streamv1.ReadRequest{Stream: root, Family: true, EveryRun: true})
		equal(t, []string{r.next(t), r.next(t), r.next(t), r.next(t)}, "a", "c", "end child run", "caught up")
		one.end(t, ended("one"))
		two := h.writer(root, "two", 2)
		two.say(t, 1, "b")
		two.end(t, &streamv1.Terminal{RunId: "two", Outcome: &streamv1.Terminal_Fail{Fail: &streamv1.Fail{Error: "no"}}})
		frame, err := r.stream.Recv()
		if err != nil || frame.GetEnd().GetSessionId() != "lasting" || frame.GetEnd().GetRunId() != "one" {
			t.Fatalf("got %v, %v; want the end of one with its session", frame, err)
		}
		equal(t, []string{r.next(t)}, "b")
		frame, err = r.stream.Recv()
		if err != nil || frame.GetFail().GetSessionId() != "lasting" || frame.GetFail().GetRunId() != "two" {
			t.Fatalf("got %v, %v; want the failure of two with its session", frame, err)
		}
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: root, Family: true, EveryRun: true, HistoryOnly: true}).rest(t),
			"a", "c", "end child run", "end one", "b", "fail two", "caught up")
	})
}

// TestAnOldWriterIsRefusedEveryTime has an old writer try between the appends of
// the new one, and at the same time as they are made.
func TestAnOldWriterIsRefusedEveryTime(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		const attempts = 500
		old := h.writer(refOf("persistent"), "run", 1)
		old.say(t, 1, "0")
		heir := h.writer(old.ref, "run", 2)
		heir.rewind(t, old.last, 1)
		want := []string{"0"}
		var group sync.WaitGroup
		group.Go(func() {
			for i := range attempts {
				r := old.request()
				r.Number += int64(i % 3)
				r.ExpectedLastSequence = old.last * int64(i%2)
				r.Record = &streamv1.AppendRequest_Chunk{Chunk: text("run", 1, "old")}
				if i%5 == 0 {
					r.Record = &streamv1.AppendRequest_Terminal{Terminal: ended("run")}
				}
				if _, err := h.Append(t.Context(), r); fault.ReasonOf(err) != "WRITER_FENCED" {
					t.Errorf("attempt %d: got %v, want WRITER_FENCED", i, err)
					return
				}
			}
		})
		for i := range attempts / 2 {
			want = append(want, fmt.Sprint(i+1))
			heir.say(t, 1, want[i+1])
		}
		group.Wait()
		equal(t, h.stored(t, old.ref), append(slices.Clone(want), "caught up")...)
	})
}

func TestAMalformedLifecycleRequestIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	type request struct {
		ref                     *streamv1.StreamRef
		epoch, number, expected int64
		run                     string
	}
	for name, c := range map[string]struct {
		request request
		reason  string
	}{
		"no stream":         {request{nil, 1, 1, 0, "run"}, "ID_INVALID"},
		"no run":            {request{refOf("s"), 1, 1, 0, ""}, "ID_INVALID"},
		"no epoch":          {request{refOf("s"), 0, 1, 0, "run"}, "CHUNK_INVALID"},
		"no number":         {request{refOf("s"), 1, 0, 0, "run"}, "CHUNK_INVALID"},
		"negative expected": {request{refOf("s"), 1, 1, -1, "run"}, "CURSOR_INVALID"},
	} {
		r := c.request
		_, resetErr := h.Reset(t.Context(), &streamv1.ResetRequest{Stream: r.ref, Epoch: r.epoch, Number: r.number, ExpectedLastSequence: r.expected, RunId: r.run})
		_, resumeErr := h.Resume(t.Context(), &streamv1.ResumeRequest{Stream: r.ref, Epoch: r.epoch, Number: r.number, ExpectedLastSequence: r.expected, RunId: r.run})
		for call, err := range map[string]error{"reset": resetErr, "resume": resumeErr} {
			if fault.KindOf(err) != fault.Invalid || fault.ReasonOf(err) != c.reason {
				t.Errorf("%s, %s: got %v, want %s", call, name, err, c.reason)
			}
		}
	}
}
