// Package ws serves the native stream (package native) over a WebSocket, a frame a
// message.
//
// After a terminal frame the socket is closed with 1000. Every other close is a drop:
// the client connects again with the last sequence. Two goroutines serve a socket:
// the handler's, which writes, and one that reads, since only a reader sees pongs,
// pings and closes; for the time of a ping, one that waits for its pong. A socket that has to end has a deadline, whatever they do.
package ws

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/native"
	"github.com/holdfast-run/holdfast/services/gateway/internal/watch"
)

const (
	// protocol is the subprotocol that this is.
	protocol = "holdfast.v2"
	// maxMessage bounds what a client may say at once, in bytes. More closes with 1009.
	maxMessage = 4 << 10
	// closeTimeout bounds the parting from a client.
	closeTimeout = 2 * time.Second
)

// Sockets serves sockets.
type Sockets struct {
	Watcher *watch.Watcher
	Streams *httpapi.Streams
	Timeout time.Duration // for one message to be written, and for a ping to be answered
	Log     *slog.Logger
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
	if !handshake(r) {
		h := w.Header()
		h.Set("Upgrade", "websocket")
		h.Set("Connection", "Upgrade")
		h.Set("Sec-WebSocket-Version", version)
		return fault.New(fault.Invalid, httpapi.UpgradeRequired, "open a WebSocket (RFC 6455, version %s) here; /sse gives the same as server-sent events", version)
	}
	request, err := native.Request(r, tenant)
	if err != nil {
		return err
	}
	ctx, release, err := s.Streams.Open(r.Context())
	if err != nil {
		return err
	}
	defer release()
	watched, err := s.Watcher.New(ctx, request)
	if err != nil {
		return err
	}
	// Who may connect was decided before (auth.Origins).
	taken := &taker{ResponseWriter: w}
	conn, err := websocket.Accept(taken, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}, InsecureSkipVerify: true})
	if err != nil {
		return httpapi.ErrCut // the library has answered
	}
	conn.SetReadLimit(maxMessage)
	if err := s.serve(ctx, conn, taken.conn, watched); err != nil {
		s.Log.DebugContext(ctx, "socket cut", "session", request.SessionID, "error", err)
	}
	return nil
}

// version is that of RFC 6455.
const version = "13"

// handshake reports whether the request begins a WebSocket as RFC 6455, 4.2.1, says.
func handshake(r *http.Request) bool {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	return auth.Upgrade(r) && r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && err == nil && len(key) == 16 &&
		len(r.Header.Values("Sec-WebSocket-Key")) == 1 && r.Header.Get("Sec-WebSocket-Version") == version
}

// errLeft: the client has closed the socket, or is gone.
var errLeft = errors.New("the client has left")

// taker keeps the connection that is taken from the server.
type taker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (t *taker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(t.ResponseWriter).Hijack()
	t.conn = conn
	return conn, buffers, err
}

// serve tells what is watched, and closes the socket. under is what it stands on.
func (s *Sockets) serve(ctx context.Context, conn *websocket.Conn, under net.Conn, watched *watch.Watch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The error of a connection that is closed already does not matter.
	context.AfterFunc(ctx, func() { _ = under.SetDeadline(time.Now().Add(closeTimeout)) })
	var reading sync.WaitGroup
	reading.Go(func() { cancel(s.listen(conn)) }) //nolint:contextcheck // see listen
	out := &sink{conn: conn, timeout: s.Timeout, left: func() { cancel(errLeft) }}
	err := watched.Follow(ctx, out)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	code, reason := closing(err)
	_ = conn.Close(code, reason) // a client that is gone needs no answer
	reading.Wait()
	out.pings.Wait()
	return err
}

// listen answers what the client says, to its end. It reads without a context: one that
// ends would cut the socket without a close.
func (s *Sockets) listen(conn *websocket.Conn) error {
	for {
		kind, text, err := conn.Read(context.Background())
		if err != nil {
			return errLeft
		}
		var said struct {
			Type string `json:"type"`
		}
		if kind != websocket.MessageText || json.Unmarshal(text, &said) != nil || said.Type != "ping" {
			continue // of a later client; nothing here needs it
		}
		if err := write(conn, s.Timeout, []byte(`{"type":"pong"}`)); err != nil {
			return errLeft
		}
	}
}

// again tells people who debug a client what to do.
const again = ": connect again with the last sequence"

func closing(err error) (websocket.StatusCode, string) {
	f, told := fault.From(err)
	switch {
	case err == nil:
		return websocket.StatusNormalClosure, ""
	case told && f.Reason == stopping:
		return websocket.StatusServiceRestart, f.Reason + again
	case told && (f.Kind == fault.Unavailable || f.Kind == fault.Exhausted):
		return websocket.StatusTryAgainLater, f.Reason + again
	case errors.Is(err, errLeft):
		return websocket.StatusGoingAway, "LEFT" + again
	default:
		return websocket.StatusInternalError, "INTERNAL" + again
	}
}

var stopping = fault.ReasonOf(httpapi.Stopping())

// sink writes frames as they come.
type sink struct {
	conn    *websocket.Conn
	timeout time.Duration
	left    func() // ends the socket of a client that is gone
	pinging atomic.Bool
	pings   sync.WaitGroup
}

func (s *sink) Frame(f *feed.Frame) error {
	if text := native.Message(f); len(text) > 0 {
		return write(s.conn, s.timeout, text)
	}
	return nil
}

func (s *sink) Flush() error { return nil }

// Beat asks the client for a sign of life, which also keeps proxies from closing a
// quiet socket. Frames do not wait for the answer.
func (s *sink) Beat() error {
	if !s.pinging.CompareAndSwap(false, true) {
		return nil
	}
	s.pings.Go(func() {
		defer s.pinging.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		if err := s.conn.Ping(ctx); err != nil {
			s.left()
		}
	})
	return nil
}

func write(conn *websocket.Conn, timeout time.Duration, text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
		return errLeft
	}
	return nil
}
