package bustest

import (
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func runLive(t *testing.T, log bus.Bus) {
	t.Run("WhatIsAppendedAfterFollowIsTold", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		before := appendOne(t, log, s, chunk(1))
		session, tree := newSink(), newSink()
		defer log.Follow(only(s), session)()
		defer log.Follow(whole(s), tree)()
		mine := []*chunklog.Record{appendOne(t, log, s, chunk(2))}
		below := appendOne(t, log, child(s, "child"), chunk(1))
		mine = append(mine, appendOne(t, log, s, chunk(3)))
		same(t, tree.wait(t, before.Sequence, 3), []*chunklog.Record{mine[0], below, mine[1]})
		same(t, session.wait(t, before.Sequence, 2), mine)
	})
	t.Run("ManyWhoFollowAreAllTold", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		sinks := make([]*sink, 10)
		for i := range sinks {
			sinks[i] = newSink()
			defer log.Follow(only(s), sinks[i])()
		}
		want := appendMany(t, log, s, 30)
		for _, sink := range sinks {
			same(t, sink.wait(t, 0, len(want)), want)
		}
	})
	t.Run("OtherFamiliesAreNotTold", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		quiet := newSink()
		defer log.Follow(whole(s), quiet)()
		stranger := s
		stranger.Root, stranger.Session = s.Root+"x", s.Root
		appendMany(t, log, stranger, 5)
		mine := appendMany(t, log, s, 1)
		same(t, quiet.wait(t, 0, 1), mine)
	})
	t.Run("NothingIsToldAfterStop", func(t *testing.T) {
		t.Parallel()
		s := family(t)
		stopped, witness := newSink(), newSink()
		stop := log.Follow(only(s), stopped)
		defer log.Follow(only(s), witness)()
		first := appendMany(t, log, s, 1)
		stopped.wait(t, 0, 1)
		stop()
		appendMany(t, log, s, 5)
		witness.wait(t, 0, 6)
		same(t, stopped.after(0), first)
	})
	t.Run("HistoryAndLiveTogetherMissNothingWhileOthersAppend", func(t *testing.T) {
		t.Parallel()
		attach(t, log)
	})
}

// attach joins again and again while a writer appends: what is stored at some
// time after Follow and what is told after that make the whole stream.
func attach(t *testing.T, log bus.Bus) {
	const count = 300
	s := family(t)
	var written []*chunklog.Record
	var group sync.WaitGroup
	group.Go(func() { written = appendMany(t, log, s, count) })
	type reader struct {
		sink   *sink
		stored []*chunklog.Record
	}
	var readers []reader
	for len(readers) < 40 {
		r := reader{sink: newSink()}
		defer log.Follow(only(s), r.sink)()
		r.stored = history(t, log, only(s), 0)
		readers = append(readers, r)
	}
	group.Wait()
	for _, r := range readers {
		var cursor uint64
		if n := len(r.stored); n > 0 {
			cursor = r.stored[n-1].Sequence
		}
		same(t, append(r.stored, r.sink.wait(t, cursor, count-len(r.stored))...), written)
	}
}
