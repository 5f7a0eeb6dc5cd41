// Package fanout tells many readers what one writer tells once.
//
// A Ring holds what some reader has not taken yet. Readers take from it at their
// own pace and wait when there is nothing; the writer waits for nobody. The ring is
// bounded: a reader that falls behind it is told so (ErrLagged). When every reader
// has taken everything the ring is empty, so an idle ring holds no value, and an
// idle reader a few words.
//
//	writer ── Put ──▶ ring [ v4 v5 v6 v7 ]     bounded: values and bytes
//	                          ▲     ▲     ▲
//	                       reader reader reader   each with an index of its own
package fanout

import (
	"errors"
	"sync"
)

// ErrLagged says that the ring has moved on before the reader took all of it.
var ErrLagged = errors.New("reader has fallen behind the ring")

// ErrGap says that the writer itself may have missed something.
var ErrGap = errors.New("values may be missing in the ring")

// Limits bound a ring.
type Limits struct {
	Values int
	Bytes  int // as the ring's size function counts; one value always fits
}

// Ring is a bounded window on what one writer tells. Put, Gap and Room belong to
// one goroutine; Join may be called by many.
type Ring[T any] struct {
	limits Limits
	size   func(T) int

	mu      sync.Mutex
	values  []T    // have an index that rises by one
	base    uint64 // the index of values[0]
	bytes   int
	gaps    uint64
	readers int
	done    int           // readers that have taken everything
	wake    chan struct{} // closed at the next event; nil while nobody waits
	room    chan struct{} // the same for the writer
}

// New returns an empty ring. size tells how many bytes a value has; it is called
// more than once for a value.
func New[T any](limits Limits, size func(T) int) *Ring[T] {
	return &Ring[T]{limits: limits, size: size}
}

func (r *Ring[T]) end() uint64 { return r.base + uint64(len(r.values)) }

// Put tells a value to all readers. Without a reader it is forgotten.
func (r *Ring[T]) Put(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers == 0 {
		r.base++
		return
	}
	r.values = append(r.values, v)
	r.bytes += r.size(v)
	for len(r.values) > 1 && r.over() {
		r.bytes -= r.size(r.values[0])
		var none T
		r.values[0] = none
		r.values = r.values[1:]
		r.base++
	}
	r.done = 0
	announce(&r.wake)
}

func (r *Ring[T]) over() bool {
	return len(r.values) > r.limits.Values || r.bytes > r.limits.Bytes
}

// Gap tells all readers that values may be missing here.
func (r *Ring[T]) Gap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps++
	announce(&r.wake)
}

// Room is for a writer that may go at the pace of its only reader. It gives nil
// when v can be put without anybody falling behind, and when there is not exactly
// one reader; otherwise a channel that is closed when that may have changed.
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

// Join adds a reader. It is told everything that is put from now on. Leave has to
// be called.
func (r *Ring[T]) Join() *Reader[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	r.done++
	announce(&r.room)
	return &Reader[T]{ring: r, index: r.end(), gaps: r.gaps}
}

// trim empties the ring when nobody needs it any more.
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

// keptValues is how much room an empty ring keeps.
const keptValues = 16

// Reader is one reader of a ring. It belongs to one goroutine.
type Reader[T any] struct {
	ring  *Ring[T]
	index uint64 // of the next value
	gaps  uint64 // that it knows of
}

// Take fills batch with the values that come next and tells how many there are.
// Where there is none, wake is closed when there may be. ErrLagged and ErrGap say
// that values were lost; the reader goes on with what comes from now on.
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

// Skip passes over what is in the ring.
func (r *Reader[T]) Skip() {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	r.skip()
}

// Leave takes the reader out of the ring. Call it once.
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
