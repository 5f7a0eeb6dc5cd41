package hub_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// live is a feed that the test speaks into.
type live struct {
	mu      sync.Mutex
	sinks   map[bus.Scope]bus.Sink
	follows int
}

func (l *live) Follow(s bus.Scope, sink bus.Sink) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sinks == nil {
		l.sinks = map[bus.Scope]bus.Sink{}
	}
	l.sinks[s] = sink
	l.follows++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sinks, s)
	}
}

func (l *live) sink(s bus.Scope) bus.Sink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sinks[s]
}

var scope = bus.Scope{Stream: bus.Stream{Tenant: "t", Root: "r", Session: "r"}}

func record(sequence uint64, size int) *chunklog.Record {
	return &chunklog.Record{Sequence: sequence, Payload: make([]byte, size)}
}

// next takes what is there, one record at most.
func next(t *testing.T, r *hub.Reader) (uint64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var batch [1]*chunklog.Record
	if _, err := r.Next(ctx, batch[:]); err != nil {
		return 0, err
	}
	return batch[0].Sequence, nil
}

func mustNext(t *testing.T, r *hub.Reader, want uint64) {
	t.Helper()
	if got, err := next(t, r); err != nil || got != want {
		t.Fatalf("got record %d, %v; want %d", got, err, want)
	}
}

func mustFail(t *testing.T, r *hub.Reader, want error) {
	t.Helper()
	if got, err := next(t, r); !errors.Is(err, want) {
		t.Fatalf("got record %d, %v; want %v", got, err, want)
	}
}

func TestReadersOfOneScopeShareOneFeed(t *testing.T) {
	t.Parallel()
	var feed live
	h := hub.New(&feed, hub.Limits{Records: 8, Bytes: 1 << 20})
	first := h.Join(scope)
	feed.sink(scope).Deliver(record(1, 1))
	second := h.Join(scope)
	feed.sink(scope).Deliver(record(2, 1))
	mustNext(t, first, 1)
	mustNext(t, second, 2)
	mustNext(t, first, 2)
	if feed.follows != 1 {
		t.Errorf("got %d feeds, want 1", feed.follows)
	}
	first.Leave()
	second.Leave()
	if feed.sink(scope) != nil {
		t.Error("the topic is kept though nobody reads")
	}
	h.Join(scope).Leave()
	if feed.follows != 2 {
		t.Errorf("got %d feeds, want a new one", feed.follows)
	}
}

func TestAReaderThatFallsBehindIsToldAndOthersAreNot(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]hub.Limits{
		"records": {Records: 4, Bytes: 1 << 20},
		"bytes":   {Records: 1000, Bytes: 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var feed live
			h := hub.New(&feed, limits)
			slow, fast := h.Join(scope), h.Join(scope)
			for i := range uint64(20) {
				feed.sink(scope).Deliver(record(i+1, 10))
				mustNext(t, fast, i+1)
			}
			mustFail(t, slow, hub.ErrLagged)
			feed.sink(scope).Deliver(record(21, 10))
			mustNext(t, slow, 21)
			mustNext(t, fast, 21)
		})
	}
}

func TestOneRecordAlwaysFits(t *testing.T) {
	t.Parallel()
	var feed live
	h := hub.New(&feed, hub.Limits{Records: 1, Bytes: 1})
	r := h.Join(scope)
	feed.sink(scope).Deliver(record(1, 1000))
	mustNext(t, r, 1)
}

func TestAGapIsToldToEveryReaderOnce(t *testing.T) {
	t.Parallel()
	var feed live
	h := hub.New(&feed, hub.Limits{Records: 8, Bytes: 1 << 20})
	one, two := h.Join(scope), h.Join(scope)
	feed.sink(scope).Deliver(record(1, 1))
	mustNext(t, one, 1)
	feed.sink(scope).Gap()
	feed.sink(scope).Gap()
	late := h.Join(scope)
	mustFail(t, one, hub.ErrGap)
	mustFail(t, two, hub.ErrGap)
	feed.sink(scope).Deliver(record(9, 1))
	for _, r := range []*hub.Reader{one, two, late} {
		mustNext(t, r, 9)
	}
}

func TestAClosedHubSendsItsReadersAway(t *testing.T) {
	t.Parallel()
	h := hub.New(&live{}, hub.Limits{Records: 8, Bytes: 1 << 20})
	r := h.Join(scope)
	ended := make(chan error, 1)
	go func() {
		_, err := r.Next(context.Background(), make([]*chunklog.Record, 1))
		ended <- err
	}()
	h.Close()
	h.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, hub.ErrClosed) {
			t.Errorf("got %v, want %v", err, hub.ErrClosed)
		}
	case <-time.After(patience):
		t.Fatal("the reader still waits")
	}
	mustFail(t, h.Join(scope), hub.ErrClosed)
}

func TestManyReadersTakeEveryRecordInOrder(t *testing.T) {
	t.Parallel()
	const readers, records = 50, 2000
	var feed live
	h := hub.New(&feed, hub.Limits{Records: records, Bytes: 1 << 20})
	var group sync.WaitGroup
	errs := make(chan error, readers)
	for range readers {
		r := h.Join(scope)
		group.Go(func() {
			defer r.Leave()
			errs <- takeAll(t.Context(), r, records)
		})
	}
	sink := feed.sink(scope)
	for i := range uint64(records) {
		sink.Deliver(record(i+1, 1))
	}
	group.Wait()
	for range readers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func takeAll(ctx context.Context, r *hub.Reader, count uint64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var batch [8]*chunklog.Record
	for want := uint64(1); want <= count; {
		n, err := r.Next(ctx, batch[:])
		if err != nil {
			return err
		}
		for _, record := range batch[:n] {
			if record.Sequence != want {
				return fmt.Errorf("got record %d, want %d", record.Sequence, want)
			}
			want++
		}
	}
	return nil
}
