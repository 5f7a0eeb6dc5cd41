// Package sse writes server-sent events, and the native stream of a session as
// such (Native).
package sse

import (
	"net/http"
	"strconv"
	"strings"
)

// heartbeat is a comment: clients read over it, proxies see traffic.
const heartbeat = ": keep-alive\n\n"

// Writer writes events to one client. Events wait in it until Flush. How long the
// client may take is for the response writer to say (httpapi.TimeWrites). It is
// not safe for concurrent use.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  []byte
}

// NewWriter returns a writer to the client.
func NewWriter(w http.ResponseWriter) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w)}
}

// Begin sends the headers of an event stream that no proxy holds back.
func (s *Writer) Begin() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Connection", "keep-alive")
	s.w.WriteHeader(http.StatusOK)
	return s.control.Flush()
}

// Event adds an event. An id of 0 and an empty name leave their lines out; data
// is one line.
func (s *Writer) Event(id int64, name string, data []byte) {
	if id > 0 {
		s.buffer = append(s.buffer, "id: "...)
		s.buffer = strconv.AppendInt(s.buffer, id, 10)
		s.buffer = append(s.buffer, '\n')
	}
	if name != "" {
		s.buffer = append(s.buffer, "event: "...)
		s.buffer = append(s.buffer, name...)
		s.buffer = append(s.buffer, '\n')
	}
	s.buffer = append(s.buffer, "data: "...)
	s.buffer = append(s.buffer, data...)
	s.buffer = append(s.buffer, "\n\n"...)
}

// Beat sends a heartbeat.
func (s *Writer) Beat() error {
	s.buffer = append(s.buffer, heartbeat...)
	return s.Flush()
}

// Flush sends what waits. An error means that the client is gone or too slow.
func (s *Writer) Flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	_, err := s.w.Write(s.buffer)
	if err == nil {
		err = s.control.Flush()
	}
	s.buffer = s.buffer[:0]
	if cap(s.buffer) > keptBuffer {
		s.buffer = nil
	}
	return err
}

// keptBuffer bounds what an open stream that is quiet keeps in memory.
const keptBuffer = 16 << 10

// Cursor reads the cursor of a request: the header Last-Event-ID, which a client
// that reconnects sends by itself, or else the parameter fromSequence. given is
// false when there is neither; ok is false when it is no sequence.
func Cursor(r *http.Request) (cursor int64, given, ok bool) {
	text := strings.TrimSpace(r.Header.Get("Last-Event-ID"))
	if text == "" {
		text = r.URL.Query().Get("fromSequence")
	}
	if text == "" {
		return 0, false, true
	}
	cursor, err := strconv.ParseInt(text, 10, 64)
	return cursor, true, err == nil && cursor >= 0
}
