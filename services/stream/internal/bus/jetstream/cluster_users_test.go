package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// retryPause lies between two attempts of those who use a log that is away.
const retryPause = 5 * time.Millisecond

// writer writes a stream as the service does: after an unknown outcome it looks
// at the last record.
type writer struct {
	log    bus.Bus
	stream bus.Stream
	epoch  int64
	last   uint64

	written []*chunklog.Record // what was acknowledged, or found
	err     error              // of run
	count   atomic.Int64       // of written
}

// newWriters returns a writer for each of so many sessions of so many families.
func newWriters(log bus.Bus, families, sessions int) []*writer {
	var writers []*writer
	for f := range families {
		for s := range sessions {
			root := fmt.Sprint("family ", f)
			stream := bus.Stream{Tenant: "t", Root: root, Session: fmt.Sprint(root, ", session ", s)}
			writers = append(writers, &writer{log: log, stream: stream, epoch: 2})
		}
	}
	return writers
}

// next returns the record that comes next.
func (w *writer) next() *chunklog.Record {
	number := int64(len(w.written) + 1)
	return &chunklog.Record{
		Session: w.stream.Session, Epoch: w.epoch, Number: number, Prev: w.last, Run: "run", Kind: chunklog.Chunk,
		Payload: fmt.Appendf(nil, "%s, number %d", w.stream.Session, number),
	}
}

// write stores the next record, however long that takes.
func (w *writer) write(ctx context.Context) error {
	r := w.next()
	for ctx.Err() == nil {
		sequence, err := w.log.Append(ctx, w.stream, w.last, r)
		switch {
		case err == nil:
			r.Sequence = sequence
		case errors.Is(err, bus.ErrConflict), errors.Is(err, fault.Unavailable):
			if r.Sequence, err = w.look(ctx, r.Number); err != nil {
				return err
			}
		default:
			return err
		}
		if r.Sequence != 0 {
			w.last, w.written = r.Sequence, append(w.written, r)
			w.count.Add(1)
			return nil
		}
	}
	return ctx.Err()
}

// look returns the sequence of the record with the number, 0 when it was not
// stored.
func (w *writer) look(ctx context.Context, number int64) (uint64, error) {
	for {
		last, err := w.log.Last(ctx, w.stream)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(err, fault.Unavailable):
			<-time.After(retryPause)
		case err != nil:
			return 0, err
		case last != nil && last.Epoch == w.epoch && last.Number == number:
			return last.Sequence, nil
		case last == nil && w.last == 0, last != nil && last.Sequence == w.last:
			return 0, nil
		default:
			return 0, fmt.Errorf("the last record is %+v, and %d was", last, w.last)
		}
	}
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil && w.err == nil {
		// What was begun is brought to its end, so that it is known what is stored.
		w.err = w.write(context.WithoutCancel(ctx))
		<-time.After(retryPause)
	}
}

// writeEach has each of the writers write so many records.
func writeEach(t *testing.T, writers []*writer, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, len(writers))
	for i, w := range writers {
		group.Go(func() {
			for range count {
				if errs[i] = w.write(ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// more waits until each of the writers, which run, has written so many more.
func more(t *testing.T, writers []*writer, count int64) {
	t.Helper()
	deadline := time.Now().Add(2 * patience)
	for _, w := range writers {
		for goal := w.count.Load() + count; w.count.Load() < goal; <-time.After(retryPause) {
			if time.Now().After(deadline) {
				t.Fatalf("%s has written %d records, want %d", w.stream.Session, w.count.Load(), goal)
			}
		}
	}
}

// deposedWriter goes on to write a stream that another one has taken over.
type deposedWriter struct {
	log             bus.Bus
	stream          bus.Stream
	last            uint64
	stored, refused int
}

// deposed has an old writer write first, and the new one behind it.
func deposed(t *testing.T, log bus.Bus, w *writer) *deposedWriter {
	t.Helper()
	old := &deposedWriter{log: log, stream: w.stream}
	writeEach(t, []*writer{w}, 1)
	old.last = w.last
	writeEach(t, []*writer{w}, 1)
	return old
}

func (d *deposedWriter) run(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := d.log.Append(ctx, d.stream, d.last, &chunklog.Record{
			Epoch: 1, Number: 2, Prev: d.last, Kind: chunklog.Chunk, Payload: []byte("deposed"),
		})
		switch {
		case err == nil:
			d.stored++
		case errors.Is(err, bus.ErrConflict):
			d.refused++
		}
		<-time.After(retryPause)
	}
}

// reader follows a scope from its beginning, as the service does: it reads what
// is stored whenever it is told of a gap.
type reader struct {
	log     bus.Bus
	scope   bus.Scope
	changed chan struct{} // has room for one

	mu    sync.Mutex
	heard []*chunklog.Record
	gap   bool
	got   []*chunklog.Record // the outcome
	live  int                // how many of them were heard
	err   error
}

// follow returns a reader that follows until the test ends.
func follow(t *testing.T, log bus.Bus, s bus.Scope) *reader {
	t.Helper()
	r := &reader{log: log, scope: s, changed: make(chan struct{}, 1)}
	stop := log.Follow(s, r)
	r.Gap()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { r.run(ctx) })
	t.Cleanup(func() {
		stop()
		cancel()
		group.Wait()
	})
	return r
}

func (r *reader) Deliver(record *chunklog.Record) {
	r.note(func() { r.heard = append(r.heard, record) })
}

func (r *reader) Gap() { r.note(func() { r.gap = true }) }

func (r *reader) note(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *reader) run(ctx context.Context) {
	for {
		select {
		case <-r.changed:
		case <-ctx.Done():
			return
		}
		r.take(ctx)
	}
}

// take takes what was told since it was called last.
func (r *reader) take(ctx context.Context) {
	r.mu.Lock()
	heard, gap, cursor := r.heard, r.gap, r.cursor()
	r.heard, r.gap = nil, false
	r.mu.Unlock()
	var stored []*chunklog.Record
	var err error
	if gap {
		stored, err = historyAfter(ctx, r.log, r.scope, cursor)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
	r.got = append(r.got, stored...)
	for _, record := range heard {
		if record.Sequence > r.cursor() {
			r.got = append(r.got, record)
			r.live++
		}
	}
}

func (r *reader) cursor() uint64 {
	if len(r.got) == 0 {
		return 0
	}
	return r.got[len(r.got)-1].Sequence
}

// mustHave waits until the reader has as many records, and wants them to be
// these.
func (r *reader) mustHave(t *testing.T, want []*chunklog.Record) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r.mu.Lock()
		got, live, err := r.got, r.live, r.err
		r.mu.Unlock()
		switch {
		case err != nil:
			t.Fatal(err)
		case len(got) >= len(want) && live == 0:
			t.Fatalf("a reader of %+v heard nothing", r.scope)
		case len(got) >= len(want):
			mustEqual(t, fmt.Sprintf("a reader of %+v", r.scope), got, want)
			return
		case time.Now().After(deadline):
			t.Fatalf("a reader of %+v got %d records, want %d", r.scope, len(got), len(want))
		}
		<-time.After(retryPause)
	}
}
