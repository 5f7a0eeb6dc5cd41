package model

import "io"

// maxEvent is the longest event of a stream that is read, in bytes. It is far
// above what providers send in one: images in base64 come close.
const maxEvent = 16 << 20

// Bounded gives the body of an event stream whose reader is never made to keep an
// event without end: an event that is too long ends it with
// provider_invalid_response.
func Bounded(body io.ReadCloser) io.ReadCloser { return &bounded{ReadCloser: body} }

type bounded struct {
	io.ReadCloser
	event int  // bytes since the last empty line
	empty bool // nothing of the line was read
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '\r':
		case c != '\n':
			b.event++
			b.empty = false
		case b.empty:
			b.event = 0
		default:
			b.empty = true
		}
	}
	if b.event > maxEvent {
		return 0, Unreadable("an event of the stream is longer than %d bytes", maxEvent)
	}
	return n, err
}
