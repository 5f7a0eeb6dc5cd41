package chatws

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/socket"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// reconnectAdvice is for developers of clients.
const reconnectAdvice = "connect again and resume"

// Sockets serves WebSockets.
type Sockets struct {
	Chat      *chat.Chat
	Streams   *httpapi.Streams
	Files     *files.Files
	MaxBytes  int64         // of a client's frame with the files in it
	Requests  int           // in flight on one socket
	Heartbeat time.Duration // between pings
	Arrival   time.Duration // for a frame to arrive once it has begun
	Timeout   time.Duration // for one write, and for the answer to a ping
	Log       *slog.Logger
}

// Serve is GET /chat/ws. It refuses an invalid handshake before the upgrade.
func (s *Sockets) Serve(w http.ResponseWriter, r *http.Request, tenant string) error {
	if err := socket.Check(w, r, "POST /chat gives the same as server-sent events"); err != nil {
		return err
	}
	major, err := chat.MajorOf(r)
	if err != nil {
		return err
	}
	if major == uistream.UnknownMajor {
		major = uistream.DefaultMajor // older ones do not have this transport
	}
	ctx, release, err := s.Streams.Open(r.Context(), httpapi.ProtocolChatWebSocket)
	if err != nil {
		return err
	}
	defer release()
	conn, err := socket.Accept(w, r, s.MaxBytes, s.Timeout)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	talk := &connection{Sockets: s, ctx: ctx, end: end, conn: conn, tenant: tenant, major: major, requests: map[string]*request{}}
	if err := talk.serve(); !errors.Is(err, socket.ErrDisconnected) { //nolint:contextcheck // see socket.Conn.Read
		s.Log.DebugContext(ctx, "chat socket cut", "error", err)
	}
	return nil
}
