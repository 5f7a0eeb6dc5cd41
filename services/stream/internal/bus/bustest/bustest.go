// Package bustest holds what every log must do. An implementation passes it
// whole:
//
//	func TestMemoryIsALog(t *testing.T) {
//		t.Parallel()
//		bustest.Run(t, func(_ *testing.T, o bustest.Options) bus.Bus {
//			return memory.New(memory.Options{SessionRecords: o.SessionRecords})
//		})
//	}
//
// What must become of a log that a power cut has taken the end of is in PowerCut,
// which needs to be able to do that.
package bustest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Options say what log a test needs.
type Options struct {
	// SessionRecords is how many records a session has at most; 0: no limit.
	SessionRecords int64
}

// Opener returns a log that nobody else uses, empty, that removes nothing by age
// or size during the test; its Run runs, and t.Cleanup ends and closes it.
type Opener func(t *testing.T, o Options) bus.Bus

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	t.Helper()
	start := open
	open = func(t *testing.T, o Options) bus.Bus { return patient{start(t, o)} }
	log := open(t, Options{})
	t.Run("Append", func(t *testing.T) { t.Parallel(); runAppend(t, log) })
	t.Run("History", func(t *testing.T) { t.Parallel(); runHistory(t, log) })
	t.Run("Live", func(t *testing.T) { t.Parallel(); runLive(t, log) })
	t.Run("Names", func(t *testing.T) { t.Parallel(); runNames(t, log) })
	t.Run("Order", func(t *testing.T) { t.Parallel(); runOrder(t, log) })
	t.Run("Remove", func(t *testing.T) { t.Parallel(); runRemove(t, log, open) })
	t.Run("Renew", func(t *testing.T) { t.Parallel(); runRenew(t, open) })
}

// family returns a stream of its own for the test: a root.
func family(t *testing.T) bus.Stream {
	return bus.Stream{Tenant: "bustest", Root: t.Name(), Session: t.Name()}
}

func child(s bus.Stream, name string) bus.Stream {
	s.Session = name
	return s
}

func whole(s bus.Stream) bus.Scope { return bus.Scope{Stream: s, Family: true} }
func only(s bus.Stream) bus.Scope  { return bus.Scope{Stream: s} }

func chunk(number int64) *chunklog.Record {
	return &chunklog.Record{
		Epoch: 1, Number: number, Step: 1, Run: "run", Kind: chunklog.Chunk,
		Payload: fmt.Appendf(nil, "chunk %d", number),
	}
}

// appendOne appends behind the last record and returns the record as it must
// be read again.
func appendOne(t *testing.T, log bus.Bus, s bus.Stream, r *chunklog.Record) *chunklog.Record {
	t.Helper()
	last, err := log.Last(t.Context(), s)
	if err != nil {
		t.Fatalf("last: %v", err)
	}
	chunklog.Link(r, tailOf(last), 0)
	sequence, err := log.Append(t.Context(), s, r.Prev, r)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	stored := *r
	stored.Sequence, stored.Session = sequence, s.Session
	return &stored
}

func tailOf(last *chunklog.Record) chunklog.Tail {
	if last == nil {
		return chunklog.Tail{}
	}
	return chunklog.TailOf(last)
}

func appendMany(t *testing.T, log bus.Bus, s bus.Stream, count int) []*chunklog.Record {
	t.Helper()
	var records []*chunklog.Record
	for i := range count {
		records = append(records, appendOne(t, log, s, chunk(int64(i+1))))
	}
	return records
}

// history reads all pages.
func history(t *testing.T, log bus.Bus, s bus.Scope, after uint64) []*chunklog.Record {
	t.Helper()
	var records []*chunklog.Record
	for {
		page, err := log.History(t.Context(), s, after)
		if err != nil {
			t.Fatalf("history after %d: %v", after, err)
		}
		records = append(records, page.Records...)
		if !page.More {
			return records
		}
		if len(page.Records) == 0 {
			t.Fatalf("history after %d: an empty page says that more follows", after)
		}
		after = records[len(records)-1].Sequence
	}
}

// becomes wants that what is stored is this, perhaps after a moment: a log of
// several copies may show for so long what was removed from between.
func becomes(t *testing.T, log bus.Bus, s bus.Scope, want []*chunklog.Record) {
	t.Helper()
	deadline := time.Now().Add(patience)
	got := history(t, log, s, 0)
	for len(got) > len(want) && time.Now().Before(deadline) {
		got = history(t, log, s, 0)
	}
	same(t, got, want)
}

func same(t *testing.T, got, want []*chunklog.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := *got[i], *want[i]
		if string(g.Payload) != string(w.Payload) {
			t.Fatalf("record %d: got payload %q, want %q", i, g.Payload, w.Payload)
		}
		g.Payload, w.Payload = nil, nil
		if fmt.Sprint(g) != fmt.Sprint(w) {
			t.Fatalf("record %d: got %+v, want %+v", i, g, w)
		}
	}
}

// sink gathers what it is told.
type sink struct {
	log   bus.Bus // which it follows
	scope bus.Scope

	mu      sync.Mutex
	records []*chunklog.Record // in order
	gaps    int
	filled  int           // gaps after which was read what is stored
	read    uint64        // the last sequence that was read so
	changed chan struct{} // room for one
}

func newSink() *sink { return &sink{changed: make(chan struct{}, 1)} }

func (s *sink) Deliver(r *chunklog.Record) {
	s.note(func() {
		if r.Sequence > s.read { // else it was read after a gap
			s.records = append(s.records, r)
		}
	})
}

func (s *sink) Gap() { s.note(func() { s.gaps++ }) }

func (s *sink) note(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// after returns the records above the sequence.
func (s *sink) after(sequence uint64) []*chunklog.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.records {
		if r.Sequence > sequence {
			return append([]*chunklog.Record(nil), s.records[i:]...)
		}
	}
	return nil
}

// wait returns once there are count records above the sequence.
func (s *sink) wait(t *testing.T, sequence uint64, count int) []*chunklog.Record {
	t.Helper()
	s.await(t, func() bool {
		s.fill(t, sequence)
		return len(s.after(sequence)) >= count
	}, func() {
		t.Fatalf("got %d live records, want %d", len(s.after(sequence)), count)
	})
	return s.after(sequence)
}

// fill reads what is stored after the sequence if there was a gap since the last
// time: a record that was late may be told as one.
func (s *sink) fill(t *testing.T, sequence uint64) {
	t.Helper()
	s.mu.Lock()
	gaps, filled := s.gaps, s.filled
	s.mu.Unlock()
	if gaps == filled {
		return
	}
	stored := history(t, s.log, s.scope, sequence)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled = gaps
	bySequence := func(a, b *chunklog.Record) int { return cmp.Compare(a.Sequence, b.Sequence) }
	for _, r := range stored {
		s.read = max(s.read, r.Sequence)
		if i, found := slices.BinarySearchFunc(s.records, r, bySequence); !found {
			s.records = slices.Insert(s.records, i, r)
		}
	}
}

// gapped returns once the sink was told of a gap.
func (s *sink) gapped(t *testing.T) {
	t.Helper()
	s.await(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.gaps > 0
	}, func() { t.Fatal("got no gap, want one") })
}

// await returns once done says so, which is asked at every change, and calls
// fail when that takes too long.
func (s *sink) await(t *testing.T, done func() bool, fail func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !done() {
		select {
		case <-s.changed:
		case <-ctx.Done():
			fail()
			return
		}
	}
}

func mustConflict(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("got error %v, want %v", err, bus.ErrConflict)
	}
}
