// Package frame has what a reader of a session is given: chunks, how a run ended, what
// is void, and that nothing older is missing. Frames of live records are shared by all
// readers of a session, so nobody may change one.
package frame

import (
	"sync"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Frame is one frame. Exactly one of Chunk, Terminal, Rewound and CaughtUp is set.
type Frame struct {
	// Session is the session below the one that is read; "" for that itself.
	Session string
	// Sequence is where a reader stands that has taken the frame.
	Sequence int64

	Chunk    *eventv1.Chunk
	Terminal *streamv2.Terminal
	// Rewound: everything behind Sequence is void.
	Rewound bool
	// CaughtUp: what comes now is new.
	CaughtUp bool

	size  int
	texts [forms]struct {
		once sync.Once
		text []byte
	}
}

// Form is a form of a frame on a wire.
type Form int

// The forms that are made once for all readers.
const (
	Event   Form = iota // of server-sent events
	Message             // of a WebSocket
	forms
)

// Chunk returns the frame of a chunk.
func Chunk(session string, sequence int64, c *eventv1.Chunk) *Frame {
	return &Frame{Session: session, Sequence: sequence, Chunk: c, size: proto.Size(c)}
}

// Terminal returns the frame of the end of a run.
func Terminal(session string, sequence int64, t *streamv2.Terminal) *Frame {
	return &Frame{Session: session, Sequence: sequence, Terminal: t, size: proto.Size(t)}
}

// Rewound returns the frame that voids everything behind the sequence.
func Rewound(session string, sequence int64) *Frame {
	return &Frame{Session: session, Sequence: sequence, Rewound: true}
}

// CaughtUp returns the frame between what is stored and what is new.
func CaughtUp(sequence int64) *Frame { return &Frame{Sequence: sequence, CaughtUp: true} }

// Size tells about how many bytes the frame takes.
func (f *Frame) Size() int { return f.size }

// Text gives the frame in the form, as write writes it, which is called once. Every
// caller has to give the same write for the same form.
func (f *Frame) Text(form Form, write func(*Frame) []byte) []byte {
	t := &f.texts[form]
	t.once.Do(func() { t.text = write(f) })
	return t.text
}
