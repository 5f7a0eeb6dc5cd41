package native

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/socket"
)

const (
	// maxMessage bounds a message of the client, in bytes. A larger one closes the socket with 1009.
	maxMessage = 4 << 10
	// typePing is the type of the only frame that a client may send.
	typePing = "ping"
	// reconnectAdvice is for developers of clients.
	reconnectAdvice = "connect again with the last sequence"
)

// Sockets serves the native stream over WebSockets, one frame per message.
//
// After a terminal frame the socket is closed with 1000. Every other close is a drop: the client
// reconnects with the last sequence. The goroutine of the handler writes. A second one reads, since
// only a read handles pongs, pings and closes, and a third one waits for the answer to a ping. A
// deadline ends the socket after its context, whatever they do.
type Sockets struct {
	Follower *follow.Follower
	Streams  *httpapi.Streams
	Timeout  time.Duration // for one write, for a message to arrive, and for the answer to a ping
	Log      *slog.Logger
}

// Or serves WebSocket handshakes, and calls next for other requests.
func (s *Sockets) Or(next httpapi.Handler) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, tenant string) error {
		if auth.Upgrade(r) {
			return s.Serve(w, r, tenant)
		}
		return next(w, r, tenant)
	}
}

// Serve is GET /ws?sessionId=…&fromSequence=…&runId=…. It refuses an invalid request before the
// upgrade.
func (s *Sockets) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	if err := socket.Check(w, r, "/sse gives the same as server-sent events"); err != nil {
		return err
	}
	request, err := ParseRequest(r, tenant)
	if err != nil {
		return err
	}
	ctx, release, err := s.Streams.Open(r.Context(), httpapi.ProtocolWebSocket)
	if err != nil {
		return err
	}
	defer release()
	followed, err := s.Follower.Begin(ctx, request)
	if err != nil {
		return httpapi.CauseOf(ctx, err)
	}
	conn, err := socket.Accept(w, r, maxMessage, s.Timeout)
	if err != nil {
		return err
	}
	if err := s.serve(ctx, conn, followed); err != nil {
		s.Log.DebugContext(ctx, "socket cut", "session", request.SessionID, "error", err)
	}
	return nil
}

// serve writes the followed frames, and closes the socket.
func (s *Sockets) serve(ctx context.Context, conn *socket.Conn, followed *follow.Follow) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn.EndAfter(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(s.listen(conn)) }) //nolint:contextcheck // see socket.Conn.Read
	err := followed.To(ctx, &socketSink{conn, func() { cancel(socket.ErrDisconnected) }})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	conn.Close(err, reconnectAdvice)
	reading.Wait()
	return err
}

// listen answers the pings of the client until the socket ends.
func (s *Sockets) listen(conn *socket.Conn) error {
	for {
		text, isText, err := conn.Read(s.Timeout)
		if err != nil {
			return err
		}
		var message struct {
			Type string `json:"type"`
		}
		if !isText || json.Unmarshal(text, &message) != nil || message.Type != typePing {
			continue // unknown messages are ignored
		}
		if err := conn.Write([]byte(`{"type":"pong"}`)); err != nil {
			return err
		}
	}
}

// socketSink writes each frame as one message.
type socketSink struct {
	conn *socket.Conn
	lost func() // ends the socket of a lost client
}

func (s *socketSink) Frame(f *frame.Frame) error {
	if text := f.Message(); len(text) > 0 {
		return s.conn.Write(text)
	}
	return nil
}

func (s *socketSink) Flush() error { return nil }

// Heartbeat pings the client. Frames do not wait for the answer.
func (s *socketSink) Heartbeat() error {
	s.conn.Ping(s.lost)
	return nil
}
