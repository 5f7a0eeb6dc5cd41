// Package bustest holds what every log must do. An implementation passes it
// whole:
//
//	func TestBus(t *testing.T) {
//		bustest.Run(t, func(t *testing.T) bus.Bus { return memory.New(memory.Options{}) })
//	}
package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// Run runs the suite. open returns a log that nobody else uses, empty, with a
// retention that removes nothing during the test; it closes it with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) bus.Bus) {
	t.Helper()
	log := open(t)
	t.Run("Append", func(t *testing.T) { t.Parallel(); runAppend(t, log) })
	t.Run("History", func(t *testing.T) { t.Parallel(); runHistory(t, log) })
	t.Run("Live", func(t *testing.T) { t.Parallel(); runLive(t, log) })
	t.Run("Names", func(t *testing.T) { t.Parallel(); runNames(t, log) })
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
	mu      sync.Mutex
	records []*chunklog.Record
	gaps    int
	changed chan struct{} // room for one
}

func newSink() *sink { return &sink{changed: make(chan struct{}, 1)} }

func (s *sink) Deliver(r *chunklog.Record) { s.note(func() { s.records = append(s.records, r) }) }
func (s *sink) Gap()                       { s.note(func() { s.gaps++ }) }

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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if got := s.after(sequence); len(got) >= count {
			return got
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			t.Fatalf("got %d live records, want %d", len(s.after(sequence)), count)
		}
	}
}

func mustConflict(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, bus.ErrConflict) {
		t.Fatalf("got error %v, want %v", err, bus.ErrConflict)
	}
}
