package bustest

import (
	"errors"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func runAppend(t *testing.T, log bus.Bus) {
	t.Run("AnEmptyStreamHasNoLastRecord", func(t *testing.T) {
		t.Parallel()
		last, err := log.Last(t.Context(), family(t))
		if err != nil || last != nil {
			t.Fatalf("got %+v, %v; want nothing", last, err)
		}
	})
	t.Run("WhatIsAppendedIsTheLastRecord", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		for _, r := range everyShape() {
			want := appendOne(t, log, s, r)
			last, err := log.Last(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			same(t, []*chunklog.Record{last}, []*chunklog.Record{want})
		}
	})
	t.Run("SequencesRiseAlongAFamily", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		var former uint64
		for i := range 12 {
			r := appendOne(t, log, child(s, string(rune('a'+i%3))), chunk(int64(i/3+1)))
			if r.Sequence <= former {
				t.Fatalf("got sequence %d after %d", r.Sequence, former)
			}
			former = r.Sequence
		}
	})
	t.Run("AWrongTailIsAConflictAndStoresNothing", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		_, err := log.Append(t.Context(), s, 7, chunk(1))
		mustConflict(t, err)
		first := appendOne(t, log, s, chunk(1))
		_, err = log.Append(t.Context(), s, 0, chunk(2))
		mustConflict(t, err)
		_, err = log.Append(t.Context(), s, first.Sequence+1, chunk(2))
		mustConflict(t, err)
		same(t, history(t, log, only(s), 0), []*chunklog.Record{first})
	})
	t.Run("OfManyWritersWithOneTailExactlyOneWins", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		tail := appendOne(t, log, s, chunk(1)).Sequence
		for range 20 {
			tail = race(t, log, s, tail)
		}
		if got := len(history(t, log, only(s), 0)); got != 21 {
			t.Fatalf("got %d records, want 21", got)
		}
	})
	t.Run("AVoidedRecordIsGoneAndItsSequenceIsNotUsedAgain", func(t *testing.T) {
		t.Parallel()
		voiding(t, log)
	})
}

// everyShape returns records with every field in use.
func everyShape() []*chunklog.Record {
	return []*chunklog.Record{
		{Epoch: 1, Number: 1, Run: "r", Kind: chunklog.Chunk, Payload: []byte("\x00\xff\r\n binary")},
		{Epoch: 1, Number: 2, Step: 7, Run: " spaces and \"quotes\" ", Kind: chunklog.Chunk, Payload: []byte("x")},
		{Epoch: 1 << 40, Number: 1, Run: "läuft 走る", Kind: chunklog.Terminal, Status: chunklog.Paused, Payload: []byte("p")},
		{Epoch: 1 << 40, Number: 2, Run: "r", Kind: chunklog.Terminal, Status: chunklog.Ended, Payload: []byte("e")},
		{Epoch: 1 << 40, Number: 3, Run: "r", Kind: chunklog.Terminal, Status: chunklog.Failed, Payload: []byte("f")},
		{Epoch: 1 << 40, Number: 4, Run: "r", Kind: chunklog.Marker, Status: chunklog.Failed, At: 3},
		{Epoch: 1 << 40, Number: 5, Run: "r", Kind: chunklog.Marker, Anew: true, Payload: []byte("m")},
	}
}

// race lets writers append behind one tail and returns the winner's sequence.
func race(t *testing.T, log bus.Bus, s bus.Stream, tail uint64) uint64 {
	t.Helper()
	const writers = 4
	var wins, errs [writers]any
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			r := chunk(int64(i))
			r.Prev = tail
			sequence, err := log.Append(t.Context(), s, tail, r)
			switch {
			case err == nil:
				wins[i] = sequence
			case !errors.Is(err, bus.ErrConflict):
				errs[i] = err
			}
		})
	}
	group.Wait()
	var winner uint64
	for i := range writers {
		if errs[i] != nil {
			t.Fatalf("writer %d: %v", i, errs[i])
		}
		if sequence, won := wins[i].(uint64); won {
			if winner != 0 {
				t.Fatalf("two writers won behind %d: %d and %d", tail, winner, sequence)
			}
			winner = sequence
		}
	}
	if winner == 0 {
		t.Fatalf("nobody won behind %d", tail)
	}
	return winner
}

func voiding(t *testing.T, log bus.Bus) {
	s := family(t)
	records := appendMany(t, log, s, 4)
	void := []uint64{records[1].Sequence, records[2].Sequence}
	for range 2 { // repeating it is safe
		if err := log.Void(t.Context(), s, void); err != nil {
			t.Fatal(err)
		}
	}
	becomes(t, log, only(s), []*chunklog.Record{records[0], records[3]})
	if err := log.Void(t.Context(), s, []uint64{records[3].Sequence}); err != nil {
		t.Fatal(err)
	}
	last, err := log.Last(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []*chunklog.Record{last}, []*chunklog.Record{records[0]})
	next := appendOne(t, log, s, chunk(5))
	if next.Sequence <= records[3].Sequence {
		t.Fatalf("got sequence %d again after %d", next.Sequence, records[3].Sequence)
	}
}
