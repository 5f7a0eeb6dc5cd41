package stream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

func TestReadingFromEveryCutGivesTheRest(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("cuts"), "run", 1)
		var uncut []string
		cuts := []int64{0}
		for i := range 20 {
			delta := fmt.Sprint(i)
			w.say(t, int32(i/4), delta)
			uncut, cuts = append(uncut, delta), append(cuts, w.last)
		}
		w.end(t, ended("run"))
		uncut = append(uncut, "end run")
		for i, cut := range cuts {
			for _, run := range []string{"", "run"} {
				got := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cut, RunId: run}).rest(t)
				equal(t, got, uncut[i:]...)
			}
		}
	})
}

func TestAReaderGoesFromStoredToLive(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("live"), "run", 1)
		w.say(t, 1, "a", "b")
		r := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
		equal(t, []string{r.next(t), r.next(t), r.next(t)}, "a", "b", "caught up")
		w.say(t, 1, "c")
		equal(t, []string{r.next(t)}, "c")
		w.end(t, ended("run"))
		equal(t, r.rest(t), "end run")
	})
}

func TestAReaderMayComeBeforeTheWriter(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("early"), "run", 1)
		r := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
		equal(t, []string{r.next(t)}, "caught up")
		w.say(t, 1, "a")
		w.end(t, ended("run"))
		equal(t, r.rest(t), "a", "end run")
	})
}

func TestReadersThatComeAndGoWhileAWriterAppendsSeeEachChunkOnce(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		const chunks, readers = 150, 15
		w := h.writer(refOf("crowd"), "run", 1)
		var want []string
		for i := range chunks {
			want = append(want, fmt.Sprint(i))
		}
		var group sync.WaitGroup
		group.Go(func() {
			for i, delta := range want {
				if err := w.text(t.Context(), int32(i), delta); err != nil {
					t.Errorf("append: %v", err)
				}
			}
			r := w.request()
			r.Record = &streamv1.AppendRequest_Terminal{Terminal: ended("run")}
			if err := w.append(t.Context(), r); err != nil {
				t.Errorf("append terminal: %v", err)
			}
		})
		for i := range readers {
			group.Go(func() {
				got, err := h.hop(t, w.ref, i%5*7+1)
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
				} else if !slices.Equal(got, append(slices.Clone(want), "end run")) {
					t.Errorf("reader %d: got %d frames %q", i, len(got), got)
				}
			})
		}
		group.Wait()
	})
}

// hop reads a whole run, and attaches anew after each hold chunks (1 is never).
func (h *house) hop(t *testing.T, ref *streamv1.StreamRef, hold int) ([]string, error) {
	var got []string
	var cursor int64
	for {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		frames, next, err := h.some(ctx, &streamv1.ReadRequest{Stream: ref, FromSequence: cursor, RunId: "run"}, hold)
		cancel()
		got = append(got, frames...)
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil && fault.ReasonOf(err) != "READER_TOO_SLOW" {
			return got, err
		}
		cursor = max(cursor, next)
	}
}

// some reads up to hold chunks and returns them with the last sequence, and
// io.EOF at the end.
func (h *house) some(ctx context.Context, r *streamv1.ReadRequest, hold int) (frames []string, cursor int64, err error) {
	stream, err := h.Read(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	for hold == 1 || len(frames) < hold {
		frame, err := stream.Recv()
		if err != nil {
			return frames, cursor, err
		}
		if sequenceOf(frame) < cursor {
			return frames, cursor, fmt.Errorf("sequence %d after %d", sequenceOf(frame), cursor)
		}
		cursor = sequenceOf(frame)
		if frame.GetCaughtUp() == nil {
			frames = append(frames, words(frame))
		}
	}
	return frames, cursor, nil
}

func TestATerminalRecordEndsOnlyTheReadingOfItsRun(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("runs")
		one := h.writer(ref, "one", 1)
		one.say(t, 1, "a")
		one.end(t, ended("one"))
		first := one.last
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref}).rest(t), "a", "end one")

		two := h.writer(ref, "two", 2)
		two.say(t, 2, "b")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref, RunId: "one"}).rest(t), "a", "end one")
		r := h.read(t, &streamv1.ReadRequest{Stream: ref})
		equal(t, []string{r.next(t), r.next(t), r.next(t)}, "a", "b", "caught up")
		late := h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: first, RunId: "two"})
		equal(t, []string{late.next(t), late.next(t)}, "b", "caught up")
		two.end(t, &streamv1.Terminal{RunId: "two", Outcome: &streamv1.Terminal_Fail{Fail: &streamv1.Fail{Error: "no"}}})
		equal(t, r.rest(t), "fail two")
		equal(t, late.rest(t), "fail two")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref}).rest(t), "a", "b", "fail two")
	})
}

func TestAFamilyIsReadInOneOrderUntilItsRootEnds(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		root := refOf("family")
		below := &streamv1.StreamRef{Tenant: "acme", RootSessionId: "family", SessionId: "child"}
		parent, child := h.writer(root, "run", 1), h.writer(below, "child run", 1)
		parent.say(t, 1, "p1")
		child.say(t, 1, "c1")
		r := h.read(t, &streamv1.ReadRequest{Stream: root, Family: true})
		equal(t, []string{r.next(t), r.next(t), r.next(t)}, "p1", "c1", "caught up")
		child.say(t, 1, "c2")
		parent.say(t, 1, "p2")
		child.end(t, ended("child run"))
		parent.say(t, 1, "p3")
		parent.end(t, ended("run"))
		equal(t, r.rest(t), "c2", "p2", "p3", "end run")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: root, Family: true}).rest(t), "p1", "c1", "c2", "p2", "p3", "end run")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: root}).rest(t), "p1", "p2", "p3", "end run")

		r = h.read(t, &streamv1.ReadRequest{Stream: below, Family: true})
		_, err := r.drain()
		refused(t, err, fault.Invalid, "ID_INVALID")
	})
}

