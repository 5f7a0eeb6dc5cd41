package gemini

import (
	"bufio"
	"bytes"
	"io"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxLine is more than any line that model.Bounded lets through.
const maxLine = 32 << 20

// events reads an event stream (WHATWG HTML, 9.2), of which only data matters. An
// event that is not followed by an empty line is none.
type events struct {
	lines *bufio.Scanner
	data  []byte // of the event; valid until the next
	stray []byte // what stood outside of every field
}

// maxStray is how much is kept of a text that is no event: an error, perhaps.
const maxStray = 64 << 10

func newEvents(stream io.Reader) *events {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	return &events{lines: lines}
}

// next reads an event that has data.
func (e *events) next() bool {
	e.data = e.data[:0]
	for e.lines.Scan() {
		text := e.lines.Bytes() // without its line's end, CR LF or LF
		if len(text) == 0 {
			if len(e.data) > 0 {
				return true
			}
			continue
		}
		field, value, _ := bytes.Cut(text, []byte(":"))
		switch string(field) {
		case "data":
			if len(e.data) > 0 {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, bytes.TrimPrefix(value, []byte(" "))...)
		case "", "event", "id", "retry":
			// A comment, or of no interest.
		default:
			if len(e.stray)+len(text) <= maxStray {
				e.stray = append(append(e.stray, text...), '\n')
			}
		}
	}
	return false
}

// err says why the stream ended: nil where it did as streams do. An error that the
// API says without the form of an event is one, too.
func (e *events) err() error {
	if err := e.lines.Err(); err != nil {
		return err
	}
	if said := readComplaint(e.stray); said.there {
		return interruption(said)
	}
	if len(e.stray) > 0 {
		return model.Unreadable("what came is not an event stream: %.200s", e.stray)
	}
	return nil
}
