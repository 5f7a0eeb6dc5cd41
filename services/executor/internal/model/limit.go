package model

import "io"

// maxEvent limits one event of a stream, in bytes. Providers stay far below it; base64 images come closest.
const maxEvent = 16 << 20

// LimitEvents wraps the body of an event stream. Reading fails with provider_invalid_response once an event
// exceeds 16 MiB, so a reader never buffers an endless event.
func LimitEvents(body io.ReadCloser) io.ReadCloser { return &eventLimiter{ReadCloser: body} }

type eventLimiter struct {
	io.ReadCloser
	size      int  // bytes since the last empty line
	lineEmpty bool // the current line is empty so far
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
		return 0, InvalidResponse("a stream event exceeds %d bytes", maxEvent)
	}
	return n, err
}
