package hub

import (
	"sync"

	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// topic is the ring of one scope. Records have an index that rises by one;
// ring holds those from base on.
type topic struct {
	limits  Limits
	stop    func()
	members int // guarded by the hub

	mu      sync.Mutex
	ring    []*chunklog.Record
	base    uint64
	bytes   int
	gaps    uint64
	readers int
	done    int           // readers that have taken everything
	wake    chan struct{} // closed at the next event; nil while nobody waits
}

// position is where a reader stands: the index of the next record and the
// number of gaps that it knows of.
type position struct{ index, gaps uint64 }

func newTopic(limits Limits) *topic { return &topic{limits: limits} }

func (t *topic) end() uint64 { return t.base + uint64(len(t.ring)) }

// Deliver implements bus.Sink.
func (t *topic) Deliver(r *chunklog.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.readers == 0 {
		t.base++
		return
	}
	t.ring = append(t.ring, r)
	t.bytes += len(r.Payload)
	for len(t.ring) > 1 && (len(t.ring) > t.limits.Records || t.bytes > t.limits.Bytes) {
		t.bytes -= len(t.ring[0].Payload)
		t.ring[0] = nil
		t.ring = t.ring[1:]
		t.base++
	}
	t.done = 0
	t.announce()
}

// Gap implements bus.Sink.
func (t *topic) Gap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gaps++
	t.announce()
}

func (t *topic) announce() {
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

func (t *topic) join() position {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers++
	t.done++
	return position{t.end(), t.gaps}
}

func (t *topic) leave(p position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers--
	if p.index == t.end() {
		t.done--
	}
	t.trim()
}

// take moves a reader on. Without a record and an error, wake is closed when
// there is something to take.
func (t *topic) take(p *position, batch []*chunklog.Record) (n int, wake <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case p.gaps != t.gaps:
		t.skip(p)
		return 0, nil, ErrGap
	case p.index < t.base:
		t.skip(p)
		return 0, nil, ErrLagged
	case p.index == t.end():
		if t.wake == nil {
			t.wake = make(chan struct{})
		}
		return 0, t.wake, nil
	}
	n = copy(batch, t.ring[p.index-t.base:])
	t.advance(p, p.index+uint64(n)) //nolint:gosec // n is not negative
	return n, nil, nil
}

// skip moves a reader to the end.
func (t *topic) skip(p *position) {
	p.gaps = t.gaps
	if p.index != t.end() {
		t.advance(p, t.end())
	}
}

func (t *topic) advance(p *position, index uint64) {
	p.index = index
	if index == t.end() {
		t.done++
		t.trim()
	}
}

// trim empties the ring when nobody needs it any more.
func (t *topic) trim() {
	if t.done < t.readers || len(t.ring) == 0 {
		return
	}
	t.base = t.end()
	t.ring, t.bytes = nil, 0
}
