package gemini

import (
	"bufio"
	"bytes"
	"io"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxLine is more than any line that model.Bounded lets through.
const maxLine = 32 << 20

// eventReader reads an event stream (WHATWG HTML, 9.2), of which only data matters. An
// event that is not followed by an empty line is none.
type eventReader struct {
	scanner  *bufio.Scanner
	data     []byte // of the event; valid until the next
	unparsed []byte // what stood outside of every field
}

// maxUnparsed is how much is kept of a text that is no event: an error, perhaps.
const maxUnparsed = 64 << 10

func newEventReader(stream io.Reader) *eventReader {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	return &eventReader{scanner: lines}
}

// next reads an event that has data.
func (e *eventReader) next() bool {
	e.data = e.data[:0]
	for e.scanner.Scan() {
		text := e.scanner.Bytes() // without its line's end, CR LF or LF
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
			if len(e.unparsed)+len(text) <= maxUnparsed {
				e.unparsed = append(append(e.unparsed, text...), '\n')
			}
		}
	}
	return false
}

// err says why the stream ended: nil where it did as streams do. An error that the
// API says without the form of an event is one, too.
func (e *eventReader) err() error {
	if err := e.scanner.Err(); err != nil {
		return err
	}
	if apiErr := parseAPIError(e.unparsed); apiErr.found {
		return streamError(apiErr)
	}
	if len(e.unparsed) > 0 {
		return model.InvalidResponse("what came is not an event stream: %.200s", e.unparsed)
	}
	return nil
}
