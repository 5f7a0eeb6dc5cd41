// Package hub tells many readers of one scope what the bus tells once.
//
// Each scope that has a reader has a topic: a ring of the records that some
// reader has not taken yet. Readers take from the ring at their own pace and
// wait when there is nothing; nobody waits for them. The ring is bounded: a
// reader that falls behind it is told so (ErrLagged). When every reader has
// taken everything the ring is empty, so an idle topic holds no record, and an
// idle reader a few words.
//
//	bus ──▶ topic.Deliver ──▶ ring [ r4 r5 r6 r7 ]     bounded: records and bytes
//	                                ▲     ▲     ▲
//	                             reader reader reader   each with an index of its own
package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// ErrLagged says that the ring has moved on before the reader took all of it.
var ErrLagged = errors.New("reader has fallen behind the ring")

// ErrGap says that records may be missing: the reader has to read what is
// stored.
var ErrGap = errors.New("records may be missing in the live feed")

// ErrClosed says that the hub has ended.
var ErrClosed = errors.New("the hub is closed")

// Limits bound a topic's ring.
type Limits struct {
	Records int
	Bytes   int // of payloads; one record always fits
}

// Hub is the topics of one process. It is safe for concurrent use.
type Hub struct {
	live   bus.Live
	limits Limits
	closed chan struct{}
	close  func()

	mu     sync.Mutex
	topics map[bus.Scope]*topic
}

// New returns a hub without topics.
func New(live bus.Live, limits Limits) *Hub {
	closed := make(chan struct{})
	return &Hub{
		live:   live,
		limits: limits,
		closed: closed,
		close:  sync.OnceFunc(func() { close(closed) }),
		topics: map[bus.Scope]*topic{},
	}
}

// Close sends every reader away with ErrClosed, also those to come. It may be
// called more than once.
func (h *Hub) Close() { h.close() }

// Closed is closed when the hub is.
func (h *Hub) Closed() <-chan struct{} { return h.closed }

// Join adds a reader to the scope's topic. Every record stored after the call
// reaches it, or it is told that it may have missed one. Leave must be called.
func (h *Hub) Join(s bus.Scope) *Reader {
	if s.Family {
		s.Session = "" // one topic for the family, whoever names it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[s]
	if t == nil {
		t = newTopic(h.limits)
		t.stop = h.live.Follow(s, t)
		h.topics[s] = t
	}
	t.members++
	return &Reader{hub: h, scope: s, topic: t, position: t.join()}
}

func (h *Hub) leave(r *Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.topic.leave(r.position)
	r.topic.members--
	if r.topic.members == 0 {
		delete(h.topics, r.scope)
		r.topic.stop()
	}
}

// Reader is one reader of a topic. It belongs to one goroutine.
type Reader struct {
	hub      *Hub
	scope    bus.Scope
	topic    *topic
	position position
}

// Leave takes the reader out of its topic. Call it once.
func (r *Reader) Leave() { r.hub.leave(r) }

// Next fills batch with the records that come next, and waits for the first.
// It returns how many there are, ErrLagged, ErrGap, ErrClosed, or the error of
// ctx. After ErrLagged and ErrGap it goes on with what comes from now on.
func (r *Reader) Next(ctx context.Context, batch []*chunklog.Record) (int, error) {
	for {
		n, wake, err := r.topic.take(&r.position, batch)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-wake:
		case <-r.hub.closed:
			return 0, ErrClosed
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
