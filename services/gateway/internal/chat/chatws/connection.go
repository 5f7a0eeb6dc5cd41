package chatws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/socket"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// connection is one socket with its requests.
type connection struct {
	*Sockets
	ctx    context.Context //nolint:containedctx // lives as long as the socket
	end    context.CancelCauseFunc
	conn   *socket.Conn
	tenant string
	major  uistream.Major

	working sync.WaitGroup // all goroutines of the socket

	mu        sync.Mutex
	requests  map[string]*request // in flight, by id
	busy      int                 // requests in work, also aborted ones
	finishing int                 // requests with only their last frames to write
}

// serve serves the socket to its end, and returns the reason of the end.
func (c *connection) serve() error {
	c.conn.EndAfter(c.ctx)
	c.working.Go(func() { c.end(c.listen()) })
	c.working.Go(c.keepAlive)
	<-c.ctx.Done()
	err := context.Cause(c.ctx)
	c.conn.Close(err, reconnectAdvice)
	c.working.Wait()
	return err
}

// keepAlive pings the client to detect its loss, and to keep proxies from closing a quiet socket.
func (c *connection) keepAlive() {
	beat := time.NewTicker(c.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			c.conn.Ping(func() { c.end(socket.ErrDisconnected) })
		case <-c.ctx.Done():
			return
		}
	}
}

// listen handles the client's frames until the socket ends.
func (c *connection) listen() error {
	for {
		text, isText, failed := c.conn.Receive(c.Arrival, func(message io.Reader, progress func() error) ([]byte, error) {
			return c.Files.ExtractAll(c.ctx, c.tenant, message, progress)
		})
		if errors.Is(failed, socket.ErrDisconnected) {
			return failed
		}
		if !isText {
			return invalid("a frame must be a text message")
		}
		f, err := parse(text)
		if err = cmp.Or(err, failed); err == nil {
			err = c.handle(f)
		}
		if err != nil && f.RequestID == "" {
			return err // without a request id there is no one to answer
		}
		if err != nil {
			err = c.refuse(f.RequestID, err)
		}
		if err != nil {
			return err
		}
	}
}

// refuse ends a request with an error. It also ends an earlier request in flight with the same id,
// because the client takes the error for the end of both.
func (c *connection) refuse(id string, err error) error {
	c.cancel(id)
	return c.conn.Write(encodeError(id, err))
}

// handle starts the request of a frame, or aborts one. Invalid (REQUEST_EXISTS), Exhausted
// (TOO_MANY_REQUESTS).
func (c *connection) handle(f *frame) error {
	if f.Type == typeAbort {
		c.cancel(f.RequestID) // it may have ended already
		return nil
	}
	r := &request{connection: c, frame: f}
	if err := c.register(r); err != nil {
		return err
	}
	c.working.Go(func() {
		defer c.done(r)
		r.serve()
	})
	return nil
}

// register adds the request to those in flight.
func (c *connection) register(r *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[r.RequestID] != nil {
		return fault.New(fault.Invalid, "REQUEST_EXISTS", "a request with the requestId %.50q is in flight; give each its own", r.RequestID)
	}
	// A stalled client could otherwise let any number of last frames wait.
	if c.busy >= c.Requests || c.busy+c.finishing >= 2*c.Requests {
		return fault.New(fault.Exhausted, "TOO_MANY_REQUESTS",
			"%d requests are in flight on this socket; HOLDFAST_GATEWAY_MAX_SOCKET_CHATS is the limit", c.busy)
	}
	c.busy++
	c.requests[r.RequestID] = r
	r.ctx, r.abort = context.WithCancel(c.ctx)
	return nil
}

// cancel ends the delivery of a request, if it is in flight.
func (c *connection) cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.requests[id]; r != nil {
		r.abort()
		delete(c.requests, id)
	}
}

// finish removes the request from those in flight. It returns false if the request was ended
// before: then nothing may be written under its id.
func (c *connection) finish(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[r.RequestID] != r {
		return false
	}
	delete(c.requests, r.RequestID)
	c.busy, c.finishing, r.finishing = c.busy-1, c.finishing+1, true
	return true
}

// done ends the work on a request. A panic is logged and ends the socket; the client receives no
// details.
func (c *connection) done(r *request) {
	if p := recover(); p != nil {
		c.Log.ErrorContext(r.ctx, "request panicked", "type", r.Type, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.end(errPanic)
	}
	r.abort()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[r.RequestID] == r {
		delete(c.requests, r.RequestID)
	}
	if r.finishing {
		c.finishing--
	} else {
		c.busy--
	}
}

var errPanic = errors.New("a request panicked")
