package harness

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// longestMark is the longest text, in bytes, accepted by CutOnceBehind.
const longestMark = 64

// Proxy is a TCP proxy. It can cut its connections.
type Proxy struct {
	// URL is the HTTP URL of the proxy, Address its host and port.
	URL, Address string

	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	pairs  map[*pair]struct{}
	// cutAt and cutBehind define the next cut; zero values define none.
	cutAt     int64
	cutBehind string
	cuts      int
	ended     bool
}

// pair is a client connection with its connection to the target.
type pair struct {
	client, server net.Conn
	answered       int64
	received       []byte // the end of the answer so far, possibly with the start of a mark
}

// StartProxy starts a proxy to the address; it ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l := listen(t)
	p := &Proxy{URL: "http://" + l.Addr().String(), Address: l.Addr().String(), target: target, listener: l, pairs: map[*pair]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.end()
		p.wg.Wait()
	})
	return p
}

// CutOnceAfter resets the next connection whose answer reaches the number of bytes. Later connections pass.
func (p *Proxy) CutOnceAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAt = bytes
}

// CutOnceBehind resets the next connection with the text in its answer, after the piece with the end of the text. Later
// connections pass.
func (p *Proxy) CutOnceBehind(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutBehind = text
}

// CutAll resets every open connection. New ones pass.
func (p *Proxy) CutAll() { p.CutSome(1) }

// CutSome resets each open connection with probability share (0 to 1) and returns the number of resets.
func (p *Proxy) CutSome(share float64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for c := range p.pairs {
		if rand.Float64() >= share {
			continue
		}
		n++
		reset(c.client)
		_ = c.server.Close()
		delete(p.pairs, c)
	}
	p.cuts += n
	return n
}

// Switch sends new connections to another address. CutAll moves the open ones.
func (p *Proxy) Switch(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", target)
}

// Cuts returns how many connections the proxy has reset.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := p.dial()
	if err != nil {
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server}
	if !p.begin(c) {
		reset(client)
		_ = server.Close()
		return
	}
	p.wg.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	p.answer(c)
	_ = client.Close()
	_ = server.Close()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
}

// answer forwards the server's output until the cut or the end.
func (p *Proxy) answer(c *pair) {
	buffer := make([]byte, 4096)
	for {
		n, err := c.server.Read(buffer)
		if n > 0 {
			if _, err := c.client.Write(buffer[:n]); err != nil {
				return
			}
			if p.due(c, buffer[:n]) {
				reset(c.client)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// due records a piece of the answer and reports whether the connection is cut after it.
func (p *Proxy) due(c *pair, piece []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.answered += int64(len(piece))
	c.received = append(c.received, piece...)
	reached := p.cutAt > 0 && c.answered >= p.cutAt
	matched := p.cutBehind != "" && bytes.Contains(c.received, []byte(p.cutBehind))
	c.received = c.received[max(0, len(c.received)-longestMark):]
	if !reached && !matched {
		return false
	}
	p.cutAt, p.cutBehind = 0, ""
	p.cuts++
	return true
}

// begin reports whether the pair may start. It may not after the proxy has ended.
func (p *Proxy) begin(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.pairs[c] = struct{}{}
	return true
}

func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for c := range p.pairs {
		reset(c.client)
		_ = c.server.Close()
	}
}

// reset closes with RST, so the peer sees an error instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
