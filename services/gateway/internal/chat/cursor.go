package chat

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
)

// Cursor is a position in the stream of a message, and the id of the event before it: the client
// has everything up to the sequence of a chunk, or only the first parts of that chunk.
type Cursor struct {
	Sequence int64
	Parts    int // 0 for all of them
	// Start: the client has the start part of the message that begins behind the sequence, and nothing else of it.
	Start bool
}

// startSuffix ends the text of a cursor with Cursor.Start.
const startSuffix = "start"

// String returns the sequence, SEQUENCE.PARTS or SEQUENCE.start.
func (c Cursor) String() string {
	id := strconv.FormatInt(c.Sequence, 10)
	switch {
	case c.Start:
		id += "." + startSuffix
	case c.Parts > 0:
		id += "." + strconv.Itoa(c.Parts)
	}
	return id
}

// maxCursorParts bounds the parts of a cursor. A chunk has a handful.
const maxCursorParts = 1000

// cursorOf returns the cursor of the request, like sse.Cursor.
func cursorOf(r *http.Request) (c Cursor, given, ok bool) {
	sequence, parts, within := strings.Cut(sse.CursorText(r), ".")
	c.Sequence, given, ok = sse.ParseCursor(sequence)
	switch {
	case !within || !ok:
	case parts == startSuffix:
		c.Start = true
	default:
		var err error
		c.Parts, err = strconv.Atoi(parts)
		ok = err == nil && c.Sequence > 0 && c.Parts > 0 && c.Parts <= maxCursorParts
	}
	return c, given, ok
}
