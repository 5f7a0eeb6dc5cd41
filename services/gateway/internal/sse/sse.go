// Package sse writes server-sent events.
package sse

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/position"
)

// Comments: clients read over them, proxies see traffic.
const (
	opening   = ": open\n\n"
	heartbeat = ": keep-alive\n\n"
)

// Writer writes events to one client. Events wait in it until Flush. How long the
// client may take is for the response writer to say (httpapi.TimeWrites), or for the
// connection where that was taken (Take). It is not safe for concurrent use.
type Writer struct {
	answer  answer
	padding int           // bytes of a comment behind each comment
	buffer  *bytes.Buffer // nil while nothing waits
}

// answer is the way to the client: that of the server, or the bare connection.
type answer interface {
	begin()
	// send sends what is in the buffer, which begins with prefixBytes bytes that are
	// the answer's own.
	send(b []byte) error
}

// prefixBytes is how much room an answer has before what it sends.
const prefixBytes = len("00000000\r\n")

// buffers are those of all writers: a quiet stream has none.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keptBuffer is how large a buffer may be that is used again.
const keptBuffer = 64 << 10

// NewWriter returns a writer of the answer to r. Where the request came through a proxy,
// each comment has as many bytes more as padding says: a proxy that fills a buffer
// before it passes anything on then lets go of it.
func NewWriter(w http.ResponseWriter, r *http.Request, padding int) *Writer {
	return newWriter(&served{w, http.NewResponseController(w), closing(r)}, r, padding)
}

func newWriter(a answer, r *http.Request, padding int) *Writer {
	if !proxied(r) {
		padding = 0
	}
	return &Writer{answer: a, padding: padding}
}

// closing reports whether the connection ends with the answer to r.
func closing(r *http.Request) bool { return r.Close || !r.ProtoAtLeast(1, 1) }

// header sets the headers of an event stream that no proxy holds back.
func header(h http.Header, closing bool) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	if closing {
		h.Set("Connection", "close")
	} else {
		h.Set("Connection", "keep-alive")
	}
}

// served is an answer of the server.
type served struct {
	w       http.ResponseWriter
	control *http.ResponseController
	closing bool
}

func (s *served) begin() {
	header(s.w.Header(), s.closing)
	s.w.WriteHeader(http.StatusOK)
}

func (s *served) send(b []byte) error {
	if _, err := s.w.Write(b[prefixBytes:]); err != nil {
		return err
	}
	return s.control.Flush()
}

// proxied reports whether the request has come through a proxy, as far as that can be
// seen. Whoever speaks HTTP/1.0 today is one: nginx does unless it is told otherwise.
func proxied(r *http.Request) bool {
	for _, name := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

// Begin begins the answer.
func (s *Writer) Begin() {
	s.answer.begin()
	s.comment(opening)
}

// Event adds an event without a name. An id of 0 leaves its line out. data is one line.
func (s *Writer) Event(id int64, data []byte) {
	b := s.waiting()
	if id > 0 {
		fmt.Fprintf(b, "id: %d\n", id)
	}
	b.WriteString("data: ")
	b.Write(data)
	b.WriteString("\n\n")
}

// Add adds encoded events.
func (s *Writer) Add(event []byte) {
	if len(event) > 0 {
		s.waiting().Write(event)
	}
}

func (s *Writer) waiting() *bytes.Buffer {
	if s.buffer == nil {
		s.buffer = buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool makes nothing else
		s.buffer.Write(make([]byte, prefixBytes))
	}
	return s.buffer
}

// Beat sends a heartbeat.
func (s *Writer) Beat() error {
	s.comment(heartbeat)
	return s.Flush()
}

func (s *Writer) comment(text string) {
	b := s.waiting()
	b.WriteString(text)
	if s.padding > 0 {
		b.WriteByte(':')
		b.WriteString(strings.Repeat(" ", max(0, s.padding-len(":\n\n"))))
		b.WriteString("\n\n")
	}
}

// Flush sends what waits. An error means that the client is gone or too slow.
func (s *Writer) Flush() error {
	if s.buffer == nil {
		return nil
	}
	err := s.answer.send(s.buffer.Bytes())
	if s.buffer.Cap() <= keptBuffer {
		s.buffer.Reset()
		buffers.Put(s.buffer)
	}
	s.buffer = nil
	return err
}

// Cursor reads the cursor of a request: the header Last-Event-ID, which a client
// that reconnects sends by itself, or else the parameter fromSequence. given is
// false when there is neither; ok is false when it is no position.
func Cursor(r *http.Request) (cursor int64, given, ok bool) {
	text := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if text == "" {
		text = r.URL.Query().Get("fromSequence")
	}
	if text == "" {
		return 0, false, true
	}
	cursor, err := strconv.ParseInt(text, 10, 64)
	return cursor, true, err == nil && position.Valid(cursor)
}

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