func TestACursorThatIsOfNoUseIsTruncated(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		w := h.writer(refOf("cursors"), "run", 1)
		w.say(t, 1, "a")
		above := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: w.last + 1000})
		frame, err := above.stream.Recv()
		if err != nil || frame.GetTruncated() == nil {
			t.Fatalf("got %v, %v; want truncated", frame, err)
		}
		equal(t, above.rest(t))
		again := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: frame.GetTruncated().GetFloor(), HistoryOnly: true})
		equal(t, again.rest(t), "a", "caught up")

		caughtUp := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: w.last, HistoryOnly: true})
		equal(t, caughtUp.rest(t), "caught up")
		_, err = h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: -1}).drain()
		refused(t, err, fault.Invalid, "CURSOR_INVALID")
	})
}

func TestAReaderIsToldWhatRetentionHasTaken(t *testing.T) {
	t.Parallel()
	onEachBusWith(t, func(c *stream.Config) { c.PartitionBytes, c.Partitions = 1<<20, 1 }, func(t *testing.T, h *house) {
		quiet := h.writer(refOf("quiet"), "run", 1)
		quiet.say(t, 1, "q1")
		early := quiet.last
		loud := h.writer(refOf("loud"), "run", 1)
		loud.say(t, 1, "first")
		first := loud.last
		for range 30 { // more than the partition keeps
			loud.say(t, 1, strings.Repeat("x", 64<<10))
		}
		recent := loud.last
		quiet.say(t, 1, "q2")
		loud.say(t, 1, "last")

		equal(t, h.stored(t, loud.ref), "truncated")
		equal(t, h.stored(t, quiet.ref), "truncated")
		for _, cut := range []struct {
			w      *writer
			cursor int64
			want   []string
		}{
			{loud, first, []string{"truncated"}},
			{loud, recent, []string{"last", "caught up"}},
			{quiet, early, []string{"q2", "caught up"}},
		} {
			got := h.read(t, &streamv1.ReadRequest{Stream: cut.w.ref, FromSequence: cut.cursor, HistoryOnly: true}).rest(t)
			equal(t, got, cut.want...)
		}
		fresh := h.writer(refOf("fresh"), "run", 1)
		equal(t, h.stored(t, fresh.ref), "caught up")
		fresh.say(t, 1, "f")
		equal(t, h.stored(t, fresh.ref), "f", "caught up")
	})
}

func TestASlowReaderIsCutAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	onEachBusWith(t, func(c *stream.Config) { c.ReaderChunks = 8 }, func(t *testing.T, h *house) {
		w := h.writer(refOf("slow"), "run", 1)
		slow := h.read(t, &streamv1.ReadRequest{Stream: w.ref})
		equal(t, []string{slow.next(t)}, "caught up")
		w.say(t, 1, "a")
		equal(t, []string{slow.next(t)}, "a")
		for range 60 { // more than the connection takes for a reader that does not read
			w.say(t, 1, strings.Repeat("x", 64<<10))
		}
		frames, err := slow.drain()
		refused(t, err, fault.Exhausted, "READER_TOO_SLOW")
		if len(frames) >= 60 {
			t.Errorf("the reader got all %d chunks; it was to be cut", len(frames))
		}
	})
}

func TestOpenReadersAreSentAwayAtShutdown(t *testing.T) {
	t.Parallel()
	h := start(t, onMemory())
	r := h.read(t, &streamv1.ReadRequest{Stream: refOf("shutdown")})
	equal(t, []string{r.next(t)}, "caught up")
	began := time.Now()
	h.stop()
	_, err := r.drain()
	refused(t, err, fault.Unavailable, "LOG_UNAVAILABLE")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the shutdown took %v: it waited for the reader", took)
	}
}

func TestInfoSaysWhereAStreamStands(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("info")
		_, err := h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
		refused(t, err, fault.NotFound, "STREAM_NOT_FOUND")
		w := h.writer(ref, "run", 7)
		w.say(t, 1, "a")
		first := w.last
		w.say(t, 1, "b")
		h.stands(t, ref, streamv1.StreamStatus_STREAM_STATUS_ACTIVE, first, w.last, 2)
		w.end(t, ended("run"))
		h.stands(t, ref, streamv1.StreamStatus_STREAM_STATUS_ENDED, first, w.last, 3)
		w.run = "next"
		w.say(t, 1, "c")
		h.stands(t, ref, streamv1.StreamStatus_STREAM_STATUS_ACTIVE, first, w.last, 4)
		w.end(t, paused("next"))
		h.stands(t, ref, streamv1.StreamStatus_STREAM_STATUS_PAUSED, first, w.last, 5)
		w.end(t, &streamv1.Terminal{RunId: "run", Outcome: &streamv1.Terminal_Fail{Fail: &streamv1.Fail{}}})
		h.stands(t, ref, streamv1.StreamStatus_STREAM_STATUS_FAILED, first, w.last, 6)
	})
}

func (h *house) stands(t *testing.T, ref *streamv1.StreamRef, status streamv1.StreamStatus, first, last, count int64) {
	t.Helper()
	info, err := h.GetInfo(t.Context(), &streamv1.GetInfoRequest{Stream: ref})
	if err != nil {
		t.Fatal(err)
	}
	if info.GetStatus() != status || info.GetFirstSequence() != first || info.GetLatestSequence() != last || info.GetTotalChunks() != count || info.GetEpoch() != 7 {
		t.Errorf("got %v, want %v from %d to %d with %d records", info, status, first, last, count)
	}
}
