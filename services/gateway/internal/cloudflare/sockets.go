package cloudflare

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/socket"
	"github.com/holdfast-run/holdfast/services/gateway/internal/live"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/submit"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// reconnectAdvice is for developers of clients.
const reconnectAdvice = "the client connects again by itself"

// Sockets serves the instances. It may be used by many goroutines.
type Sockets struct {
	Methods   *Methods
	Chat      *chat.Chat
	Answers   *submit.Answers
	Stops     *stop.Stops
	Sessions  *conversation.Reader
	Live      *live.Hub
	Files     *files.Files
	Streams   *httpapi.Streams
	Major     uistream.Major // of the package ai of clients that do not tell theirs; not 0: a turn without reset-step may end its socket
	MaxBytes  int64          // of a client's frame with the files in it
	MaxText   int64          // of a client's frame without them
	Bodies    httpapi.Limits // of the arguments of a method over HTTP
	Requests  int            // turns, and calls of methods, at a time on one socket
	Heartbeat time.Duration  // between pings
	Arrival   time.Duration  // for a frame to arrive once it has begun
	Timeout   time.Duration  // for one write, and for the answer to a ping
	Poll      time.Duration  // between two readings of a session without a hint

	MethodTimeout time.Duration // of one call of a method
	Log           *slog.Logger

	instances instances
	refusing  atomic.Int64 // sockets
	schemas   agent.SchemaCache
}

// Close codes. Clients do not connect again after 1008 and 4000 to 4999.
const (
	closeInvalid         = 4400
	closeUnauthenticated = 4401
	closeNotFound        = 4404
	closeConflict        = 4409
)

var closeCodes = map[fault.Kind]int{
	fault.Invalid: closeInvalid, fault.Unauthenticated: closeUnauthenticated,
	fault.NotFound: closeNotFound, fault.Conflict: closeConflict,
}

// Serve is GET /agents/{agent}/{name}. A request refused for good is answered with a close of
// the socket; other failures fail the handshake, and clients try it again.
func (s *Sockets) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	if !auth.Upgrade(r) {
		return s.describe(w, r, tenant)
	}
	ctx, release, err := s.Streams.Open(r.Context(), httpapi.ProtocolCloudflare)
	if err != nil {
		return err
	}
	defer release()
	c, err := s.accept(ctx, r, tenant)
	if err != nil {
		release()
		return s.Refuse(w, r, err)
	}
	if err := check(w, r); err != nil {
		return err
	}
	if c.conn, err = socket.Accept(w, r, s.MaxBytes, s.Timeout); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.ctx, c.end = ctx, end
	if err := c.serve(); !errors.Is(err, socket.ErrDisconnected) { //nolint:contextcheck // see socket.Conn.Read
		s.Log.DebugContext(ctx, "agent socket cut", "session", c.address.session, "error", err)
	}
	return nil
}

// Refuse answers a refused request. If it opens a socket and the refusal stands, the gateway accepts
// the socket and closes it with the reason: a client would try a refused handshake again for ever.
func (s *Sockets) Refuse(w http.ResponseWriter, r *http.Request, refusal error) error {
	code := closeCodes[fault.KindOf(refusal)]
	if code == 0 || !auth.Upgrade(r) {
		return refusal
	}
	if err := check(w, r); err != nil {
		return err
	}
	defer s.refusing.Add(-1)
	if s.refusing.Add(1) > maxRefusals {
		return refusal
	}
	conn, err := socket.Accept(w, r, maxRefused, s.Timeout)
	if err == nil {
		conn.Refuse(code, fault.ReasonOf(refusal))
	}
	return err
}

// maxRefusals bounds the sockets that are being refused. Above it the handshake fails. They do not count as
// streams, because anyone may open them.
const maxRefusals = 64

// maxRefused bounds the frames of a refused client, in bytes.
const maxRefused = 1 << 10

func check(w http.ResponseWriter, r *http.Request) error {
	return socket.Check(w, r, "GET /agents/{agent}/{name}/get-messages gives the messages as JSON")
}

// refusePath refuses a path below an instance.
func (s *Sockets) refusePath(w http.ResponseWriter, r *http.Request, _ string) error {
	return s.Refuse(w, r, fault.New(fault.NotFound, "ROUTE_NOT_FOUND",
		"an instance has no path %.50q; get-messages gives its messages", r.PathValue("path")))
}

// accept checks a handshake. It returns the faults of resolve, and Invalid (TRANSPORT_UNSUPPORTED,
// PARAMETER_INVALID).
func (s *Sockets) accept(ctx context.Context, r *http.Request, tenant string) (*connection, error) {
	if transport := r.URL.Query().Get("__agents_transport"); transport != "" {
		return nil, fault.New(fault.Invalid, "TRANSPORT_UNSUPPORTED", "the transport %.30q is not supported; leave it out", transport)
	}
	readOnly, err := readOnlyParameter.Bool(r)
	if err != nil {
		return nil, err
	}
	a, err := s.resolve(ctx, r)
	if err != nil {
		return nil, err
	}
	major, err := chat.MajorOf(r)
	if err != nil {
		return nil, err
	}
	return &connection{Sockets: s, tenant: tenant, address: a, readOnly: readOnly, base: s.Files.Base(r), major: cmp.Or(major, s.Major)}, nil
}
