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

// Comments. Clients ignore them, and proxies see traffic.
const (
	opening   = ": open\n\n"
	heartbeat = ": keep-alive\n\n"
)

// Writer writes events to one client. It buffers events until Flush. Write timeouts are those of
// the response writer (httpapi.TimeWrites), or of the hijacked connection (Take). It is not safe
// for concurrent use.
type Writer struct {
	answer  answer
	padding int           // bytes of a comment after each comment
	buffer  *bytes.Buffer // nil while empty
}

// answer writes to the client: through the server, or on the bare connection.
type answer interface {
	begin()
	// send sends the buffer. Its first prefixBytes bytes are for the answer's use.
	send(b []byte) error
}

// prefixBytes is the space before the data, for the header of a chunk.
const prefixBytes = len("00000000\r\n")

// buffers are shared by all writers, so that a quiet stream has none.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooledBuffer is the size of the largest pooled buffer.
const maxPooledBuffer = 64 << 10

// NewWriter returns a writer of the answer to r. If the request came through a proxy, each comment
// is followed by padding bytes, because some proxies pass data on only when a buffer is full.
func NewWriter(w http.ResponseWriter, r *http.Request, padding int) *Writer {
	return newWriter(&served{w, http.NewResponseController(w), closing(r)}, r, padding)
}

// NewCompleteWriter is NewWriter for an answer whose end is near: the server may keep the last bytes until the handler
// returns.
func NewCompleteWriter(w http.ResponseWriter, r *http.Request, padding int) *Writer {
	return newWriter(&served{w, nil, closing(r)}, r, padding)
}

func newWriter(a answer, r *http.Request, padding int) *Writer {
	if !proxied(r) {
		padding = 0
	}
	return &Writer{answer: a, padding: padding}
}

// closing reports whether the connection ends with the answer to r.
func closing(r *http.Request) bool { return r.Close || !r.ProtoAtLeast(1, 1) }

// header sets the headers of an event stream, including those against buffering by proxies.
func header(h http.Header, closing bool) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform") // middleware that compresses would hold the events back
	h.Set("X-Accel-Buffering", "no")
	if closing {
		h.Set("Connection", "close")
	} else {
		h.Set("Connection", "keep-alive")
	}
}

// served is an answer through the server.
type served struct {
	w       http.ResponseWriter
	control *http.ResponseController // nil to leave flushes to the server
	closing bool
}

func (s *served) begin() {
	header(s.w.Header(), s.closing)
	s.w.WriteHeader(http.StatusOK)
}

func (s *served) send(b []byte) error {
	if _, err := s.w.Write(b[prefixBytes:]); err != nil || s.control == nil {
		return err
	}
	return s.control.Flush()
}

// proxied reports whether the request seems to have come through a proxy. HTTP/1.0 is one: nginx
// uses it by default.
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

// Event adds an event without a name. The id and the data are one line each.
func (s *Writer) Event(id string, data []byte) {
	b := s.waiting()
	b.WriteString("id: ")
	b.WriteString(id)
	b.WriteString("\ndata: ")
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
		s.buffer = buffers.Get().(*bytes.Buffer) //nolint:forcetypeassert // the pool holds only buffers
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

// Flush sends the buffered events. An error means that the client has disconnected or is too slow.
func (s *Writer) Flush() error {
	if s.buffer == nil {
		return nil
	}
	err := s.answer.send(s.buffer.Bytes())
	if s.buffer.Cap() <= maxPooledBuffer {
		s.buffer.Reset()
		buffers.Put(s.buffer)
	}
	s.buffer = nil
	return err
}

// Cursor returns the cursor of a request: the header Last-Event-ID, which a reconnecting client
// sends, or else the parameter fromSequence. given is false without either; ok is false for an
// invalid one.
func Cursor(r *http.Request) (cursor int64, given, ok bool) { return ParseCursor(CursorText(r)) }

// CursorText returns the text of the cursor of a request; "" without one.
func CursorText(r *http.Request) string {
	text := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if text == "" {
		text = r.URL.Query().Get("fromSequence")
	}
	return text
}

// ParseCursor parses the text of a cursor. Its results are those of Cursor.
func ParseCursor(text string) (cursor int64, given, ok bool) {
	if text == "" {
		return 0, false, true
	}
	cursor, err := strconv.ParseInt(text, 10, 64)
	return cursor, true, err == nil && position.Valid(cursor)
}

// Hijacked is a connection hijacked from the server for one answer. As long as an answer is open, the
// server keeps buffers, the request and a deep stack, which take three times the memory of a quiet
// reader.
type Hijacked struct {
	*Writer
	conn    net.Conn
	chunked bool
	timeout time.Duration
	head    []byte // of the answer, until it is sent
}

// lingerTime is how long a client may take to read the end of an answer before its connection is
// closed.
const lingerTime = 500 * time.Millisecond

// CanHijack reports whether the request's connection carries nothing else.
func CanHijack(r *http.Request) bool { return r.ProtoMajor == 1 }

// Hijack hijacks the connection of the answer to r, which must be Takeable. The answer has the
// headers of w; timeout bounds each write. The caller must call Close, and may return from the
// handler before.
func Hijack(w http.ResponseWriter, r *http.Request, padding int, timeout time.Duration) (*Hijacked, error) {
	h := w.Header().Clone()
	header(h, true)
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	t := &Hijacked{chunked: r.ProtoAtLeast(1, 1), timeout: timeout}
	if t.chunked {
		h.Set("Transfer-Encoding", "chunked")
	}
	head := bytes.NewBufferString(r.Proto + " 200 OK\r\n")
	_ = h.Write(head) // a buffer never fails
	head.WriteString("\r\n")
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	t.conn, t.head = conn, head.Bytes()
	t.Writer = newWriter(t, r, padding)
	return t, nil
}

func (t *Hijacked) begin() {}

// send sends the buffer as one chunk (RFC 9112, 7.1).
func (t *Hijacked) send(b []byte) error {
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

func (t *Hijacked) write(b []byte) error {
	if err := t.conn.SetWriteDeadline(time.Now().Add(t.timeout)); err != nil {
		return err
	}
	_, err := t.conn.Write(b)
	return err
}

// Watch waits until the client disconnects or the connection ends.
func (t *Hijacked) Watch() {
	var b [64]byte
	for {
		if _, err := t.conn.Read(b[:]); err != nil { // the data is ignored
			return
		}
	}
}

// End ends the answer cleanly. It waits until the client closes, at most lingerTime or until the
// end of ctx.
func (t *Hijacked) End(ctx context.Context) {
	if t.chunked && t.write([]byte("0\r\n\r\n")) != nil {
		return
	}
	// A close with unread data from the client resets the connection, and the end of the answer
	// would be lost.
	if half, ok := t.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = t.conn.SetReadDeadline(time.Now().Add(lingerTime)) // ends Watch
		<-ctx.Done()
	}
}

// Close closes the connection. Without End before it, the client sees a drop. It may be called more
// than once, and concurrently.
func (t *Hijacked) Close() { _ = t.conn.Close() } // the client may have closed it
