package feed

import (
	"sync"

	"google.golang.org/protobuf/proto"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// Frame is one frame of a stream. Readers of a session share it: nobody may change
// it.
type Frame struct {
	*streamv1.ReadResponse
	// Session is the session that the frame is about when that is not the one
	// that is read but one below it; "" otherwise.
	Session string

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

// NewFrame returns a frame of the session's stream.
func NewFrame(session string, r *streamv1.ReadResponse) *Frame {
	f := &Frame{ReadResponse: r, Session: sessionOf(r), size: proto.Size(r)}
	if f.Session == session {
		f.Session = ""
	}
	return f
}

// Text gives the frame in the form, as write writes it, which is called once. Every
// caller has to give the same write for the same form.
func (f *Frame) Text(form Form, write func(*Frame) []byte) []byte {
	t := &f.texts[form]
	t.once.Do(func() { t.text = write(f) })
	return t.text
}

func sessionOf(r *streamv1.ReadResponse) string {
	switch f := r.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return f.Chunk.GetSessionId()
	case *streamv1.ReadResponse_End:
		return f.End.GetSessionId()
	case *streamv1.ReadResponse_Fail:
		return f.Fail.GetSessionId()
	case *streamv1.ReadResponse_Rewound:
		return f.Rewound.GetSessionId()
	default:
		return ""
	}
}

// Cursor gives the cursor of a reader that has taken the frame; before is the
// one that it had.
func Cursor(r *streamv1.ReadResponse, before int64) int64 {
	if sequence := record(r); sequence > 0 {
		return sequence
	}
	return max(before, r.GetCaughtUp().GetSequence())
}

// record gives the sequence of the frame's record, 0 when it has none.
func record(r *streamv1.ReadResponse) int64 {
	switch f := r.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return f.Chunk.GetSequence()
	case *streamv1.ReadResponse_End:
		return f.End.GetSequence()
	case *streamv1.ReadResponse_Fail:
		return f.Fail.GetSequence()
	case *streamv1.ReadResponse_Rewound:
		return f.Rewound.GetSequence()
	default:
		return 0
	}
}
