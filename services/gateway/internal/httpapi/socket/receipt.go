package socket

import (
	"context"
	"net"
	"slices"
	"sync"
)

// WriteBehindPing sends a text message right behind a ping, and calls answered when the client has
// answered the ping: whatever the client sends afterwards was sent with the message at hand. A ping
// behind the message would be answered too late: some clients answer only while they read.
//
// answered is called by the goroutine that reads, before Read returns a later message. It is not
// called if no answer comes in time. One goroutine at a time may call WriteBehindPing.
func (c *Conn) WriteBehindPing(text []byte, answered func()) error {
	written, failed := c.under.nextPing(answered), make(chan struct{})
	begun := c.goPing(func() {
		defer close(failed)
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		_ = c.conn.Ping(ctx) // without an answer, answered is not called
	})
	if !begun {
		return ErrDisconnected
	}
	select {
	case <-written:
	case <-failed:
	}
	return c.Write(text)
}

// pingWatch is a connection that knows when a ping was written: the library tells it only together
// with the answer.
type pingWatch struct {
	net.Conn

	mu      sync.Mutex
	next    *awaitedPing // is to be written; nil for none
	awaited []*awaitedPing
}

// awaitedPing is a ping whose answer is awaited.
type awaitedPing struct {
	payload  string
	written  chan struct{} // closed when it is being written
	answered func()
}

// maxAwaited bounds the pings without an answer. A client without answers loses the oldest.
const maxAwaited = 16

// A ping begins with the final bit and opcode 9, and is followed by its length (RFC 6455, 5.2).
const (
	pingByte   = 0x89
	pingHeader = 2
)

// nextPing awaits the answer to the next ping. The channel is closed when the ping is being
// written.
func (p *pingWatch) nextPing(answered func()) (written <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = &awaitedPing{written: make(chan struct{}), answered: answered}
	return p.next.written
}

// Write implements net.Conn. The library writes a ping at once, and other messages after it.
func (p *pingWatch) Write(b []byte) (int, error) {
	if len(b) > pingHeader && b[0] == pingByte {
		p.begin(string(b[pingHeader:]))
	}
	return p.Conn.Write(b)
}

// begin notes a ping.
func (p *pingWatch) begin(payload string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		return
	}
	p.next.payload = payload
	close(p.next.written)
	if p.awaited = append(p.awaited, p.next); len(p.awaited) > maxAwaited {
		p.awaited = slices.Delete(p.awaited, 0, 1)
	}
	p.next = nil
}

// pong takes an answer. It also answers all earlier pings.
func (p *pingWatch) pong(payload []byte) {
	p.mu.Lock()
	at := slices.IndexFunc(p.awaited, func(a *awaitedPing) bool { return a.payload == string(payload) })
	answered := slices.Clone(p.awaited[:at+1])
	p.awaited = slices.Delete(p.awaited, 0, at+1)
	p.mu.Unlock()
	for _, a := range answered {
		a.answered()
	}
}
