package gateway_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// dial opens a bare connection, with a deadline.
func (h *fixture) dial(t *testing.T) net.Conn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAnUnreadBodyHoldsNoConnection(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.ReadTimeout = 50 * time.Millisecond })
	for _, line := range []string{"POST /sse?sessionId=s", "POST /healthz", "GET /healthz", "POST /nowhere", "GET /status?sessionId=s"} {
		conn := h.dial(t)
		if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n", line); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil {
			t.Errorf("%s: still open after %q: %v", line, got, err)
		}
	}
}

// pipes is a listener of connections without buffers: a write waits until it is read, as on a
// network with full buffers.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr {
	conn, other := net.Pipe()
	_, _ = conn.Close(), other.Close()
	return conn.LocalAddr()
}

func (p *pipes) dial(t *testing.T) net.Conn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close() })
	select {
	case p.dialed <- far:
	case <-time.After(Patience):
		t.Fatal("the server accepts nobody")
	}
	return near
}

func TestUnreadAnswersHoldNoConnection(t *testing.T) {
	t.Parallel()
	listener := newPipes()
	openOn(t, listener, func(c *gateway.Config) { c.WriteTimeout = 50 * time.Millisecond })
	for _, path := range []string{"/healthz", "/nowhere"} {
		conn := listener.dial(t)
		if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil {
			_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: the server neither reads nor leaves: %v", path, err)
		}
	}
}

func TestQuietStreamsLiveLongerThanTheTimesOfTheServer(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) {
		c.ReadTimeout, c.WriteTimeout, c.Heartbeat = 2*time.Second, 2*time.Second, time.Hour
	})
	run := h.begin(t, "s1", "hi", nil)
	pause := func() {
		quiet := time.NewTimer(4500 * time.Millisecond) // longer than both timeouts
		<-quiet.C
	}
	h.Stream.WithholdLive(true) // quiet before the first message, too
	ended := map[string]<-chan string{}
	for name, client := range clients(t, h) {
		end := make(chan string, 1) // room for the only result
		ended[name] = end
		go func() {
			stream, err := client.Stream(t.Context(), &agentv1.StreamRequest{SessionId: "s1", RunId: "run_1"})
			if err != nil {
				end <- err.Error()
				return
			}
			last := ""
			for stream.Receive() {
				last = stream.Msg().GetEnd().GetStatus()
			}
			end <- fmt.Sprint(last, stream.Err())
		}()
	}
	native := map[string]*reader{}
	for name, client := range map[string]*http.Client{"HTTP/1": http.DefaultClient, "HTTP/2": http2(t)} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/sse?sessionId=s1&runId=run_1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		native[name] = streamOf(t, &reply{response})
	}
	waitFor(t, "all streams are open", func() bool { return h.service.OpenStreams() == len(ended)+len(native) })
	pause()
	h.Stream.WithholdLive(false)
	run.Show(1, Started())
	pause()
	run.Show(1, Text("One"))
	run.Complete()
	for name, end := range ended {
		if got := <-end; got != "completed<nil>" {
			t.Errorf("%s: got %s", name, got)
		}
	}
	for name, stream := range native {
		if events, err := stream.all(); err != nil {
			t.Errorf("%s: broken after %v: %v", name, events, err)
		}
	}
}

func TestAQuietConnectionOverHTTP2IsPinged(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.Heartbeat = 20 * time.Millisecond })
	conn := h.dial(t)
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // an empty frame: length, type, flags, stream
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings); err != nil {
		t.Fatal(err)
	}
	const ping = 6
	for header := make([]byte, len(settings)); header[3] != ping; {
		if _, err := io.ReadFull(conn, header); err != nil {
			t.Fatalf("waiting for a ping: %v", err)
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			t.Fatal(err)
		}
	}
}
