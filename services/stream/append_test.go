package stream_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// refused checks the kind and the reason of a refusal.
func refused(t *testing.T, err error, kind fault.Kind, reason string) {
	t.Helper()
	if !errors.Is(err, kind) || fault.ReasonOf(err) != reason {
		t.Fatalf("got %v, want %v (%s)", err, kind, reason)
	}
}

func TestAnOldEpochIsAlwaysRefused(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("fenced")
		old, young := h.writer(ref, "run", 1), h.writer(ref, "run", 2)
		old.say(t, 1, "a", "b")
		young.say(t, 1, "c")
		for range 3 {
			err := old.text(t.Context(), 1, "x")
			refused(t, err, fault.Stale, "WRITER_FENCED")
		}
		old.last = young.last // it cannot know it, and it must not help
		refused(t, old.text(t.Context(), 1, "x"), fault.Stale, "WRITER_FENCED")
		_, err := h.Rewind(t.Context(), &streamv1.RewindRequest{Stream: ref, Epoch: 1, Number: 3, RunId: "run"})
		refused(t, err, fault.Stale, "WRITER_FENCED")
		young.say(t, 1, "d")
		equal(t, h.stored(t, ref), "a", "b", "c", "d", "caught up")
	})
}

// stored returns what a reader from the beginning is told of what is stored.
func (h *house) stored(t *testing.T, ref *streamv1.StreamRef) []string {
	t.Helper()
	return h.read(t, &streamv1.ReadRequest{Stream: ref, HistoryOnly: true}).rest(t)
}

func TestARepeatedAppendGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("repeat")
		w := h.writer(ref, "run", 1)
		w.say(t, 1, "a")
		first := w.last
		for _, expected := range []int64{0, first, first - 1, first + 100} {
			w.number, w.last = 0, expected
			w.say(t, 1, "a")
			if w.last != first {
				t.Fatalf("expecting %d: got sequence %d, want %d", expected, w.last, first)
			}
		}
		w.say(t, 1, "b")
		equal(t, h.stored(t, ref), "a", "b", "caught up")
	})
}

func TestANumberThatIsNotTheNextIsRefused(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("numbers")
		w := h.writer(ref, "run", 3)
		w.number = 1
		refused(t, w.text(t.Context(), 1, "x"), fault.Stale, "APPEND_OUT_OF_ORDER")
		w.number = 0
		w.say(t, 1, "a", "b", "c")
		for _, number := range []int64{1, 2, 5, 99} {
			for _, expected := range []int64{0, w.last} {
				r := w.request()
				r.Number, r.ExpectedLastSequence = number, expected
				r.Record = &streamv1.AppendRequest_Chunk{Chunk: text("run", 1, "x")}
				_, err := h.Append(t.Context(), r)
				refused(t, err, fault.Stale, "APPEND_OUT_OF_ORDER")
			}
		}
		next := h.writer(ref, "run", 4)
		next.number = 3
		refused(t, next.text(t.Context(), 1, "x"), fault.Stale, "APPEND_OUT_OF_ORDER")
		equal(t, h.stored(t, ref), "a", "b", "c", "caught up")
	})
}

func TestOfManyWritersExactlyOneIsTheWriter(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("race")
		const writers, chunks = 6, 25
		var group sync.WaitGroup
		acknowledged := make([][]string, writers)
		for i := range writers {
			group.Go(func() {
				w := h.writer(ref, "run", int64(i+1))
				for n := range chunks {
					delta := fmt.Sprintf("%d-%d", i+1, n+1)
					err := w.text(t.Context(), 1, delta)
					if err != nil {
						if !errors.Is(err, fault.Stale) {
							t.Errorf("append: %v", err)
						}
						return
					}
					acknowledged[i] = append(acknowledged[i], delta)
				}
			})
		}
		group.Wait()
		var want []string // epochs only rise along the log
		for _, deltas := range acknowledged {
			want = append(want, deltas...)
		}
		equal(t, h.stored(t, ref), append(want, "caught up")...)
		if got := len(acknowledged[writers-1]); got != chunks {
			t.Errorf("the writer with the highest epoch wrote %d chunks, want %d", got, chunks)
		}
	})
}

func TestOneAppendSentManyTimesAtOnceIsStoredOnce(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("impatient")
		w := h.writer(ref, "run", 1)
		for n := range 20 {
			r := w.request()
			r.Record = &streamv1.AppendRequest_Chunk{Chunk: text("run", 1, fmt.Sprint(n))}
			var group sync.WaitGroup
			var answers [4]int64
			for i := range answers {
				group.Go(func() {
					answer, err := h.Append(t.Context(), r)
					if err != nil {
						t.Errorf("append %d: %v", n, err)
					}
					answers[i] = answer.GetSequence()
				})
			}
			group.Wait()
			if answers != [4]int64{answers[0], answers[0], answers[0], answers[0]} {
				t.Fatalf("append %d got sequences %v, want one", n, answers)
			}
			w.number, w.last = r.GetNumber(), answers[0]
		}
		if got := len(h.stored(t, ref)); got != 21 {
			t.Fatalf("got %d frames, want 20 chunks and caught up", got)
		}
	})
}

