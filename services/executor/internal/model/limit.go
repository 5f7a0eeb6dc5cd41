package model

import "io"

// maxEvent is the longest event of a stream that is read, in bytes. It is far
// above what providers send in one: images in base64 come close.
const maxEvent = 16 << 20

// LimitEvents gives the body of an event stream whose reader is never made to keep an
// event without end: an event that is too long ends it with
// provider_invalid_response.
func LimitEvents(body io.ReadCloser) io.ReadCloser { return &eventLimiter{ReadCloser: body} }

type eventLimiter struct {
	io.ReadCloser
	size      int  // bytes since the last empty line
	lineEmpty bool // nothing of the line was read
}

func (b *eventLimiter) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '\r':
		case c != '\n':
			b.size++
			b.lineEmpty = false
		case b.lineEmpty:
			b.size = 0
		default:
			b.lineEmpty = true
		}
	}
	if b.size > maxEvent {
		return 0, InvalidResponse("an event of the stream is longer than %d bytes", maxEvent)
	}
	return n, err
}
