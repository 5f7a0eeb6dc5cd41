package sse

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Taken is a connection that was taken from the server for one answer. The server
// keeps buffers, the request and a deep stack for an answer as long as it is open,
// several times what a quiet reader needs.
type Taken struct {
	*Writer
	conn    net.Conn
	chunked bool
	timeout time.Duration
	head    []byte // of the answer, until it was sent
}

// lingerTime is how long a client may take to see the end of an answer before its
// connection is closed.
const lingerTime = 500 * time.Millisecond

// Takeable reports whether the request's connection carries nothing else.
func Takeable(r *http.Request) bool { return r.ProtoMajor == 1 }

// Take takes the connection of the answer to r, which has to be Takeable. The answer has
// the headers that w has so far; each write may take the timeout. The caller has to
// call Close, and may return from the handler before.
func Take(w http.ResponseWriter, r *http.Request, padding int, timeout time.Duration) (*Taken, error) {
	h := w.Header().Clone()
	header(h, true)
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	t := &Taken{chunked: r.ProtoAtLeast(1, 1), timeout: timeout}
	if t.chunked {
		h.Set("Transfer-Encoding", "chunked")
	}
	head := bytes.NewBufferString(r.Proto + " 200 OK\r\n")
	_ = h.Write(head) // a buffer takes everything
	head.WriteString("\r\n")
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	t.conn, t.head = conn, head.Bytes()
	t.Writer = newWriter(t, r, padding)
	return t, nil
}

func (t *Taken) begin() {}

// send sends the buffer as one chunk (RFC 9112, 7.1).
func (t *Taken) send(b []byte) error {
	if t.chunked {
		copy(b, fmt.Appendf(nil, "%08x\r\n", len(b)-prefixBytes))
		b = append(b, "\r\n"...)
	} else {
		b = b[prefixBytes:]
	}
	if t.head != nil {
		b = append(t.head, b...)
		t.head = nil
	}
	return t.write(b)
}

func (t *Taken) write(b []byte) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(t.timeout)); err != nil {
		return err
	}
	_, err := t.conn.Write(b)
	return err
}

// Watch waits for the client to leave, or for the end of the connection.
func (t *Taken) Watch() {
	var b [64]byte
	for {
		if _, err := t.conn.Read(b[:]); err != nil { // what it says means nothing
			return
		}
	}
}

// End ends the answer well. The client may take lingerTime to notice; ctx ends that.
func (t *Taken) End(ctx context.Context) {
	if t.chunked && t.write([]byte("0\r\n\r\n")) != nil {
		return
	}
	// Closed under what the client may have sent, the connection would be reset, and
	// the end of the answer lost.
	if half, ok := t.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = t.conn.SetReadDeadline(time.Now().Add(lingerTime)) // ends Watch
		<-ctx.Done()
	}
}

// Close closes the connection. Without End before, that is a drop for the client. It may
// be called more than once, and by another goroutine.
func (t *Taken) Close() { _ = t.conn.Close() } // who is gone needs no close
