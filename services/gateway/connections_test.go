package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway"
)

// healthy sends a request over the connection and reports whether it is answered.
func healthy(conn net.Conn) bool {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return false
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return errors.Join(err, answer.Body.Close()) == nil && answer.StatusCode == http.StatusOK
}

func TestANewConnectionReplacesTheOneThatHasWaitedLongest(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxConnections = 3 })
	first, second, third := h.dial(t), h.dial(t), h.dial(t)
	for _, conn := range []net.Conn{second, third, first} { // first is now the newest that waits
		if !healthy(conn) {
			t.Fatal("a connection below the limit is not served")
		}
	}
	if _, err := io.WriteString(third, "GET /healthz HTTP/1.1\r\nX-Slow: "); err != nil { // not a whole header
		t.Fatal(err)
	}
	for range 2 {
		if !healthy(h.dial(t)) {
			t.Fatal("a connection above the limit is not served, and others are idle")
		}
	}
	for name, conn := range map[string]net.Conn{"the oldest idle one": second, "one within a header": third} {
		if got, err := io.ReadAll(conn); len(got) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: got %q, %v, want its end", name, got, err)
		}
	}
	if !healthy(first) {
		t.Error("a connection was replaced that was not the oldest")
	}
}

func TestConnectionsWithARequestAreNotReplaced(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxConnections, c.Heartbeat = 2, 10*time.Millisecond })
	h.begin(t, "s1", "hi", nil)
	var streams []net.Conn
	for range 2 {
		waitFor(t, "the connection of begin has ended", func() bool {
			conn := h.dial(t)
			_, err := io.WriteString(conn, "GET /sse?sessionId=s1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
			line, failed := bufio.NewReader(conn).ReadString('\n')
			if err != nil || failed != nil || !strings.Contains(line, "200") {
				return false
			}
			streams = append(streams, conn)
			return true
		})
	}
	if healthy(h.dial(t)) {
		t.Error("a connection above the limit is served")
	}
	for _, conn := range streams {
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("a stream was cut: %v", err)
		}
	}
	_ = streams[0].Close()
	waitFor(t, "a connection has ended", func() bool { return healthy(h.dial(t)) })
}

func TestTheHeaderOfARequestIsBounded(t *testing.T) {
	t.Parallel()
	const most = 8 << 10
	h := open(t, func(c *gateway.Config) { c.MaxHeaderBytes = most })
	for size, want := range map[int]int{most / 2: http.StatusOK, most + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		conn := h.dial(t)
		if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("a header of %d bytes: got %s, want %d", size, answer.Status, want)
		}
	}
}

func TestLargeBodiesAtOnceAreRefusedForAMoment(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.MaxBodyBytes, c.BodyMemory = 1<<20, 1<<20 })
	release, err := h.service.HoldBody("default", 900_000)
	if err != nil {
		t.Fatal(err)
	}
	second := `{"id":"s","message":"` + strings.Repeat("x", 300_000) + `"}`
	for _, path := range []string{"/chat", "/start"} {
		if answer := h.request(t, http.MethodPost, path, second); answer.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s beside a large body: got %s, want 429", path, answer.Status)
		}
	}
	if answer := h.request(t, http.MethodPost, "/chat", chatBody("s2", "small")); answer.StatusCode != http.StatusOK {
		t.Errorf("a small body: got %s", answer.Status)
	}
	releaseOther, err := h.service.HoldBody("calm", 900_000)
	if err != nil {
		t.Errorf("a large body of another tenant: got %v", err)
	} else {
		releaseOther()
	}
	release()
	if answer := h.request(t, http.MethodPost, "/chat", second); answer.StatusCode == http.StatusTooManyRequests {
		t.Errorf("a large body after the other: got %s", answer.Status)
	}
}
