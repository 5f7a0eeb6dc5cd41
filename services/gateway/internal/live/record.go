package live

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

// Record is what a topic tells at once. Readers share it: nobody may change it.
type Record struct {
	// Session is the session below the one that is read; "" for that itself.
	Session string
	// First and Last are the sequences of the first and the last frame.
	First, Last int64
	Frames      []*frame.Frame
	Attempt     *streamv2.Attempt  // set in the first record of an attempt
	Boundary    *streamv2.Boundary // set in a record that ends an attempt

	// CaughtUp and Down are set in records that have nothing else: what comes now is new;
	// nothing comes before the next CaughtUp.
	CaughtUp, Down bool

	size int
}

func (r *Record) bytes() int { return r.size }

func newRecord(session string, r *streamv2.SessionRecord) *Record {
	if r.GetSessionId() != session {
		session = r.GetSessionId()
	} else {
		session = ""
	}
	in := r.GetRecord()
	out := &Record{Session: session, First: in.GetSequence(), Last: in.GetSequence(), Attempt: in.GetAttempt(), Boundary: in.GetBoundary()}
	if out.Boundary != nil {
		out.Frames = boundaryFrames(session, in.GetSequence(), out.Boundary)
	} else {
		out.Last += int64(max(len(in.GetChunks())-1, 0))
		for i, c := range in.GetChunks() {
			out.Frames = append(out.Frames, frame.Chunk(session, in.GetSequence()+int64(i), c))
		}
	}
	for _, f := range out.Frames {
		out.size += f.Size()
	}
	return out
}

func boundaryFrames(session string, sequence int64, b *streamv2.Boundary) []*frame.Frame {
	var frames []*frame.Frame
	if c := b.GetStepCommitted(); c != nil {
		frames = append(frames, frame.Chunk(session, position.Committed(position.Of(sequence).Step), c))
	}
	if c := b.GetRunEnded(); c != nil {
		frames = append(frames, frame.Chunk(session, sequence-1, c))
	}
	if end := b.GetEnd(); end != nil {
		frames = append(frames, frame.Terminal(session, sequence, end))
	}
	return frames
}
