package server

import (
	"sync"

	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// rememberedTails is how many tails a process remembers at least: about as many sessions as
// write at the same time. One takes some 200 bytes.
const rememberedTails = 1 << 15

// tail is the last record of a session, as a process knows it.
type tail struct {
	livelog.Tail

	offset     uint64 // 0: nothing is stored
	generation uint64 // in which the offset was learned
}

// tails remembers the tails of recently written sessions, so that an append needs no look-up.
// A tail may be old: an append expects it, and the log refuses when it is another one.
//
// When the young map is full it becomes the old one; what the old one held is forgotten,
// except what was asked for since.
type tails struct {
	limit int

	mu    sync.Mutex
	young map[log.Stream]tail
	old   map[log.Stream]tail
}

func newTails(limit int) *tails {
	return &tails{limit: limit, young: map[log.Stream]tail{}}
}

// get returns the tail that was learned in the generation.
func (t *tails) get(s log.Stream, generation uint64) (known tail, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok = t.young[s]
	if !ok {
		if known, ok = t.old[s]; ok {
			t.store(s, known)
		}
	}
	return known, ok && known.generation == generation
}

func (t *tails) put(s log.Stream, known tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.store(s, known)
}

func (t *tails) store(s log.Stream, known tail) {
	if len(t.young) >= t.limit {
		t.old, t.young = t.young, map[log.Stream]tail{}
	}
	t.young[s] = known
}
