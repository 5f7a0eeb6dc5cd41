package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/socket"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// connection is one socket of an instance.
type connection struct {
	*Sockets
	tenant   string
	address  address
	readOnly bool
	base     string // address of the gateway for the client

	ctx      context.Context //nolint:containedctx // lives as long as the socket
	end      context.CancelCauseFunc
	conn     *socket.Conn
	instance *instance
	frames   chan received
	late     chan lateFrame
	changed  chan struct{}  // of size 1: the instance has a new reading
	working  sync.WaitGroup // all goroutines of the socket

	major uistream.Major

	sync  stateSync // of the goroutine of work
	seen  receipts
	chat  chatSync
	turns turns
	calls atomic.Int64 // of methods, in flight
}

// received is a frame of the client.
type received struct {
	*frame
	states int64 // how many states the client had received when it sent the frame
	files  bool  // the client has sent files, and has no references to them
	failed error // of the files
}

var errPanic = errors.New("a frame panicked")

// serve serves the socket to its end, and returns the reason of the end.
func (c *connection) serve() error {
	c.frames, c.late, c.changed = make(chan received), make(chan lateFrame), make(chan struct{}, 1)
	c.conn.EndAfter(c.ctx)
	caller, _ := auth.From(c.ctx)
	c.instance = c.join(caller, c)
	defer c.instance.leave(c)
	c.working.Go(func() { c.end(c.listen()) })
	c.working.Go(func() { c.end(c.work()) })
	<-c.ctx.Done()
	err := context.Cause(c.ctx)
	c.conn.Close(err, reconnectAdvice)
	c.working.Wait()
	return err
}

// wake tells the socket of a new reading.
func (c *connection) wake() {
	select {
	case c.changed <- struct{}{}:
	default: // it knows
	}
}

// listen reads the client's frames until the socket ends. Text that is no frame is ignored: apps
// may send their own.
func (c *connection) listen() error {
	for {
		f, err := c.receive()
		if err != nil {
			return err
		}
		if f.frame == nil {
			continue
		}
		select {
		case c.frames <- f:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

// receive receives a message, which may be no frame.
func (c *connection) receive() (f received, err error) {
	var body []byte
	text, isText, err := c.conn.Receive(c.Arrival, func(message io.Reader, progress func() error) (rest []byte, err error) {
		rest, body, f.files, err = receive(message, c.MaxText, func(body io.Reader) ([]byte, error) {
			return c.Files.ExtractAll(c.ctx, c.tenant, body, progress)
		})
		return rest, err
	})
	if errors.Is(err, socket.ErrDisconnected) {
		return f, err
	}
	if isText {
		f.frame = parse(text)
	}
	if f.frame != nil && body != nil {
		f.Init.Body = string(body)
	}
	f.states, f.failed = c.seen.received.Load(), err
	return f, nil
}

// work handles the frames in their order and shows the client what has changed. A panic ends the
// socket and nothing else.
func (c *connection) work() (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.Log.ErrorContext(c.ctx, "agent socket panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	if err := c.greet(); err != nil {
		return err
	}
	beat := time.NewTicker(c.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case f := <-c.frames:
			if handler := frameHandlers[f.Type]; handler != nil { // apps may send frames of their own
				err = handler(c, f)
			}
		case f := <-c.late:
			err = c.writeLate(f)
		case <-c.changed:
			err = c.show(c.instance.last())
		case <-c.chat.offer:
			err = c.offerNext()
		case <-beat.C:
			c.conn.Ping(func() { c.end(socket.ErrDisconnected) })
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// greet sends what a client needs first.
func (c *connection) greet() error {
	now, err := c.instance.read(retry.Request(c.ctx))
	if err != nil {
		return err
	}
	state := c.stateOf(now)
	if err := c.conn.Write(identityFrame(c.address.segment, c.address.name, state != "")); err != nil {
		return err
	}
	if err := c.sync.greet(c, now, state); err != nil {
		return err
	}
	if err := c.conn.Write(noMCPServers); err != nil {
		return err
	}
	return c.greetChat(now)
}

// show sends what has changed since the last reading.
func (c *connection) show(now *reading) error {
	if err := c.sync.show(c, now); err != nil {
		return err
	}
	return c.showChat(now)
}

// frameHandlers are the handlers of the frames that a client may send, by their type.
var frameHandlers = map[string]func(*connection, received) error{
	typeState:         (*connection).setState,
	typeRPC:           (*connection).rpc,
	typeChatRequest:   (*connection).request,
	typeChatCancel:    (*connection).stopTurn,
	typeResumeRequest: (*connection).probe,
	typeResumeAck:     (*connection).acknowledge,
	typeToolResult:    (*connection).toolResult,
	typeToolApproval:  (*connection).toolApproval,
	typeChatMessages:  (*connection).setMessages,
	typeChatClear:     func(c *connection, _ received) error { return c.clear() },
}

func (c *connection) setState(f received) error {
	if f.State == nil {
		return nil
	}
	return c.sync.write(c, f)
}
