package gateway

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds the open connections of a listener. When all are taken, a new connection replaces
// the one that has waited longest for a request, so thousands of idle connections keep no client out.
// Each has headerGrace to send a request; until then the listener accepts no more. Connections with a
// request are never replaced. If all have one, the new connection is closed.
type connections struct {
	net.Listener
	max int
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	open    int
	waiting list.List // of *connection without a request, the oldest first
	warned  time.Time
}

// connection is an open connection.
type connection struct {
	net.Conn
	all *connections

	// Guarded by all.mu.
	element *list.Element // in waiting; nil with a request
	since   time.Time     // when it began to wait
	closed  bool
}

// headerGrace is how long a connection may wait for a request before another replaces it.
const headerGrace = 500 * time.Millisecond

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		accepted := &connection{Conn: conn, all: c}
		time.Sleep(c.untilReplaceable())
		replaced, full := c.add(accepted)
		if full {
			_ = conn.Close()
			continue
		}
		if replaced != nil {
			_ = replaced.Conn.Close()
		}
		return accepted, nil
	}
}

// untilReplaceable returns how long a new connection has to wait until it may replace another.
func (c *connections) untilReplaceable() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := c.oldest()
	if c.open < c.max || oldest == nil {
		return 0
	}
	return headerGrace - c.now().Sub(oldest.since)
}

// oldest returns the longest waiting connection; nil for none.
func (c *connections) oldest() *connection {
	front := c.waiting.Front()
	if front == nil {
		return nil
	}
	oldest, _ := front.Value.(*connection)
	return oldest
}

// wait adds a connection to those that wait.
func (c *connections) wait(idle *connection) {
	idle.element = c.waiting.PushBack(idle)
	idle.since = c.now()
}

// add adds a connection. It returns the replaced connection, if any. full reports that there is no room.
func (c *connections) add(accepted *connection) (replaced *connection, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.max {
		replaced = c.oldest()
		c.warn(replaced == nil)
		if replaced == nil {
			return nil, true
		}
		c.remove(replaced)
	}
	c.open++
	c.wait(accepted)
	return replaced, false
}

// warnEvery is the interval of the log's warnings about full connections.
const warnEvery = time.Minute

func (c *connections) warn(refused bool) {
	if now := c.now(); now.Sub(c.warned) >= warnEvery {
		c.warned = now
		c.log.Warn("all connections are taken; raise HOLDFAST_GATEWAY_MAX_CONNECTIONS if the clients are genuine",
			"max", c.max, "refused", refused)
	}
}

// remove removes a connection once.
func (c *connections) remove(gone *connection) {
	if !gone.closed {
		gone.closed = true
		c.open--
		c.take(gone)
	}
}

// take removes a connection from those that wait.
func (c *connections) take(busy *connection) {
	if busy.element != nil {
		c.waiting.Remove(busy.element)
		busy.element = nil
	}
}

// changed follows the state of a connection, as http.Server.ConnState. A connection becomes active when
// the header of a request has arrived.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	of, ours := conn.(*connection)
	if !ours {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case of.closed:
	case state == http.StateActive || state == http.StateHijacked:
		c.take(of)
	case state == http.StateIdle && of.element == nil:
		c.wait(of)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
