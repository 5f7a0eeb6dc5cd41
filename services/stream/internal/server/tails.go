package server

import (
	"sync"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// rememberedTails is how many streams' tails a process remembers at least:
// about as many as write at the same time. One takes some 200 bytes.
const rememberedTails = 1 << 15

// tails remembers the last records of the streams that this process writes, so
// that an append needs no look-up. What it says may be old: an append expects
// it to be the tail, and the bus refuses when it is not.
//
// It forgets by generations: when the young map is full it becomes the old
// one, and what the old one held and nobody asked for is gone.
type tails struct {
	limit int

	mu    sync.Mutex
	young map[bus.Stream]chunklog.Tail
	old   map[bus.Stream]chunklog.Tail
}

func newTails(limit int) *tails {
	return &tails{limit: limit, young: map[bus.Stream]chunklog.Tail{}}
}

// get returns the remembered tail; ok is false when there is none.
func (t *tails) get(s bus.Stream) (tail chunklog.Tail, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tail, ok = t.young[s]; ok {
		return tail, true
	}
	if tail, ok = t.old[s]; ok {
		t.store(s, tail)
	}
	return tail, ok
}

// put remembers the tail, unless a later one is known.
func (t *tails) put(s bus.Stream, tail chunklog.Tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.young[s].Sequence <= tail.Sequence {
		t.store(s, tail)
	}
}

func (t *tails) store(s bus.Stream, tail chunklog.Tail) {
	if len(t.young) >= t.limit {
		t.old, t.young = t.young, make(map[bus.Stream]chunklog.Tail, t.limit)
	}
	t.young[s] = tail
}

// forget drops what is remembered of the stream.
func (t *tails) forget(s bus.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.young, s)
	delete(t.old, s)
}
