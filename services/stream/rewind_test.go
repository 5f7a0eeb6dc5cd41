package stream_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

func TestARewindIsToldToThoseWhoHaveSeenWhatItVoids(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("rewound")
		lost := h.writer(ref, "run", 1)
		lost.say(t, 1, "a")
		before := lost.last
		lost.say(t, 1, "b")
		committed := lost.last
		saw := h.read(t, &streamv1.ReadRequest{Stream: ref})
		equal(t, []string{saw.next(t), saw.next(t), saw.next(t)}, "a", "b", "caught up")
		lost.say(t, 2, "x", "y")
		equal(t, []string{saw.next(t), saw.next(t)}, "x", "y")
		void := lost.last

		heir := h.writer(ref, "run", 2)
		answer := heir.rewind(t, before, 1)
		if answer.GetAt() != committed || answer.GetVoided() != 2 || len(answer.GetKept()) != 1 || said(answer.GetKept()[0].GetChunk()) != "b" {
			t.Errorf("got %v, want 2 voided after %d and b kept", answer, committed)
		}
		frame, err := saw.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		told := frame.GetRewound()
		if told.GetAt() != committed || told.GetSequence() != answer.GetSequence() || told.GetRunId() != "run" || told.GetReason() != "executor_lost" {
			t.Errorf("got %v, want rewound at %d by %d", frame, committed, answer.GetSequence())
		}
		refused(t, lost.text(t.Context(), 2, "z"), fault.Stale, "WRITER_FENCED")
		heir.say(t, 2, "c")
		heir.end(t, ended("run"))
		equal(t, saw.rest(t), "c", "end run")

		for cursor, want := range map[int64][]string{
			0:                    {"a", "b", "c", "end run"},
			committed:            {"c", "end run"},
			void:                 {"rewound", "c", "end run"},
			answer.GetSequence(): {"c", "end run"},
		} {
			equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor}).rest(t), want...)
		}
	})
}

func TestARewindIsSilentForThoseWhoHaveSeenNothingOfIt(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("silent")
		w := h.writer(ref, "run", 1)
		w.say(t, 1, "a")
		r := h.read(t, &streamv1.ReadRequest{Stream: ref})
		equal(t, []string{r.next(t), r.next(t)}, "a", "caught up")
		heir := h.writer(ref, "run", 2)
		if answer := heir.rewind(t, w.last, 1); answer.GetVoided() != 0 || answer.GetAt() != w.last || len(answer.GetKept()) != 0 {
			t.Errorf("got %v, want nothing voided", answer)
		}
		heir.say(t, 2, "b")
		heir.end(t, ended("run"))
		equal(t, r.rest(t), "b", "end run")
	})
}

func TestAWriterMayRewindItsOwnStep(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("retry"), "run", 1)
		w.say(t, 1, "a")
		committed := w.last
		for attempt := range 3 {
			w.say(t, 2, fmt.Sprint("try", attempt))
			if answer := w.rewind(t, committed, 1); answer.GetVoided() != 1 {
				t.Fatalf("attempt %d: got %v, want 1 voided", attempt, answer)
			}
		}
		w.say(t, 2, "b")
		equal(t, h.stored(t, w.ref), "a", "b", "caught up")
	})
}

func TestARewindOfAnEmptyStreamTakesTheWritersPlace(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("empty")
		heir := h.writer(ref, "run", 2)
		if answer := heir.rewind(t, 0, 0); answer.GetAt() != 0 || answer.GetVoided() != 0 {
			t.Errorf("got %v, want nothing voided at 0", answer)
		}
		refused(t, h.writer(ref, "run", 1).text(t.Context(), 1, "x"), fault.Stale, "WRITER_FENCED")
		heir.say(t, 1, "a")
		equal(t, h.stored(t, ref), "a", "caught up")
	})
}

func TestARepeatedRewindGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		lost := h.writer(refOf("again"), "run", 1)
		lost.say(t, 1, "a")
		lost.say(t, 2, "x")
		heir := h.writer(lost.ref, "run", 2)
		first := heir.rewind(t, 0, 1)
		heir.number = 0
		again := heir.rewind(t, 0, 1)
		if again.GetSequence() != first.GetSequence() || again.GetAt() != first.GetAt() || len(again.GetKept()) != 1 {
			t.Errorf("got %v, want the sequence and the records of %v", again, first)
		}
		heir.number = 0
		refused(t, heir.text(t.Context(), 2, "b"), fault.Stale, "APPEND_OUT_OF_ORDER")
		heir.number = 1
		heir.say(t, 2, "b")
		equal(t, h.stored(t, heir.ref), "a", "b", "caught up")
	})
}

func TestASettledRunsTerminalRecordStillEndsTheStream(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("settled")
		lost := h.writer(ref, "run", 1)
		lost.say(t, 1, "a")
		lost.end(t, ended("run"))
		heir := h.writer(ref, "run", 2)
		if answer := heir.rewind(t, 0, 1); len(answer.GetKept()) != 2 || answer.GetKept()[1].GetTerminal().GetRunId() != "run" {
			t.Errorf("got %v, want the chunk and the terminal record kept", answer)
		}
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref}).rest(t), "a", "end run")
		info, err := h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
		if err != nil || info.GetStatus() != streamv1.StreamStatus_STREAM_STATUS_ENDED {
			t.Errorf("got %v, %v; want an ended stream", info, err)
		}
		next := h.writer(ref, "next", 3)
		next.rewind(t, heir.last, 1)
		info, err = h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
		if err != nil || info.GetStatus() != streamv1.StreamStatus_STREAM_STATUS_ACTIVE {
			t.Errorf("got %v, %v; want an active stream: another run has taken it over", info, err)
		}
	})
}

func TestAMalformedRewindIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	for name, c := range map[string]struct {
		request *streamv1.RewindRequest
		reason  string
	}{
		"no stream":     {&streamv1.RewindRequest{Epoch: 1, Number: 1, RunId: "run"}, "ID_INVALID"},
		"no run":        {&streamv1.RewindRequest{Stream: refOf("s"), Epoch: 1, Number: 1}, "ID_INVALID"},
		"no epoch":      {&streamv1.RewindRequest{Stream: refOf("s"), Number: 1, RunId: "run"}, "CHUNK_INVALID"},
		"negative from": {&streamv1.RewindRequest{Stream: refOf("s"), Epoch: 1, Number: 1, RunId: "run", FromSequence: -1}, "CURSOR_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := h.Rewind(t.Context(), c.request)
			refused(t, err, fault.Invalid, c.reason)
		})
	}
}