func TestATooLargeChunkIsRefusedBeforeASequenceIsTaken(t *testing.T) {
	t.Parallel()
	c := onMemory()
	c.ChunkBytes = 2048
	h := start(t, c)
	w := h.writer(refOf("large"), "run", 1)
	w.say(t, 1, "a")
	const room = 2048
	sized := func(bytes int) *streamv1.AppendRequest {
		c := text("run", 1, strings.Repeat("x", bytes))
		c.GetTextDelta().Delta = c.GetTextDelta().GetDelta()[:bytes-(proto.Size(c)-bytes)]
		if got := proto.Size(c); got != bytes {
			t.Fatalf("the chunk has %d bytes, want %d", got, bytes)
		}
		r := w.request()
		r.Record = &streamv1.AppendRequest_Chunk{Chunk: c}
		return r
	}
	before := w.last
	for range 3 {
		refused(t, w.append(t.Context(), sized(room+1)), fault.TooLarge, "CHUNK_TOO_LARGE")
	}
	if err := w.append(t.Context(), sized(room)); err != nil {
		t.Fatal(err)
	}
	if w.last != before+1 {
		t.Errorf("got sequence %d after %d: the refused chunk took one", w.last, before)
	}
}

func TestATerminalRecordIsNeverRefusedForItsSize(t *testing.T) {
	t.Parallel()
	c := onMemory()
	c.ChunkBytes = 8 << 10
	h := start(t, c)
	huge := strings.Repeat("ä", 1<<20)

	w := h.writer(refOf("huge end"), "run", 1)
	w.end(t, &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_End{End: &streamv1.End{
		Status: streamv1.EndStatus_END_STATUS_PAUSED, Output: `"` + huge + `"`,
	}}})
	frame, err := h.read(t, &streamv1.ReadRequest{Stream: w.ref}).stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	end := frame.GetEnd().GetEnd()
	if end.GetOutput() != "" || fmt.Sprint(end.GetOmitted()) != "[output]" || end.GetStatus() != streamv1.EndStatus_END_STATUS_PAUSED {
		t.Errorf("got %v, want a paused end that names the output as omitted", end)
	}

	w = h.writer(refOf("huge fail"), "run", 1)
	w.end(t, &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_Fail{Fail: &streamv1.Fail{Error: huge, Code: "c", Recoverable: true}}})
	frame, err = h.read(t, &streamv1.ReadRequest{Stream: w.ref}).stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	fail := frame.GetFail().GetFail()
	if !strings.HasPrefix(huge, fail.GetError()) || fail.GetError() == "" || fail.GetCode() != "c" || !fail.GetRecoverable() {
		t.Errorf("got an error of %d bytes, code %q, recoverable %v; want the beginning of the error and the rest whole",
			len(fail.GetError()), fail.GetCode(), fail.GetRecoverable())
	}
}

func TestAMalformedAppendIsRefused(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	good := func() *streamv1.AppendRequest {
		return &streamv1.AppendRequest{
			Stream: refOf("s"), Epoch: 1, Number: 1,
			Record: &streamv1.AppendRequest_Chunk{Chunk: text("run", 1, "x")},
		}
	}
	for name, c := range map[string]struct {
		spoil  func(*streamv1.AppendRequest)
		reason string
	}{
		"no stream":         {func(r *streamv1.AppendRequest) { r.Stream = nil }, "ID_INVALID"},
		"no tenant":         {func(r *streamv1.AppendRequest) { r.Stream.Tenant = "" }, "ID_INVALID"},
		"a long session":    {func(r *streamv1.AppendRequest) { r.Stream.SessionId = strings.Repeat("x", 257) }, "ID_INVALID"},
		"a control":         {func(r *streamv1.AppendRequest) { r.Stream.RootSessionId = "a\nb" }, "ID_INVALID"},
		"no epoch":          {func(r *streamv1.AppendRequest) { r.Epoch = 0 }, "CHUNK_INVALID"},
		"no number":         {func(r *streamv1.AppendRequest) { r.Number = 0 }, "CHUNK_INVALID"},
		"negative expected": {func(r *streamv1.AppendRequest) { r.ExpectedLastSequence = -1 }, "CURSOR_INVALID"},
		"no record":         {func(r *streamv1.AppendRequest) { r.Record = nil }, "CHUNK_INVALID"},
		"no agent id":       {func(r *streamv1.AppendRequest) { r.GetChunk().AgentId = "" }, "CHUNK_INVALID"},
		"a negative step":   {func(r *streamv1.AppendRequest) { r.GetChunk().Step = -1 }, "CHUNK_INVALID"},
		"no outcome": {func(r *streamv1.AppendRequest) {
			r.Record = &streamv1.AppendRequest_Terminal{Terminal: &streamv1.Terminal{RunId: "run"}}
		}, "CHUNK_INVALID"},
		"no run": {func(r *streamv1.AppendRequest) {
			r.Record = &streamv1.AppendRequest_Terminal{Terminal: ended("")}
		}, "CHUNK_INVALID"},
		"no end status": {func(r *streamv1.AppendRequest) {
			r.Record = &streamv1.AppendRequest_Terminal{Terminal: &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_End{End: &streamv1.End{}}}}
		}, "CHUNK_INVALID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good()
			c.spoil(r)
			_, err := h.Append(t.Context(), r)
			refused(t, err, fault.Invalid, c.reason)
		})
	}
}
