package gemini

import (
	"bufio"
	"bytes"
	"io"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxLine exceeds every line that model.LimitEvents passes.
const maxLine = 32 << 20

// eventReader reads the data of an event stream (WHATWG HTML, 9.2). An event without a final empty line is
// ignored.
type eventReader struct {
	scanner  *bufio.Scanner
	data     []byte // of the current event; valid until the next
	unparsed []byte // lines that belong to no field
}

// maxUnparsed limits the stored unparsed text, in bytes. It may be an error.
const maxUnparsed = 64 << 10

func newEventReader(stream io.Reader) *eventReader {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxLine)
	return &eventReader{scanner: lines}
}

// next reads the next event with data.
func (e *eventReader) next() bool {
	e.data = e.data[:0]
	for e.scanner.Scan() {
		text := e.scanner.Bytes() // without CR LF or LF
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
			// Comments and unused fields.
		default:
			if len(e.unparsed)+len(text) <= maxUnparsed {
				e.unparsed = append(append(e.unparsed, text...), '\n')
			}
		}
	}
	return false
}

// err returns why the stream ended, nil for a regular end. It also recognizes an API error sent outside an
// event.
func (e *eventReader) err() error {
	if err := e.scanner.Err(); err != nil {
		return err
	}
	if apiErr := parseAPIError(e.unparsed); apiErr.found {
		return streamError(apiErr)
	}
	if len(e.unparsed) > 0 {
		return model.InvalidResponse("the response is not an event stream: %.200s", e.unparsed)
	}
	return nil
}
