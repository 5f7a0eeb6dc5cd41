// Package fanout distributes one writer's values to many readers.
//
// A Ring holds the values that a reader has not taken yet. Readers take at their own pace and wait if there is
// nothing; the writer never waits. The ring is bounded: a reader that falls behind receives ErrLagged. A ring is
// empty when every reader has taken everything, so an idle ring holds no value, and an idle reader a few words.
//
//	writer ── Put ──▶ ring [ v4 v5 v6 v7 ]     bounded: values and bytes
//	                          ▲     ▲     ▲
//	                       reader reader reader   each with an index of its own
package fanout

import (
	"errors"
	"sync"
)

// ErrLagged means that the ring dropped values before the reader took them.
var ErrLagged = errors.New("reader has fallen behind the ring")

// ErrGap means that the writer may have missed values.
var ErrGap = errors.New("values may be missing in the ring")

// Limits bound a ring.
type Limits struct {
	Values int
	Bytes  int // by the ring's size function; one value always fits
}

// Ring is a bounded window on a writer's values. Put, Gap and Room belong to one goroutine; Join is safe for
// concurrent use.
type Ring[T any] struct {
	limits Limits
	size   func(T) int

	mu      sync.Mutex
	values  []T    // with consecutive indexes
	base    uint64 // the index of values[0]
	bytes   int
	gaps    uint64
	readers int
	done    int           // readers that have taken everything
	wake    chan struct{} // closed at the next event; nil without waiting readers
	room    chan struct{} // the same for the writer
}

// New returns an empty ring. size returns a value's size in bytes; the ring may call it more than once per
// value.
func New[T any](limits Limits, size func(T) int) *Ring[T] {
	return &Ring[T]{limits: limits, size: size}
}

func (r *Ring[T]) end() uint64 { return r.base + uint64(len(r.values)) }

// Put adds a value for all readers. Without a reader it is dropped.
func (r *Ring[T]) Put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers == 0 {
		r.base++
		return
	}
	r.values = append(r.values, v)
	r.bytes += r.size(v)
	for len(r.values) > 1 && (len(r.values) > r.limits.Values || r.bytes > r.limits.Bytes) {
		r.bytes -= r.size(r.values[0])
		var none T
		r.values[0] = none
		r.values = r.values[1:]
		r.base++
	}
	r.done = 0
	announce(&r.wake)
}

// Gap reports to all readers that values may be missing here.
func (r *Ring[T]) Gap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps++
	announce(&r.wake)
}

// Room lets a writer follow the pace of a single reader. It returns nil if v fits without a reader falling
// behind, and if there is not exactly one reader. Otherwise it returns a channel that is closed when that may
// have changed.
func (r *Ring[T]) Room(v T) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	fits := len(r.values) < r.limits.Values && r.bytes+r.size(v) <= r.limits.Bytes
	if fits || len(r.values) == 0 || r.readers != 1 {
		return nil
	}
	return waitFor(&r.room)
}

func waitFor(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

func announce(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Join adds a reader for all values from now on. Call Leave at the end.
func (r *Ring[T]) Join() *Reader[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	r.done++
	announce(&r.room)
	return &Reader[T]{ring: r, index: r.end(), gaps: r.gaps}
}

// trim empties the ring when no reader needs its values.
func (r *Ring[T]) trim() {
	if r.done < r.readers || len(r.values) == 0 {
		return
	}
	r.base = r.end()
	clear(r.values)
	r.values, r.bytes = r.values[:0], 0
	if cap(r.values) > keptValues {
		r.values = nil
	}
	announce(&r.room)
}

// keptValues is the capacity retained by an empty ring.
const keptValues = 16

// Reader is one reader of a ring. It belongs to one goroutine.
type Reader[T any] struct {
	ring  *Ring[T]
	index uint64 // of the next value
	gaps  uint64 // gaps seen so far
}

// Take fills batch with the next values and returns their number. If there are none, wake is closed when there
// may be some. ErrLagged and ErrGap mean lost values; the reader continues with new values.
func (r *Reader[T]) Take(batch []T) (n int, wake <-chan struct{}, err error) {
	g := r.ring
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case r.gaps != g.gaps:
		r.skip()
		return 0, nil, ErrGap
	case r.index < g.base:
		r.skip()
		return 0, nil, ErrLagged
	case r.index == g.end():
		return 0, waitFor(&g.wake), nil
	}
	n = copy(batch, g.values[r.index-g.base:])
	r.advance(r.index + uint64(n)) //nolint:gosec // n is not negative
	return n, nil, nil
}

// skip moves the reader to the end.
func (r *Reader[T]) skip() {
	r.gaps = r.ring.gaps
	if r.index != r.ring.end() {
		r.advance(r.ring.end())
	}
}

func (r *Reader[T]) advance(index uint64) {
	r.index = index
	if index == r.ring.end() {
		r.ring.done++
		r.ring.trim()
	}
}

// Skip discards the values in the ring.
func (r *Reader[T]) Skip() {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	r.skip()
}

// Leave removes the reader. Call it once.
func (r *Reader[T]) Leave() {
	g := r.ring
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readers--
	if r.index == g.end() {
		g.done--
	}
	g.trim()
	announce(&g.room)
}
