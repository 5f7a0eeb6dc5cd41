package chat

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/sse"
)

// Place is a place in the stream of a message, and the id of the event before it: a client at the
// place has everything up to the sequence of a chunk, or only the first parts of that chunk.
type Place struct {
	Sequence int64
	Parts    int // 0 for all of them
}

// String returns the sequence, or SEQUENCE.PARTS.
func (p Place) String() string {
	id := strconv.FormatInt(p.Sequence, 10)
	if p.Parts > 0 {
		id += "." + strconv.Itoa(p.Parts)
	}
	return id
}

// maxPlaceParts bounds the parts of a place. A chunk has a handful.
const maxPlaceParts = 1000

// placeOf returns the place that the request names, like sse.Cursor.
func placeOf(r *http.Request) (p Place, given, ok bool) {
	sequence, parts, within := strings.Cut(sse.CursorText(r), ".")
	p.Sequence, given, ok = sse.ParseCursor(sequence)
	if within && ok {
		var err error
		p.Parts, err = strconv.Atoi(parts)
		ok = err == nil && p.Sequence > 0 && p.Parts > 0 && p.Parts <= maxPlaceParts
	}
	return p, given, ok
}
