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
	// Start: the client has the start part of the message that begins behind the sequence, and nothing else of it.
	Start bool
}

// startPlace ends the text of a place with Place.Start.
const startPlace = "start"

// String returns the sequence, SEQUENCE.PARTS or SEQUENCE.start.
func (p Place) String() string {
	id := strconv.FormatInt(p.Sequence, 10)
	switch {
	case p.Start:
		id += "." + startPlace
	case p.Parts > 0:
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
	switch {
	case !within || !ok:
	case parts == startPlace:
		p.Start = true
	default:
		var err error
		p.Parts, err = strconv.Atoi(parts)
		ok = err == nil && p.Sequence > 0 && p.Parts > 0 && p.Parts <= maxPlaceParts
	}
	return p, given, ok
}
