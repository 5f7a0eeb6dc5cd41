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

// longestMark is the longest text, in bytes, behind which a proxy can cut.
const longestMark = 64

// Proxy is a TCP proxy that can cut the connections that pass through it.
type Proxy struct {
	// URL is the address of the proxy as an HTTP URL, Address without that.
	URL, Address string

	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	pairs  map[*pair]struct{}
	// cutAt and cutBehind say where the next cut is due; zero values ask for none.
	cutAt     int64
	cutBehind string
	cuts      int
	ended     bool
}

// pair is a connection of a client and its continuation to the target.
type pair struct {
	client, server net.Conn
	answered       int64
	heard          []byte // the end of what was answered, in which a text may have begun
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

// CutOnceBehind makes the proxy reset the next connection whose answer holds the text,
// behind the piece of it in which the text ends; connections after that one pass whole.
func (p *Proxy) CutOnceBehind(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutBehind = text
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

// due notes a piece of the answer, and reports whether the connection is cut behind it.
func (p *Proxy) due(c *pair, piece []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.answered += int64(len(piece))
	c.heard = append(c.heard, piece...)
	reached := p.cutAt > 0 && c.answered >= p.cutAt
	said := p.cutBehind != "" && bytes.Contains(c.heard, []byte(p.cutBehind))
	c.heard = c.heard[max(0, len(c.heard)-longestMark):]
	if !reached && !said {
		return false
	}
	p.cutAt, p.cutBehind = 0, ""
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
