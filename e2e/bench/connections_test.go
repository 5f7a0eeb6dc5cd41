package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// idleConnections of each kind wait for the sessions of idleSessions live runs.
const (
	idleConnections = 5000
	idleSessions    = 50
)

// BenchmarkIdleConnections measures the memory of a gateway with many quiet clients.
func BenchmarkIdleConnections(b *testing.B) {
	for b.Loop() {
		n := sized(idleConnections)
		needFiles(b, 2*n)
		fmt.Printf("\nThe gateway's resident memory with %d quiet clients of %d live conversations:\n", n, idleSessions)
		for _, k := range idleKinds {
			name := func(i int) string { return fmt.Sprint("idle-", i%idleSessions) }
			s, _, _ := startClaimed(b, harness.Options{}, idleSessions, name)
			before := resident(s.Gateway.PID())
			closers := make([]func(), n)
			err := some(n, func(i int) (err error) {
				closers[i], err = k.open(b.Context(), s.Client, name(i))
				return err
			})
			if err != nil {
				b.Fatalf("%s: %v", k.name, err)
			}
			each := float64(resident(s.Gateway.PID())-before) / float64(n)
			fmt.Printf("  %-28s %6.1f KB each, %7.0f per GiB\n", k.name, each/1000, (1<<30)/each)
			b.ReportMetric(each/1000, "KB/"+strings.Fields(k.name)[0])
			for _, end := range closers {
				end()
			}
			end(s)
			runtime.GC()
		}
	}
}

// idleKinds open a connection and wait until it is quiet.
var idleKinds = []struct {
	name string
	open func(ctx context.Context, c harness.Client, session string) (func(), error)
}{
	{"/sse", idleEvents("/sse?fromSequence=0&sessionId=%s", "event: caught-up")},
	{"/chat/{id}/stream", idleEvents("/chat/%s/stream", `"start-step"`)},
	{"/ws", idleSocket("/ws?sessionId=%s", `"caught-up"`)},
	{"/agents/{agent}/{name}", idleSocket("/agents/"+claimedAgent+"/%s", `"cf_agent_identity"`)},
}

// idleEvents reads a stream of events up to a line with the mark.
func idleEvents(path, mark string) func(context.Context, harness.Client, string) (func(), error) {
	return func(ctx context.Context, c harness.Client, session string) (func(), error) {
		s, err := attachTo(ctx, c, fmt.Sprintf(path, url.QueryEscape(session)))
		if err != nil {
			return nil, err
		}
		return func() { _ = s.conn.Close() }, s.until(func(line []byte) bool { return bytes.Contains(line, []byte(mark)) })
	}
}

// idleSocket reads a WebSocket up to a frame with the mark.
func idleSocket(path, mark string) func(context.Context, harness.Client, string) (func(), error) {
	return func(ctx context.Context, c harness.Client, session string) (func(), error) {
		opening, cancel := context.WithTimeout(ctx, attachLimit)
		defer cancel()
		conn, answer, err := websocket.Dial(opening, "ws"+strings.TrimPrefix(c.URL, "http")+fmt.Sprintf(path, url.PathEscape(session)),
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.Key}}})
		if err != nil {
			return nil, err
		}
		if answer.Body != nil {
			defer answer.Body.Close()
		}
		for {
			_, text, err := conn.Read(opening)
			if err != nil {
				return nil, fmt.Errorf("wait for %s: %w", mark, err)
			}
			if bytes.Contains(text, []byte(mark)) {
				return func() { _ = conn.CloseNow() }, nil
			}
		}
	}
}
