package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// rawRequest sends a bare request and returns the header of the answer and its rest.
func (h *fixture) rawRequest(t *testing.T, lines ...string) (header string, body *bufio.Reader, conn net.Conn) {
	t.Helper()
	conn = h.dial(t)
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	body = bufio.NewReader(conn)
	for {
		line, err := body.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			return header, body, conn
		}
		header += line
	}
}

func TestCommentsArePaddedBehindAProxy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		headers []string
		padding int
		want    int // least bytes of the opening comment and of a heartbeat
	}{
		"nobody between":    {nil, 2048, 0},
		"Via":               {[]string{"Via", "1.1 proxy"}, 2048, 2048},
		"Forwarded":         {[]string{"Forwarded", "for=192.0.2.1"}, 2048, 2048},
		"X-Forwarded-For":   {[]string{"X-Forwarded-For", "192.0.2.1"}, 2048, 2048},
		"another size":      {[]string{"Via", "1.1 proxy"}, 5000, 5000},
		"padding is denied": {[]string{"Via", "1.1 proxy"}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *gateway.Config) { c.Heartbeat, c.HeartbeatPadding = 20*time.Millisecond, tc.padding })
			run := h.begin(t, "s1", "hi", nil)
			for _, path := range []string{"/sse?sessionId=s1", "/chat/s1/stream"} {
				response := h.request(t, http.MethodGet, path, "", tc.headers...)
				lines := bufio.NewReader(response.Body)
				opening, beat := commentUntil(t, lines, ": open"), commentUntil(t, lines, ": keep-alive")
				padding := 0
				if tc.want > 0 {
					padding = len(commentUntil(t, lines, ":  "))
				}
				if len(opening) > 20 || len(beat) > 20 || tc.want > 0 && (padding < tc.want-2 || padding > tc.want) {
					t.Errorf("%s: got %q, %q and %d bytes, want %d", path, opening, beat, padding, tc.want)
				}
			}
			run.Complete()
		})
	}
}

func commentUntil(t *testing.T, lines *bufio.Reader, begin string) string {
	t.Helper()
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
}

func TestStreamsWorkOverHTTP10AndOverConnectionsThatAreToBeClosed(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	for name, lines := range map[string][]string{
		"HTTP/1.0":             {"GET /sse?sessionId=%s HTTP/1.0", "Host: localhost"},
		"HTTP/1.0, keep-alive": {"GET /sse?sessionId=%s HTTP/1.0", "Host: localhost", "Connection: keep-alive"},
		"HTTP/1.0, nginx":      {"GET /sse?sessionId=%s HTTP/1.0", "Host: localhost", "Connection: close"},
		"Connection: close":    {"GET /sse?sessionId=%s HTTP/1.1", "Host: localhost", "Connection: close"},
	} {
		session := strings.Map(func(r rune) rune {
			if r == ' ' || r == '/' || r == ',' || r == ':' {
				return '-'
			}
			return r
		}, name)
		run := h.begin(t, session, "hi", nil)
		run.Show(1, Started())
		lines[0] = fmt.Sprintf(lines[0], session)
		header, body, _ := h.rawRequest(t, lines...)
		if !strings.Contains(header, "200 OK") || strings.Contains(strings.ToLower(header), "connection: keep-alive") {
			t.Errorf("%s: got %s", name, header)
		}
		if chunked := strings.Contains(header, "chunked"); chunked != strings.Contains(lines[0], "HTTP/1.1") {
			t.Errorf("%s: chunked is %v", name, chunked)
		}
		commentUntil(t, body, "event: caught-up") // before any event
		run.Show(1, Text("One"))
		run.Complete()
		rest, err := io.ReadAll(body) // the server closes
		if err != nil || strings.Count(string(rest), "event: chunk") != 3 || strings.Count(string(rest), "event: end") != 1 {
			t.Errorf("%s: got %s, %v", name, rest, err)
		}
	}
}

func TestAStreamThatIsCutHasNoTerminalFrame(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	h.begin(t, "s1", "hi", nil).Show(1, Started())
	_, old, _ := h.rawRequest(t, "GET /sse?sessionId=s1 HTTP/1.0", "Host: localhost")
	commentUntil(t, old, "event: caught-up")
	stream := h.resume(t, "/sse?sessionId=s1")
	stream.until("{}")
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if events, err := stream.all(); err == nil {
		t.Errorf("the body ends well after %v", events)
	}
	rest, _ := io.ReadAll(old) // over HTTP/1.0 every end of a body looks clean
	for _, terminal := range []string{"event: end", "event: fail"} {
		if strings.Contains(string(rest), terminal) {
			t.Errorf("got %s", rest)
		}
	}
}

func TestLastEventIDWinsOverFromSequence(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	first := run.Show(1, Started(), Text("1"))
	last := run.Show(1, Text("2"))
	run.Complete()
	path := fmt.Sprint("/sse?sessionId=s1&fromSequence=", first)
	if got, want := names(h.resume(t, path, "Last-Event-ID", fmt.Sprint(last)).rest()), "chunk 1.committed, chunk 1.last, end 1.ended"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheConnectionOfAnEndedConversationServesTheNextRequest(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	run.Show(1, Started(), Text("One"))
	run.Complete()
	conn := h.dial(t)
	answers := bufio.NewReader(conn)
	for range 2 {
		if _, err := io.WriteString(conn, "GET /sse?sessionId=s1 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.Close || !strings.HasPrefix(string(body), ": open\n\n") || strings.Count(string(body), "event: end") != 1 {
			t.Errorf("closing: %v; got %s, %v", answer.Close, body, err)
		}
	}
}
