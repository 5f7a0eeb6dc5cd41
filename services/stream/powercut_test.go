package stream_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// copyOf copies a directory into a new one.
func copyOf(t *testing.T, directory string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	return to
}

// follower reads a session for as long as it takes, as a gateway does: it comes
// back after a drop, and loads again when it is told to.
type follower struct {
	house    *house
	ref      *streamv1.StreamRef
	recorded int64
	held     []held
	cursor   int64
	told     int // how often it was told that what it has is void
}

type held struct {
	sequence int64
	delta    string
}

// until follows until it holds the chunk with the text, and everything before it.
func (f *follower) until(t *testing.T, last string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		done, err := f.once(ctx, last)
		if done {
			return
		}
		if err != nil && !errors.Is(err, fault.Unavailable) || ctx.Err() != nil {
			t.Fatalf("follow to %q: %v; it holds %v", last, err, f.held)
		}
	}
}

func (f *follower) once(ctx context.Context, last string) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.house.Read(ctx, &streamv1.ReadRequest{
		Stream: f.ref, FromSequence: f.cursor, RecordedSequence: f.recorded, EveryRun: true, Family: true,
	})
	if err != nil {
		return false, err
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			return false, err
		}
		if f.take(frame); len(f.held) > 0 && f.held[len(f.held)-1].delta == last {
			return true, nil
		}
		if frame.GetTruncated() != nil {
			return false, nil
		}
	}
}

func (f *follower) take(frame *streamv1.ReadResponse) {
	switch body := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		f.held = append(f.held, held{body.Chunk.GetSequence(), said(body.Chunk.GetChunk())})
	case *streamv1.ReadResponse_Rewound:
		f.told++
		for len(f.held) > 0 && f.held[len(f.held)-1].sequence > body.Rewound.GetAt() {
			f.held = f.held[:len(f.held)-1]
		}
	case *streamv1.ReadResponse_Truncated:
		f.told++
		f.held, f.recorded = nil, 0 // its session has nothing that was committed
		f.cursor = body.Truncated.GetFloor()
	}
	f.cursor = max(f.cursor, sequenceOf(frame))
}

func (f *follower) deltas() string {
	var deltas []string
	for _, h := range f.held {
		deltas = append(deltas, h.delta)
	}
	return fmt.Sprint(deltas)
}

// tellAgain does what an executor does whose log was lost.
func (w *writer) tellAgain(t *testing.T, deltas ...string) {
	t.Helper()
	if answer := w.rewind(t, 0, 0); answer.GetAt() != 0 || len(answer.GetKept()) != 0 {
		t.Fatalf("got %v, want nothing that stands", answer)
	}
	w.say(t, 1, deltas...)
}

// TestAPowerCutIsNoticedAndRepaired takes the end of the log away under a running
// service, with readers that are live, that come back, and that come for the
// first time.
func TestAPowerCutIsNoticedAndRepaired(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ns := natstest.StartSolo(t, directory)
	c := onNATS(ns)
	c.Partitions = 1
	h := start(t, c)
	w, idle := h.writer(refOf("cut"), "run", 1), h.writer(refOf("idle"), "run", 1)
	live, back := &follower{house: h, ref: w.ref}, &follower{house: h, ref: w.ref}
	w.say(t, 1, "a", "b")
	idle.say(t, 1, "i")
	live.until(t, "b")
	ns.Stop()
	before := copyOf(t, directory)

	ns.Start(t, directory)
	for _, delta := range []string{"c", "d"} {
		if err := w.insist(t, delta); err != nil {
			t.Fatal(err)
		}
	}
	if err := idle.insist(t, "j"); err != nil {
		t.Fatal(err)
	}
	live.until(t, "d")
	back.until(t, "d")
	watching := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: live.cursor, EveryRun: true})
	equal(t, []string{watching.next(t)}, "caught up")
	resting := h.read(t, &streamv1.ReadRequest{Stream: idle.ref, FromSequence: idle.last})
	equal(t, []string{resting.next(t)}, "caught up")
	ns.Stop()

	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(directory, os.DirFS(before)); err != nil {
		t.Fatal(err)
	}
	ns.Start(t, directory)
	refused(t, w.insist(t, "e"), fault.Stale, "LOG_RENEWED")
	equal(t, watching.rest(t), "truncated")
	equal(t, resting.rest(t), "truncated")
	w.tellAgain(t, "a2", "b2", "c2", "d2", "e2")
	for name, f := range map[string]*follower{"live": live, "back": back, "new": {house: h, ref: w.ref}} {
		f.until(t, "e2")
		if got := f.deltas(); got != "[a2 b2 c2 d2 e2]" {
			t.Errorf("the %s reader holds %s, want what was told again", name, got)
		}
		if f.told == 0 {
			t.Errorf("the %s reader was not told", name)
		}
	}
	for _, request := range []*streamv1.ReadRequest{
		{Stream: idle.ref, RecordedSequence: idle.last},
		{Stream: idle.ref, FromSequence: idle.last},
		{Stream: idle.ref, FromSequence: idle.last - 1, RecordedSequence: idle.last, Family: true},
	} {
		equal(t, h.read(t, request).rest(t), "truncated")
	}
	fresh := h.writer(refOf("fresh"), "run", 1)
	fresh.say(t, 1, "f")
	equal(t, h.stored(t, fresh.ref), "f", "caught up")
}

