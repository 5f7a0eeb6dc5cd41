package harness

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy is a TCP proxy that can cut the connections that pass through it.
type Proxy struct {
	// URL is the address of the proxy as an HTTP URL, Address without that.
	URL, Address string

	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	pairs  map[*pair]struct{}
	cutAt  int64
	cuts   int
	ended  bool
}

// pair is a connection of a client and its continuation to the target.
type pair struct {
	client, server net.Conn
	answered       atomic.Int64
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

// CutOnceAfter makes the proxy reset the next connection whose answer reaches
// the number of bytes; connections after that one pass whole.
func (p *Proxy) CutOnceAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAt = bytes
}

// CutAll resets every connection that is open now; new ones pass.
func (p *Proxy) CutAll() { p.CutSome(1) }

// CutSome resets a share of the connections that are open now, from 0 to 1:
// each with that probability. It returns how many.
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

// Switch has new connections go to another address; CutAll makes the open ones
// follow.
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

// Cuts tells how many connections the proxy has reset.
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

// answer passes on what the server says until the cut or the end.
func (p *Proxy) answer(c *pair) {
	buffer := make([]byte, 4096)
	for {
		n, err := c.server.Read(buffer)
		if n > 0 {
			if _, err := c.client.Write(buffer[:n]); err != nil {
				return
			}
			if p.due(c.answered.Add(int64(n))) {
				reset(c.client)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) due(answered int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cutAt == 0 || answered < p.cutAt {
		return false
	}
	p.cutAt = 0
	p.cuts++
	return true
}

// begin reports whether the pair may live: not when the proxy has ended.
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

// reset closes with RST, so that the other end sees an error and not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
