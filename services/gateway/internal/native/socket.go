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
	// maxMessage bounds what a client may say at once, in bytes. More closes with 1009.
	maxMessage = 4 << 10
	// again tells people who debug a client what to do.
	again = "connect again with the last sequence"
)

// Sockets serves the native stream over WebSockets, a frame a message.
//
// After a terminal frame the socket is closed with 1000. Every other close is a drop: the client
// connects again with the last sequence. Two goroutines serve a socket: the handler's, which
// writes, and one that reads, since only a reader sees pongs, pings and closes; for the time of a
// ping, one that waits for its pong. A socket that has to end has a deadline, whatever they do.
type Sockets struct {
	Follower *follow.Follower
	Streams  *httpapi.Streams
	Timeout  time.Duration // for one message to be written or to arrive, and for a ping to be answered
	Log      *slog.Logger
}

// Or serves a request that asks for a WebSocket, and leaves others to next.
func (s *Sockets) Or(next httpapi.Handler) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, tenant string) error {
		if auth.Upgrade(r) {
			return s.Serve(w, r, tenant)
		}
		return next(w, r, tenant)
	}
}

// Serve is GET /ws?sessionId=…&fromSequence=…&runId=…. What is wrong with the request
// is told before the upgrade.
func (s *Sockets) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	if err := socket.Check(w, r, "/sse gives the same as server-sent events"); err != nil {
		return err
	}
	request, err := Request(r, tenant)
	if err != nil {
		return err
	}
	ctx, release, err := s.Streams.Open(r.Context())
	if err != nil {
		return err
	}
	defer release()
	followed, err := s.Follower.Begin(ctx, request)
	if err != nil {
		return err
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

// serve gives what is followed, and closes the socket.
func (s *Sockets) serve(ctx context.Context, conn *socket.Conn, followed *follow.Follow) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	conn.EndWith(ctx)
	var reading sync.WaitGroup
	reading.Go(func() { cancel(s.listen(conn)) }) //nolint:contextcheck // see socket.Conn.Read
	err := followed.To(ctx, &socketSink{conn, func() { cancel(socket.ErrLeft) }})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	conn.Close(err, again)
	reading.Wait()
	return err
}

// listen answers what the client says, to its end.
func (s *Sockets) listen(conn *socket.Conn) error {
	for {
		text, isText, err := conn.Read(s.Timeout)
		if err != nil {
			return err
		}
		var said struct {
			Type string `json:"type"`
		}
		if !isText || json.Unmarshal(text, &said) != nil || said.Type != "ping" {
			continue // of a later client; nothing here needs it
		}
		if err := conn.Write([]byte(`{"type":"pong"}`)); err != nil {
			return err
		}
	}
}

// socketSink writes frames as they come.
type socketSink struct {
	conn *socket.Conn
	left func() // ends the socket of a client that is gone
}

func (s *socketSink) Frame(f *frame.Frame) error {
	if text := f.Message(); len(text) > 0 {
		return s.conn.Write(text)
	}
	return nil
}

func (s *socketSink) Flush() error { return nil }

// Beat does not let frames wait for the answer.
func (s *socketSink) Beat() error {
	s.conn.Beat(s.left)
	return nil
}
