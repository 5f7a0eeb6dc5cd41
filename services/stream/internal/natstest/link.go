package natstest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// link is an address that forwards to another one, or refuses.
type link struct {
	listener net.Listener
	group    sync.WaitGroup

	mu    sync.Mutex
	to    string // "" refuses
	conns map[net.Conn]struct{}
}

// newLink returns a refusing link and ends it with the test.
func newLink(t *testing.T) *link {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, conns: map[net.Conn]struct{}{}}
	l.group.Go(func() { l.accept(t.Context()) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.disconnect()
		l.group.Wait()
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// forward forwards the link to the address.
func (l *link) forward(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// disconnect makes the link refuse and closes its connections.
func (l *link) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = ""
	for c := range l.conns {
		_ = c.Close()
	}
}

func (l *link) accept(ctx context.Context) {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.group.Go(func() { l.serve(ctx, in) })
	}
}

func (l *link) serve(ctx context.Context, in net.Conn) {
	defer in.Close()
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	if to == "" {
		return
	}
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	defer l.remove(in, out)
	if !l.add(to, in, out) {
		return // disconnected or forwarded meanwhile
	}
	l.group.Go(func() { pipe(in, out) })
	pipe(out, in)
}

// pipe copies until one of the connections ends, and then ends both.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

func (l *link) add(to string, conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.conns[c] = struct{}{}
	}
	return l.to == to
}

func (l *link) remove(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
	}
}
