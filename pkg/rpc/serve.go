package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// handlerGrace is how long Serve waits for handlers after their streams were cut.
const handlerGrace = 5 * time.Second

// Serve serves on the listener until ctx ends or the listener fails. It then accepts no new calls, gives open
// calls the grace period, cuts the remaining ones, closes the listener, and returns after the last handler. It
// returns nil after a clean shutdown, the listener's error, or, five seconds after the grace period, an error if
// handlers ignore their ended context.
//
// A server serves once. A handler that waits for events should also watch for the end of its service; otherwise
// every shutdown takes the whole grace period.
func Serve(ctx context.Context, server *Server, listener net.Listener, grace time.Duration) error {
	if l, ok := listener.(*processListener); ok {
		return l.serve(ctx, server.process, grace)
	}
	tracked := &trackedListener{Listener: listener, open: map[*trackedConn]struct{}{}}
	served := make(chan error, 1) // buffered, so the goroutine always ends
	go func() { served <- server.Serve(tracked) }()
	select {
	case err := <-served:
		shutDown(server, tracked, 0)
		if err == nil { // stopped by other means
			return nil
		}
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	if !shutDown(server, tracked, grace) {
		return fmt.Errorf("serve on %s: handlers still run %v after their calls were canceled", listener.Addr(), handlerGrace)
	}
	<-served
	return nil
}

// shutDown reports whether all handlers have returned. Its goroutine outlives it only with a handler that
// ignores its context; such a handler cannot be ended.
//
// It cuts by closing the connections, as the server's Stop would. But Stop waits for a lock held by GracefulStop
// while a handler without a client runs, and both wait for connections without any traffic yet.
func shutDown(server *Server, listener *trackedListener, grace time.Duration) bool {
	ended := make(chan struct{})
	server.pipes.Stop()
	go func() {
		server.GracefulStop()
		close(ended)
	}()
	if within(grace, ended) {
		return true
	}
	listener.cut()
	return within(handlerGrace, ended)
}

func within(d time.Duration, ended <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// trackedListener tracks its open connections.
type trackedListener struct {
	net.Listener
	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool // cut was called: no new connections
}

func (l *trackedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
	} else {
		l.open[tracked] = struct{}{}
	}
	return tracked, nil
}

// cut closes every connection, including those not yet accepted.
func (l *trackedListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for conn := range l.open {
		conn.Conn.Close()
	}
	clear(l.open)
}

type trackedConn struct {
	net.Conn
	listener *trackedListener
}

func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
