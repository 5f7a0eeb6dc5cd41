package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-run/holdfast/pkg/rpc/internal/inproc"
)

// Process is a network for services that share a process and trust each other. A call runs the handler directly,
// without a connection. Any name is an address, and only users of the same Process can connect. Security and
// message limits have no effect. It works inside a testing/synctest bubble.
//
// Its listeners work with Serve only; Dial and Serve use the handlers directly. An address with a port, "host:port",
// is no name but a server outside of the process: Dial and DialContext connect to it over TCP, with Security and limits.
type Process struct {
	mu        sync.RWMutex
	listeners map[string]*processListener
}

// NewProcess returns a network without listeners.
func NewProcess() *Process { return &Process{listeners: map[string]*processListener{}} }

// Listen reserves the name until the listener is closed.
func (p *Process) Listen(_ context.Context, address string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listeners[address] != nil {
		return nil, fmt.Errorf("listen on process address %q: already in use", address)
	}
	l := &processListener{network: p, address: processAddr(address), served: make(chan struct{}), closed: make(chan struct{})}
	p.listeners[address] = l
	return l, nil
}

// outside reports whether the address is of a server outside of the process.
func outside(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

// DialContext connects to servers outside of the process. There are no connections within it.
func (p *Process) DialContext(ctx context.Context, address string) (net.Conn, error) {
	if outside(address) {
		return TCP().DialContext(ctx, address)
	}
	return nil, fmt.Errorf("dial process address %q: there are no connections within a process", address)
}

// server returns the server on the name. It waits for the Serve after a Listen.
func (p *Process) server(ctx context.Context, address string) (*inproc.Server, error) {
	p.mu.RLock()
	l := p.listeners[address]
	p.mu.RUnlock()
	if l == nil {
		return nil, status.Errorf(codes.Unavailable, "process address %q has no listener", address)
	}
	select {
	case <-l.served:
		return l.server, nil
	case <-l.closed:
		return nil, status.Errorf(codes.Unavailable, "process address %q is closed", address)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// processListener is a reserved name on a Process.
type processListener struct {
	network *Process
	address processAddr
	served  chan struct{}  // closed by Serve
	server  *inproc.Server // set before served is closed
	once    sync.Once
	closed  chan struct{} // closed by Close
}

// Accept waits for Close.
func (l *processListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, fmt.Errorf("accept on process address %q: %w", string(l.address), net.ErrClosed)
}

func (l *processListener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, string(l.address))
		close(l.closed)
	})
	return nil
}

func (l *processListener) Addr() net.Addr { return l.address }

// serve implements Serve within a process.
func (l *processListener) serve(ctx context.Context, server *inproc.Server, grace time.Duration) error {
	l.server = server
	close(l.served)
	var closed error
	select {
	case <-ctx.Done():
	case <-l.closed:
		closed = fmt.Errorf("serve on %s: %w", l.address, net.ErrClosed)
		grace = 0
	}
	l.Close()
	ended := server.Stop()
	if within(grace, ended) {
		return closed
	}
	server.Cut()
	if !within(handlerGrace, ended) {
		return fmt.Errorf("serve on %s: handlers still run %v after their calls were canceled", l.address, handlerGrace)
	}
	return closed
}

type processAddr string

func (processAddr) Network() string  { return "process" }
func (a processAddr) String() string { return string(a) }

// processCaller makes a client's calls within a process.
type processCaller struct {
	network *Process
	address string
}

func (c processCaller) unary(
	ctx context.Context, method string, r, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption,
) error {
	server, err := c.network.server(ctx, c.address)
	if err != nil {
		return callError(ctx, err)
	}
	return callError(ctx, server.Invoke(ctx, method, r, reply))
}

func (c processCaller) stream(
	ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	server, err := c.network.server(ctx, c.address)
	if err != nil {
		return nil, callError(ctx, err)
	}
	s, err := server.NewStream(ctx, desc, method)
	if err != nil {
		return nil, callError(ctx, err)
	}
	return &clientStream{ClientStream: s, ctx: ctx}, nil
}
