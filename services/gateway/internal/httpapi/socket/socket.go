// Package socket is what the gateway's WebSockets have in common: how one begins, how
// messages go over it, how a client shows that it is still there, and how it ends.
package socket

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

const (
	// protocol is the subprotocol of all sockets. A browser that offers a key as one has
	// to offer another one too, which can be sent back.
	protocol = "holdfast.v2"
	// version is that of RFC 6455.
	version = "13"
	// closeTimeout bounds the parting from a client.
	closeTimeout = 2 * time.Second
)

// ErrLeft says that the client has closed the socket, or is gone.
var ErrLeft = errors.New("the client has left")

// Check refuses what cannot begin a WebSocket as RFC 6455, 4.2.1, says: Invalid
// (UPGRADE_REQUIRED). advice says what else there is.
func Check(w http.ResponseWriter, r *http.Request, advice string) error {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	if auth.Upgrade(r) && r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && err == nil && len(key) == 16 &&
		len(r.Header.Values("Sec-WebSocket-Key")) == 1 && r.Header.Get("Sec-WebSocket-Version") == version {
		return nil
	}
	h := w.Header()
	h.Set("Upgrade", "websocket")
	h.Set("Connection", "Upgrade")
	h.Set("Sec-WebSocket-Version", version)
	return fault.New(fault.Invalid, httpapi.UpgradeRequired, "open a WebSocket (RFC 6455, version %s) here; %s", version, advice)
}

// Conn is an open WebSocket. Its methods may be called at once, but for Read.
type Conn struct {
	conn    *websocket.Conn
	under   net.Conn // what it stands on
	timeout time.Duration
	pinging atomic.Bool
	pings   sync.WaitGroup
}

// Accept answers a request that Check has let pass. Who may connect was decided before
// (auth.Origins). A message of the client may have maxMessage bytes; more closes with
// 1009. The timeout is for one message to be written, and for a ping to be answered. An
// error is httpapi.ErrCut: the request is answered.
func Accept(w http.ResponseWriter, r *http.Request, maxMessage int64, timeout time.Duration) (*Conn, error) {
	taken := &taker{ResponseWriter: w}
	conn, err := websocket.Accept(taken, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}, InsecureSkipVerify: true})
	if err != nil {
		return nil, httpapi.ErrCut
	}
	conn.SetReadLimit(maxMessage)
	return &Conn{conn: conn, under: taken.conn, timeout: timeout}, nil
}

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

// EndWith lets everything on the socket fail a little after the end of ctx, whatever the
// client does.
func (c *Conn) EndWith(ctx context.Context) {
	// The error of a connection that is closed already does not matter.
	context.AfterFunc(ctx, func() { _ = c.under.SetDeadline(time.Now().Add(closeTimeout)) })
}

// Read waits for the next message, which has to arrive within the patience once it has
// begun. Somebody has to read all the time: only a reader sees pongs, pings and closes.
// Every error is ErrLeft.
func (c *Conn) Read(patience time.Duration) (text []byte, isText bool, err error) {
	// Of its own: a context that ends cuts the socket without a close.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kind, message, err := c.conn.Reader(ctx)
	if err != nil {
		return nil, false, ErrLeft
	}
	defer time.AfterFunc(patience, cancel).Stop()
	if text, err = io.ReadAll(message); err != nil {
		return nil, false, ErrLeft
	}
	return text, kind == websocket.MessageText, nil
}

// Write sends a text message. Every error is ErrLeft.
func (c *Conn) Write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return ErrLeft
	}
	return nil
}

// Beat asks the client for a sign of life, which also keeps proxies from closing a quiet
// socket, and calls left when there is none. It does not wait for the answer.
func (c *Conn) Beat(left func()) {
	if !c.pinging.CompareAndSwap(false, true) {
		return
	}
	c.pings.Go(func() {
		defer c.pinging.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		if err := c.conn.Ping(ctx); err != nil {
			left()
		}
	})
}

// Close closes the socket for the reason that err is: nil is a good end, a fault of the
// kind Invalid is the client's, and everything else a drop, after which the client is
// advised to do as again says. It waits for the pings.
func (c *Conn) Close(err error, again string) {
	code, reason := closing(err)
	if code != websocket.StatusNormalClosure && code != websocket.StatusPolicyViolation {
		reason += ": " + again
	}
	_ = c.conn.Close(code, reason) // a client that is gone needs no answer
	c.pings.Wait()
}

func closing(err error) (websocket.StatusCode, string) {
	f, told := fault.From(err)
	switch {
	case err == nil:
		return websocket.StatusNormalClosure, ""
	case told && f.Reason == stopping:
		return websocket.StatusServiceRestart, f.Reason
	case told && (f.Kind == fault.Unavailable || f.Kind == fault.Exhausted):
		return websocket.StatusTryAgainLater, f.Reason
	case told && f.Kind == fault.Invalid:
		return websocket.StatusPolicyViolation, f.Reason
	case errors.Is(err, ErrLeft):
		return websocket.StatusGoingAway, "LEFT"
	default:
		return websocket.StatusInternalError, "INTERNAL"
	}
}

var stopping = fault.ReasonOf(httpapi.Stopping())
