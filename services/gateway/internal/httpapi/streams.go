package httpapi

import (
	"context"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Streams counts open streams, limits them, and ends them when the gateway stops or when the credential of their
// caller ends. The handler of an ended stream returns ErrCut, so that its client reconnects: to another replica, or with
// a new credential.
type Streams struct {
	all      *Pool
	owned    ownedStreams    // guarded by mu
	draining context.Context //nolint:containedctx // lives as long as the service
	drain    context.CancelFunc

	mu   sync.Mutex
	open map[*openStream]bool
	wg   sync.WaitGroup
}

// Protocol is how a client reads a stream.
type Protocol string

// The protocols.
const (
	ProtocolChat          Protocol = "chat"           // the AI SDK over HTTP
	ProtocolChatWebSocket Protocol = "chat_websocket" // the same over a socket
	ProtocolSSE           Protocol = "sse"            // the native stream
	ProtocolWebSocket     Protocol = "websocket"      // the same over a socket
	ProtocolCloudflare    Protocol = "cloudflare"     // Cloudflare Agents clients
	ProtocolConnect       Protocol = "connect"        // the Connect API
	ProtocolWait          Protocol = "wait"           // a request that waits for the end of a run
	ProtocolExport        Protocol = "export"         // of the audit log
)

// openStream is a stream with its caller.
type openStream struct {
	protocol Protocol
	caller   auth.Identity
	cancel   context.CancelCauseFunc
}

// NewStreams allows as many open streams as the limits.
func NewStreams(limits StreamLimits) *Streams {
	ctx, cancel := context.WithCancel(context.Background())
	return &Streams{
		all:   NewPool(int64(limits.All), limits.SparePercent, int64(max(limits.spare()/spareTenants, 1))),
		owned: ownedStreams{limits: limits, open: map[streamOwner]int{}}, draining: ctx, drain: cancel, open: map[*openStream]bool{},
	}
}

// Open begins a stream of the caller in ctx. The returned context ends with ctx, with the cause Stopping when the
// gateway drains, and with the fault of EndCallers. The caller must call release. Exhausted (QUOTA_STREAMS,
// TOO_MANY_STREAMS), Unavailable
// (GATEWAY_STOPPING).
func (s *Streams) Open(ctx context.Context, protocol Protocol) (stream context.Context, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Err() != nil {
		return nil, nil, Stopping()
	}
	caller, _ := auth.From(ctx)
	if err := s.owned.check(caller); err != nil {
		return nil, nil, err
	}
	if !s.all.Take(caller.Tenant, 1) {
		return nil, nil, fault.New(fault.Exhausted, "TOO_MANY_STREAMS", "%d streams are open on this gateway; HOLDFAST_GATEWAY_MAX_STREAMS is the limit", len(s.open)).
			WithRetryAfter(streamRetry)
	}
	s.owned.add(caller, 1)
	s.wg.Add(1)
	stream, cancel := context.WithCancelCause(ctx)
	opened := &openStream{protocol, caller, cancel}
	s.open[opened] = true
	unwatch := context.AfterFunc(s.draining, func() { cancel(Stopping()) })
	return stream, sync.OnceFunc(func() {
		unwatch()
		cancel(nil)
		s.mu.Lock()
		s.owned.add(caller, -1)
		s.all.Give(caller.Tenant, 1)
		delete(s.open, opened)
		s.mu.Unlock()
		s.wg.Done()
	}), nil
}

// CauseOf returns why the stream has ended in place of a failure that the end brought about, such as
// context.Canceled of a call to a service. Other errors remain.
func CauseOf(stream context.Context, err error) error {
	if stream.Err() != nil && fault.KindOf(err) == fault.Unavailable {
		return context.Cause(stream)
	}
	return err
}

// Stopping returns Unavailable (GATEWAY_STOPPING).
func Stopping() error {
	return fault.New(fault.Unavailable, "GATEWAY_STOPPING", "this gateway is stopping; connect again")
}

// Count returns the number of open streams.
func (s *Streams) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// counts returns the number of open streams of each protocol, zeros included.
func (s *Streams) counts() map[Protocol]int {
	counts := map[Protocol]int{
		ProtocolChat: 0, ProtocolChatWebSocket: 0, ProtocolSSE: 0, ProtocolWebSocket: 0, ProtocolCloudflare: 0, ProtocolConnect: 0, ProtocolWait: 0, ProtocolExport: 0,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for opened := range s.open {
		counts[opened.protocol]++
	}
	return counts
}

// EndCallers ends the streams of callers with a fault from check. The fault is the cause.
func (s *Streams) EndCallers(check func(auth.Identity) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for opened := range s.open {
		if err := check(opened.caller); err != nil {
			opened.cancel(err)
		}
	}
}

// Drain ends all streams and waits for their handlers. Later streams are refused.
func (s *Streams) Drain() {
	s.mu.Lock()
	s.drain()
	s.mu.Unlock()
	s.wg.Wait()
}
