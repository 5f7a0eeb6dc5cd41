package providerhttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

const (
	// maxEvent limits one event, in bytes. Providers stay far below it; base64 images come closest.
	maxEvent = 16 << 20
	// maxUnparsed limits the stored text outside of events, in bytes.
	maxUnparsed = 64 << 10
)

// eventReader reads the events of a stream (WHATWG HTML, 9.2).
type eventReader struct {
	in       *bufio.Reader
	begun    bool
	skipLF   bool // the last line ended with CR, so an LF belongs to it
	name     string
	data     []byte // of the current event; valid until the next
	line     []byte
	size     int    // of the current event
	unparsed []byte // lines without the name of a field
	err      error  // nil for a regular end
}

// next reads the next event with data.
func (e *eventReader) next() bool {
	e.name = ""
	e.data = e.data[:0]
	e.size = 0
	hasData := false
	for {
		ended, ok := e.readLine()
		if !ok {
			// Some servers close the stream without the empty line behind the last event.
			return e.err == nil && hasData && isComplete(e.data)
		}
		if len(e.line) == 0 && ended {
			if hasData {
				return true
			}
			e.name = ""
			e.size = 0
			continue
		}
		field, value, _ := bytes.Cut(e.line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
			hasData = true
		default:
			// A line that is neither a comment nor a field of another kind looks like JSON or a page.
			if !isFieldName(field) && len(e.unparsed)+len(e.line) <= maxUnparsed {
				e.unparsed = append(append(e.unparsed, e.line...), '\n')
			}
		}
		if !ended {
			return e.err == nil && hasData && isComplete(e.data)
		}
	}
}

// isComplete reports whether an event at the end of a stream is complete.
func isComplete(data []byte) bool {
	return json.Valid(data) || bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]"))
}

// isFieldName reports whether a line with this beginning may be a field or a comment.
func isFieldName(field []byte) bool {
	for _, c := range field {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// readLine reads a line without its end. ended is false for a last line without an end. ok is false if there is none.
func (e *eventReader) readLine() (ended, ok bool) {
	e.line = e.line[:0]
	for {
		// The complete buffer is searched: lines are long.
		chunk, err := e.peek()
		if len(chunk) == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				e.err = err
			}
			return false, len(e.line) > 0
		}
		if e.skipLF {
			e.skipLF = false
			if chunk[0] == '\n' {
				e.discard(1)
				continue
			}
		}
		at := bytes.IndexAny(chunk, "\r\n")
		if at < 0 {
			at = len(chunk)
		} else {
			ended = true
			e.skipLF = chunk[at] == '\r'
		}
		e.line = append(e.line, chunk[:at]...)
		if e.size += at + 1; e.size > maxEvent {
			e.err = model.InvalidResponse("a stream event exceeds %d bytes", maxEvent)
			return false, false
		}
		e.discard(min(at+1, len(chunk)))
		if ended {
			return true, true
		}
	}
}

// peek returns what is buffered, and reads once if nothing is. It skips a byte order mark at the beginning.
func (e *eventReader) peek() ([]byte, error) {
	if !e.begun {
		e.begun = true
		if mark, _ := e.in.Peek(3); string(mark) == "\uFEFF" {
			e.discard(3)
		}
	}
	if e.in.Buffered() == 0 {
		if _, err := e.in.Peek(1); err != nil {
			return nil, err
		}
	}
	chunk, _ := e.in.Peek(e.in.Buffered())
	return chunk, nil
}

func (e *eventReader) discard(n int) { _, _ = e.in.Discard(n) }
