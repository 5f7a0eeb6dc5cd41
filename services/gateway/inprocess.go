package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Caller is on whose behalf a program calls the gateway in its own process: see Transport and Peers.Authenticate.
type Caller = auth.Caller

// authenticator returns what asks the program who the caller is. It is nil without Peers.Authenticate.
func (p Peers) authenticator() func(*http.Request) (auth.Identity, bool, error) {
	if p.Authenticate == nil {
		return nil
	}
	return func(r *http.Request) (auth.Identity, bool, error) {
		caller, err := p.Authenticate(r)
		if err != nil || caller == nil {
			return auth.Identity{}, false, err
		}
		identity, err := caller.Identity()
		if err != nil { // a mistake of the program, not of the client
			return auth.Identity{}, false, fmt.Errorf("the caller that the program names: %s", err)
		}
		return identity, true, nil
	}
}

// idleTransport is how long a connection within the process is kept between two requests.
const idleTransport = 30 * time.Second

// Transport returns a transport for requests of this process: they reach the gateway without a network and a credential, on
// behalf of the caller, while ServeWithin runs. The host of their URLs is 127.0.0.1. Invalid (TENANT_INVALID, USER_INVALID,
// SCOPE_UNKNOWN).
func (s *Service) Transport(c Caller) (*http.Transport, error) {
	identity, err := c.Identity()
	if err != nil {
		return nil, err
	}
	return s.transportOf(identity), nil
}

func (s *Service) transportOf(caller auth.Identity) *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return s.within.dial(ctx, caller) }
	return &http.Transport{DialContext: dial, IdleConnTimeout: idleTransport}
}

// ServeWithin serves the requests of Transport until ctx ends, as Serve does with those of a listener.
func (s *Service) ServeWithin(ctx context.Context, grace time.Duration) error {
	server := s.newServer()
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if p, ok := conn.(*pipe); ok {
			ctx = auth.With(ctx, p.caller)
		}
		return ctx
	}
	return s.serveUntil(ctx, server, s.within, grace)
}

// pipe is the gateway's end of a connection within the process.
type pipe struct {
	net.Conn
	caller auth.Identity
}

// pipes is a listener whose connections are pairs of net.Pipe, which work with the deadlines of HTTP servers.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

// dial connects to the listener on behalf of a caller.
func (p *pipes) dial(ctx context.Context, caller auth.Identity) (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case p.accepted <- &pipe{server, caller}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
