package httpapi

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Streams counts open streams, limits them, and ends them when the gateway stops. The handler of an
// ended stream returns ErrCut, so that its client reconnects to another replica.
type Streams struct {
	limit    int
	draining context.Context //nolint:containedctx // lives as long as the service
	drain    context.CancelFunc

	mu   sync.Mutex
	open int
	wg   sync.WaitGroup
}

// NewStreams allows as many open streams as the limit.
func NewStreams(limit int) *Streams {
	ctx, cancel := context.WithCancel(context.Background())
	return &Streams{limit: limit, draining: ctx, drain: cancel}
}

// Open begins a stream. The returned context ends with ctx and, with the cause Stopping, when the
// gateway drains. The caller must call release. Exhausted (TOO_MANY_STREAMS), Unavailable
// (GATEWAY_STOPPING).
func (s *Streams) Open(ctx context.Context) (stream context.Context, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return nil, nil, Stopping()
	}
	if s.open >= s.limit {
		return nil, nil, fault.New(fault.Exhausted, "TOO_MANY_STREAMS", "%d streams are open on this gateway; HOLDFAST_GATEWAY_MAX_STREAMS is the limit", s.open)
	}
	s.open++
	s.wg.Add(1)
	stream, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(s.draining, func() { cancel(Stopping()) })
	return stream, sync.OnceFunc(func() {
		unwatch()
		cancel(nil)
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.wg.Done()
	}), nil
}

// Stopping returns Unavailable (GATEWAY_STOPPING).
func Stopping() error {
	return fault.New(fault.Unavailable, "GATEWAY_STOPPING", "this gateway is stopping; connect again")
}

// Count returns the number of open streams.
func (s *Streams) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Drain ends all streams and waits for their handlers. Later streams are refused.
func (s *Streams) Drain() {
	s.mu.Lock()
	s.drain()
	s.mu.Unlock()
	s.wg.Wait()
}
