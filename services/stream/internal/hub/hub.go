// Package hub tells many readers of one scope what the bus tells once.
//
// Each scope that has a reader has a topic: a ring (pkg/fanout) of the records that
// some reader has not taken yet. A reader that falls behind the ring is told so
// (ErrLagged). An idle topic holds no record, and an idle reader a few words.
package hub

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// ErrLagged says that the ring has moved on before the reader took all of it.
var ErrLagged = fanout.ErrLagged

// ErrGap says that records may be missing: the reader has to read what is
// stored.
var ErrGap = fanout.ErrGap

// ErrClosed says that the hub has ended.
var ErrClosed = errors.New("the hub is closed")

// Limits bound a topic's ring.
type Limits struct {
	Records int
	Bytes   int // of payloads; one record always fits
}

// topic is the ring of one scope; it is the sink of its feed.
type topic struct {
	*fanout.Ring[*chunklog.Record]
	stop    func()
	members int // guarded by the hub
}

// Deliver implements bus.Sink.
func (t *topic) Deliver(r *chunklog.Record) { t.Put(r) }

func size(r *chunklog.Record) int { return len(r.Payload) }

// Hub is the topics of one process. It is safe for concurrent use.
type Hub struct {
	live   bus.Live
	limits fanout.Limits
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
		limits: fanout.Limits{Values: limits.Records, Bytes: limits.Bytes},
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
		t = &topic{Ring: fanout.New(h.limits, size)}
		t.stop = h.live.Follow(s, t)
		h.topics[s] = t
	}
	t.members++
	return &Reader{hub: h, scope: s, topic: t, ring: t.Join()}
}

func (h *Hub) leave(r *Reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.ring.Leave()
	r.topic.members--
	if r.topic.members == 0 {
		delete(h.topics, r.scope)
		r.topic.stop()
	}
}

// Reader is one reader of a topic. It belongs to one goroutine.
type Reader struct {
	hub   *Hub
	scope bus.Scope
	topic *topic
	ring  *fanout.Reader[*chunklog.Record]
}

// Leave takes the reader out of its topic. Call it once.
func (r *Reader) Leave() { r.hub.leave(r) }

// Next fills batch with the records that come next, and waits for the first.
// It returns how many there are, ErrLagged, ErrGap, ErrClosed, or the error of
// ctx. After ErrLagged and ErrGap it goes on with what comes from now on.
func (r *Reader) Next(ctx context.Context, batch []*chunklog.Record) (int, error) {
	for {
		n, wake, err := r.ring.Take(batch)
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
