package feed

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// view is what one reader sees of a stream. It belongs to Follow's goroutine.
type view struct {
	feed    *Feed
	request *streamv1.ReadRequest
	sink    Sink

	cursor   int64
	held     int64 // nothing of the session after this was given and still stands
	caughtUp bool
	ended    bool // a terminal frame was given

	// base and ahead: the fingerprint of the chunks above base that were read from
	// what is stored and that the topic has not told yet; 0 when there are none.
	base  int64
	ahead uint64
}

func newView(f *Feed, r *streamv1.ReadRequest, sink Sink) *view {
	return &view{feed: f, request: proto.CloneOf(r), sink: sink, cursor: r.GetFromSequence(), held: r.GetFromSequence()}
}

// give hands the sink a frame that the reader has not seen, if it is for it, and
// moves the cursor.
func (v *view) give(f *Frame) (given bool, err error) {
	v.cursor = Cursor(f.ReadResponse, v.cursor)
	if v.wants(f) {
		return true, v.sink.Frame(f)
	}
	if p, passes := v.sink.(Passer); passes && f.Session == "" && (f.GetEnd() != nil || f.GetFail() != nil) {
		return false, p.Passed(f)
	}
	return false, nil
}

func (v *view) wants(f *Frame) bool {
	switch kind := f.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		if f.Session != "" {
			return v.request.GetFamily()
		}
		v.held = kind.Chunk.GetSequence()
	case *streamv1.ReadResponse_Rewound:
		if f.Session != "" {
			return v.request.GetFamily()
		}
		if v.held <= kind.Rewound.GetAt() {
			return false
		}
		v.held = kind.Rewound.GetAt()
	case *streamv1.ReadResponse_End:
		v.ended = f.Session == "" && v.ends(kind.End.GetRunId())
		return v.ended
	case *streamv1.ReadResponse_Fail:
		v.ended = f.Session == "" && v.ends(kind.Fail.GetRunId())
		return v.ended
	case *streamv1.ReadResponse_Truncated:
		v.ended = true
	case *streamv1.ReadResponse_CaughtUp:
		former := v.caughtUp
		v.caughtUp = true
		return !former
	}
	return true
}

// reads reports whether the frame is of a session that the reader reads.
func (v *view) reads(f *Frame) bool { return f.Session == "" || v.request.GetFamily() }

func (v *view) ends(run string) bool {
	return v.request.GetRunId() == "" || v.request.GetRunId() == run
}

// historyAhead is how many frames of its history are read ahead of a reader: few, since
// each may be as large as a chunk.
const historyAhead = 4

// history reads what is stored by a call of its own, to its terminal frame or to
// the end of the view. The sink sets the pace: a slow one fills the channel, then the
// connection's window, and is at last dropped by the stream service, after which
// the pump reads on from its cursor.
func (v *view) history(ctx context.Context, r *streamv1.ReadRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	frames := make(chan *Frame, historyAhead)
	p := &pump{feed: v.feed, request: r, pause: retry.Pause{Policy: v.feed.Policy}, call: func() {}}
	p.put = func(ctx context.Context, f *Frame) error {
		select {
		case frames <- f:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var wg sync.WaitGroup
	var pumped error
	wg.Go(func() {
		defer close(frames)
		_, pumped = p.run(ctx)
	})
	err := v.hand(frames)
	cancel()
	wg.Wait()
	if err != nil || v.ended {
		return err
	}
	return pumped
}

// hand gives frames to the sink until the channel is closed.
func (v *view) hand(frames <-chan *Frame) error {
	idle := time.NewTimer(v.feed.Beat)
	defer idle.Stop()
	for !v.ended {
		select {
		case frame, more := <-frames:
			if !more {
				return nil
			}
			given, err := v.handBatch(frame, frames)
			if err != nil {
				return err
			}
			if !given {
				continue
			}
		case <-idle.C:
			if err := v.sink.Beat(); err != nil {
				return err
			}
		}
		idle.Reset(v.feed.Beat)
	}
	return nil
}

// handBatch gives the frame and those that wait behind it, then flushes.
func (v *view) handBatch(frame *Frame, frames <-chan *Frame) (given bool, err error) {
	b := batch{view: v}
	for frame != nil && !v.ended {
		if err := b.give(frame); err != nil {
			return false, err
		}
		if chunk := frame.GetChunk(); chunk != nil {
			v.note(chunk.GetSequence())
		}
		select {
		case frame = <-frames: // nil when it is closed
		default:
			frame = nil
		}
	}
	return b.given, b.flush()
}

// batch gives frames to the sink and flushes on the way.
type batch struct {
	view         *view
	given        bool
	count, bytes int // since the last flush
}

func (b *batch) give(f *Frame) error {
	given, err := b.view.give(f)
	if err != nil || !given {
		return err
	}
	b.given = true
	b.count, b.bytes = b.count+1, b.bytes+f.size
	if b.count < flushFrames && b.bytes < flushBytes {
		return nil
	}
	return b.flush()
}

func (b *batch) flush() error {
	if b.count == 0 {
		return nil
	}
	b.count, b.bytes = 0, 0
	return b.view.sink.Flush()
}