// TestALostEndIsNoticedByAReaderAlone starts a whole service on an older copy of
// its data, with no writer that would notice.
func TestALostEndIsNoticedByAReaderAlone(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	c.Partitions = 1
	h := start(t, c)
	w := h.writer(refOf("alone"), "run", 1)
	w.say(t, 1, "a", "b")
	kept := w.last
	h.stop()
	before := copyOf(t, c.DataDir)
	w.house = start(t, c)
	w.say(t, 1, "c", "d")
	lost := w.last
	w.house.stop()

	c.DataDir = before
	h = start(t, c)
	equal(t, h.read(t, &streamv1.ReadRequest{Stream: w.ref, HistoryOnly: true, RecordedSequence: kept}).rest(t), "a", "b", "caught up")
	for _, cursor := range []int64{lost, lost - 1, lost + 1, 9_000_000_000_000_000} { // a cursor alone is no witness
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: cursor}).rest(t), "truncated")
	}
	equal(t, h.stored(t, w.ref), "a", "b", "caught up")
	waiting := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: kept})
	equal(t, []string{waiting.next(t)}, "caught up")
	equal(t, h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: kept, RecordedSequence: lost}).rest(t), "truncated")
	equal(t, waiting.rest(t), "truncated")
	var page *streamv1.ListResponse
	for _, cursor := range []int64{0, kept, lost} {
		page = h.list(t, &streamv1.ListRequest{Stream: w.ref, FromSequence: cursor, RecordedSequence: lost})
		if page.GetFloor() <= lost || len(page.GetRecords()) != 0 {
			t.Errorf("after %d: got %v, want an empty page behind a floor above %d", cursor, page, lost)
		}
	}
	heir := h.writer(w.ref, "run", 2)
	heir.last = lost
	heir.tellAgain(t, "a2")
	late := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: page.GetFloor()})
	equal(t, []string{late.next(t), late.next(t)}, "a2", "caught up")
	refused(t, h.writer(w.ref, "run", 1).text(t.Context(), 1, "x"), fault.Stale, "WRITER_FENCED")
}

// TestReadersComeBackThroughRestarts stops the service again and again in the
// middle of a run.
func TestReadersComeBackThroughRestarts(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	h := start(t, c)
	w := h.writer(refOf("restarts"), "run", 1)
	readers := []*follower{{ref: w.ref}, {ref: w.ref}, {ref: w.ref}}
	want := []string{}
	for round := range 4 {
		w.house = h
		for i := range 20 {
			want = append(want, fmt.Sprint(round, "-", i))
			w.say(t, 1, want[len(want)-1])
			if i == 7*round%20 {
				readers[0].house = h
				readers[0].until(t, want[len(want)-1])
			}
		}
		for _, r := range readers[1:] {
			r.house = h
			r.until(t, want[len(want)-1])
		}
		open := h.read(t, &streamv1.ReadRequest{Stream: w.ref, FromSequence: w.last})
		equal(t, []string{open.next(t)}, "caught up")
		h.stop()
		_, err := open.drain()
		refused(t, err, fault.Unavailable, "LOG_UNAVAILABLE")
		h = start(t, c)
	}
	for i, r := range readers {
		r.house = h
		if i == 0 {
			r.until(t, want[len(want)-1])
		}
		if got := r.deltas(); got != fmt.Sprint(want) || r.told > 0 {
			t.Errorf("reader %d holds %d chunks, want %d; it was told %d times that they are void", i, len(r.held), len(want), r.told)
		}
	}
}

// TestASlowReaderComesBack cuts a reader that does not read, which goes on from
// its last sequence and misses nothing.
func TestASlowReaderComesBack(t *testing.T) {
	t.Parallel()
	h := func() *house {
		c := onJetStream(t)
		c.ReaderChunks = 8
		return start(t, c)
	}()
	w := h.writer(refOf("slow, back"), "run", 1)
	r := &follower{house: h, ref: w.ref}
	slow := h.read(t, &streamv1.ReadRequest{Stream: w.ref, EveryRun: true})
	equal(t, []string{slow.next(t)}, "caught up")
	for range 60 {
		w.say(t, 1, fmt.Sprintf("%0*d", 64<<10, len(r.held)))
	}
	for {
		frame, err := slow.stream.Recv()
		if err != nil {
			refused(t, err, fault.Exhausted, "READER_TOO_SLOW")
			break
		}
		r.take(frame)
	}
	if len(r.held) >= 60 {
		t.Fatal("the reader was not cut")
	}
	w.say(t, 1, "last")
	r.until(t, "last")
	if len(r.held) != 61 || r.told != 0 {
		t.Errorf("it holds %d chunks, want 61; it was told %d times that they are void", len(r.held), r.told)
	}
}
