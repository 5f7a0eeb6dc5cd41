// Package socket has the common parts of the gateway's WebSockets: handshake, messages, pings and
// close.
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
	// protocol is the subprotocol of all sockets. A browser with a key as one subprotocol must
	// offer another one for the server to accept.
	protocol = "holdfast.v2"
	// unauthorized is the registered close code of a socket without a valid credential.
	unauthorized websocket.StatusCode = 3000
	// version is the protocol version of RFC 6455.
	version = "13"
	// closeTimeout bounds the closing handshake.
	closeTimeout = 2 * time.Second
	// refuseTimeout bounds that of a refused client.
	refuseTimeout = time.Second
)

// ErrDisconnected says that the client has closed the socket or disconnected.
var ErrDisconnected = errors.New("the client has disconnected")

// Check refuses a request without a valid handshake (RFC 6455, 4.2.1): Invalid (UPGRADE_REQUIRED).
// advice names an alternative.
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

// Conn is an open WebSocket. Its methods may be called concurrently, except for Read.
type Conn struct {
	conn    *websocket.Conn
	under   *pingWatch // the connection below
	timeout time.Duration
	pinging atomic.Bool
	pings   sync.WaitGroup

	mu     sync.Mutex
	closed bool // no ping may start
}

// Accept answers a handshake after Check. Origins are checked before (auth.Origins). A larger
// message than maxMessage bytes closes the socket with 1009. The timeout bounds one write, and the
// answer to a ping. The error is httpapi.ErrCut: the request is answered.
func Accept(w http.ResponseWriter, r *http.Request, maxMessage int64, timeout time.Duration) (*Conn, error) {
	taken := &hijackRecorder{ResponseWriter: w, conn: &pingWatch{}}
	conn, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true,
		OnPongReceived: func(_ context.Context, payload []byte) { taken.conn.pong(payload) },
	})
	if err != nil {
		return nil, httpapi.ErrCut
	}
	conn.SetReadLimit(maxMessage)
	return &Conn{conn: conn, under: taken.conn, timeout: timeout}, nil
}

// hijackRecorder keeps the hijacked connection.
type hijackRecorder struct {
	http.ResponseWriter
	conn *pingWatch
}

// Hijack implements http.Hijacker.
func (t *hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t.conn.Conn = conn
	buffers.Writer.Reset(t.conn)
	return t.conn, buffers, nil
}

// EndAfter ends the socket soon after the end of ctx, whatever the client does.
func (c *Conn) EndAfter(ctx context.Context) {
	// A closed connection may return an error.
	context.AfterFunc(ctx, func() { _ = c.under.SetDeadline(time.Now().Add(closeTimeout)) })
}

// Read waits for the next message. Once begun, it must arrive within the patience. A goroutine must
// read all the time, since only a read handles pongs, pings and closes. Every error is ErrDisconnected.
func (c *Conn) Read(patience time.Duration) (text []byte, isText bool, err error) {
	// A context of its own: its end would cut the socket without a close.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kind, message, err := c.conn.Reader(ctx)
	if err != nil {
		return nil, false, ErrDisconnected
	}
	defer time.AfterFunc(patience, cancel).Stop()
	if text, err = io.ReadAll(message); err != nil {
		return nil, false, ErrDisconnected
	}
	return text, kind == websocket.MessageText, nil
}

// Receive is Read for a large message. read reads its text, and calls progress to begin the patience again. If read returns a
// fault of kind TooLarge and no text, the socket is closed with 1009. Other faults of read are returned with its text.
func (c *Conn) Receive(
	patience time.Duration,
	read func(message io.Reader, progress func() error) ([]byte, error),
) (text []byte, isText bool, err error) {
	// A context of its own, as in Read.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kind, message, err := c.conn.Reader(ctx)
	if err != nil {
		return nil, false, ErrDisconnected
	}
	timer := time.AfterFunc(patience, cancel)
	defer timer.Stop()
	text, err = read(message, func() error {
		timer.Reset(patience)
		return nil
	})
	f, isFault := fault.From(err)
	switch {
	case isFault && f.Kind == fault.TooLarge && text == nil:
		_ = c.conn.Close(websocket.StatusMessageTooBig, f.Reason) // the client may have closed the connection
		return nil, false, ErrDisconnected
	case err != nil && text == nil:
		return nil, false, ErrDisconnected
	default:
		return text, kind == websocket.MessageText, err
	}
}

// Write sends a text message. Every error is ErrDisconnected.
func (c *Conn) Write(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return ErrDisconnected
	}
	return nil
}

// Ping pings the client, which also keeps proxies from closing a quiet socket. It calls lost if no
// pong comes, and does not wait for it.
func (c *Conn) Ping(lost func()) {
	if !c.pinging.CompareAndSwap(false, true) {
		return
	}
	c.goPing(func() {
		defer c.pinging.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		if err := c.conn.Ping(ctx); err != nil {
			lost()
		}
	})
}

// Refuse closes a socket right after Accept, with a code and a reason of the protocol above. It waits for
// the client's close for a moment.
func (c *Conn) Refuse(code int, reason string) {
	_ = c.under.SetDeadline(time.Now().Add(refuseTimeout)) // a closed connection may return an error
	_ = c.conn.Close(websocket.StatusCode(code), reason)   // the client may have closed the connection
}

// Close closes the socket: cleanly for nil, with a policy violation for a fault of kind Invalid,
// and otherwise as a drop, with the advice to the client in its reason. It waits for the pings.
func (c *Conn) Close(err error, advice string) {
	code, reason := closing(err)
	if code != websocket.StatusNormalClosure && code != websocket.StatusPolicyViolation {
		reason += ": " + advice
	}
	_ = c.conn.Close(code, reason) // the client may have closed the connection
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.pings.Wait()
}

// goPing starts a ping, unless the socket is closed.
func (c *Conn) goPing(ping func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.pings.Go(ping)
	}
	return !c.closed
}

func closing(err error) (websocket.StatusCode, string) {
	f, isFault := fault.From(err)
	switch {
	case err == nil:
		return websocket.StatusNormalClosure, ""
	case isFault && f.Reason == stopping:
		return websocket.StatusServiceRestart, f.Reason
	case isFault && (f.Kind == fault.Unavailable || f.Kind == fault.Exhausted):
		return websocket.StatusTryAgainLater, f.Reason
	case isFault && f.Kind == fault.Unauthenticated:
		return unauthorized, f.Reason
	case isFault && f.Kind == fault.Invalid:
		return websocket.StatusPolicyViolation, f.Reason
	case errors.Is(err, ErrDisconnected):
		return websocket.StatusGoingAway, "LEFT"
	default:
		return websocket.StatusInternalError, "INTERNAL"
	}
}

var stopping = fault.ReasonOf(httpapi.Stopping())
