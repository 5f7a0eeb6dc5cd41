package rpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// handlerGrace is how long Serve waits for handlers to see that their streams
// were cut. It is time to leave, not time to finish.
const handlerGrace = 5 * time.Second

// Serve serves on the listener until ctx ends or the listener fails. It then
// takes no new calls, gives the open ones the grace to end, cuts those that
// remain, and returns once their handlers have; it closes the listener. Serve
// returns nil after a clean shutdown, the listener's error, or, five seconds
// after the grace, an error when handlers ignore their ended context.
//
// A server serves once. A handler that waits for more to say should watch for
// the service's own end, or every shutdown takes the whole grace.
func Serve(ctx context.Context, server *Server, listener net.Listener, grace time.Duration) error {
	if l, ok := listener.(*processListener); ok {
		return l.serve(ctx, server.process, grace)
	}
	tracked := &trackedListener{Listener: listener, open: map[*trackedConn]struct{}{}}
	served := make(chan error, 1) // room for its one result, so that the goroutine ends whoever listens
	go func() { served <- server.Serve(tracked) }()
	select {
	case err := <-served:
		shutDown(server, tracked, 0)
		if err == nil { // somebody else has stopped the server
			return nil
		}
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	if !shutDown(server, tracked, grace) {
		return fmt.Errorf("serve on %s: handlers still run %v after their calls were cut", listener.Addr(), handlerGrace)
	}
	<-served
	return nil
}

// shutDown reports whether all handlers have returned. Its goroutine outlives
// it only together with a handler that ignores its context, and nothing in
// this process can end such a handler.
//
// It cuts by closing the connections, which the server's Stop would do as well.
// But Stop waits for a lock that GracefulStop keeps while a handler runs whose
// client is gone, and both wait for connections that have not said a word yet.
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

// trackedListener knows the connections that it has accepted and that are open.
type trackedListener struct {
	net.Listener
	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool // cut has been called: nobody gets in any more
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

// cut closes every connection, those that are still to be accepted too.
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
