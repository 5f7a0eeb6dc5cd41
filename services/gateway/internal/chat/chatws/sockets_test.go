package chatws

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// serve serves sockets without a chat, so that every request panics.
func serve(t *testing.T, s *Sockets) *websocket.Conn {
	t.Helper()
	s.Streams, s.Log = httpapi.NewStreams(httpapi.StreamLimits{All: 10}), slog.New(slog.DiscardHandler)
	s.MaxBytes, s.Requests, s.Heartbeat, s.Timeout = 1<<20, 4, time.Hour, 10*time.Second
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Serve(w, r, "tenant"); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(func() {
		s.Streams.Drain()
		server.Close()
	})
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil) //nolint:bodyclose // the body is the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func TestARequestThatPanicsEndsItsSocketAndNothingElse(t *testing.T) {
	t.Parallel()
	s := &Sockets{Arrival: 10 * time.Second, Files: noFiles()}
	conn := serve(t, s)
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"resume","requestId":"r1","id":"s1"}`)); err != nil {
		t.Fatal(err)
	}
	_, _, err := conn.Read(t.Context())
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || closed.Reason != "INTERNAL: connect again and resume" {
		t.Errorf("got %v, want a close that says no more than INTERNAL", err)
	}
	s.Streams.Drain()
	if got := s.Streams.Count(); got != 0 {
		t.Errorf("%d streams are left", got)
	}
}

func TestAFrameThatDoesNotArriveEndsItsSocket(t *testing.T) {
	t.Parallel()
	conn := serve(t, &Sockets{Arrival: 50 * time.Millisecond, Files: noFiles()})
	half, err := conn.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := half.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(t.Context()); err == nil {
		t.Error("the socket stays")
	}
}

// noFiles reads frames without files.
func noFiles() *files.Files {
	return files.New(nil, retry.Policy{}, files.Limits{Text: 1 << 20}, "")
}
