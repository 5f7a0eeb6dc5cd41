// Package feed follows a session's stream for one reader of the gateway. Between
// the two stands a worker of its own, so that a pause of the stream service is a
// pause for the reader and nothing else:
//
//	stream.Read ──▶ pump (reads, reconnects from its cursor) ──▶ channel ──▶ Follow ──▶ sink
//
// Follow's goroutine is the only one that calls the sink. A sink that is slow
// fills the channel, then the connection's window, and is at last dropped by the
// stream service, after which the pump reads on from its cursor: memory stays
// bounded, and nothing is lost.
package feed

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// ahead is how many frames the pump may be ahead of the sink: enough for one
// write to carry what a fast model says in a few milliseconds.
const ahead = 64

// What the sink may be given between two flushes: the pump refills the channel
// while the sink takes from it, so that a long replay may never find it empty.
const (
	flushFrames = ahead
	flushBytes  = 64 << 10 // of frames; the one that passes it is the last
)

// Sink takes what Follow reads, from one goroutine. An error ends Follow, which
// returns it as it is.
type Sink interface {
	// Frame takes the next frame.
	Frame(f *streamv1.ReadResponse) error
	// Flush is called when no frame waits behind the last one, and after
	// flushFrames or flushBytes at the latest.
	Flush() error
	// Beat is called after each Feed.Beat without a frame.
	Beat() error
}

// Feed follows streams. It may be used by many goroutines.
type Feed struct {
	Client streamv1.StreamServiceClient
	Policy retry.Policy  // for how long the stream service may be away
	Beat   time.Duration // above 0
	Log    *slog.Logger
}

// Follow reads from the request's cursor on and gives every frame to the sink.
// It returns nil after a terminal frame, which is caught_up where the request
// asks for history only; the sink's error; ctx's error; or the stream service's
// fault when it does not pass (Unavailable after the policy's limit).
func (f *Feed) Follow(ctx context.Context, r *streamv1.ReadRequest, sink Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &pump{feed: f, request: proto.CloneOf(r), frames: make(chan *streamv1.ReadResponse, ahead)}
	var wg sync.WaitGroup
	var pumped error
	wg.Go(func() {
		defer close(p.frames)
		pumped = p.run(ctx)
	})
	err := f.hand(p, sink)
	cancel()
	wg.Wait()
	if err != nil {
		return err
	}
	return pumped
}

// hand gives frames to the sink until the channel is closed.
func (f *Feed) hand(p *pump, sink Sink) error {
	idle := time.NewTimer(f.Beat)
	defer idle.Stop()
	for {
		select {
		case frame, more := <-p.frames:
			if !more {
				return nil
			}
			if err := handBatch(frame, p.frames, sink); err != nil {
				return err
			}
		case <-idle.C:
			if err := sink.Beat(); err != nil {
				return err
			}
		}
		idle.Reset(f.Beat)
	}
}

// handBatch gives the frame and those that wait behind it, as many as one flush
// may carry, then flushes.
func handBatch(frame *streamv1.ReadResponse, frames <-chan *streamv1.ReadResponse, sink Sink) error {
	for count, bytes := 0, 0; frame != nil; {
		if err := sink.Frame(frame); err != nil {
			return err
		}
		count, bytes = count+1, bytes+proto.Size(frame)
		if count >= flushFrames || bytes >= flushBytes {
			break
		}
		select {
		case frame = <-frames: // nil when it is closed
		default:
			frame = nil
		}
	}
	return sink.Flush()
}

// pump reads for one Follow.
type pump struct {
	feed    *Feed
	request *streamv1.ReadRequest // its cursor is the pump's
	frames  chan *streamv1.ReadResponse
}

// run reads until a terminal frame, and again whenever the call is dropped.
func (p *pump) run(ctx context.Context) error {
	pause := retry.Pause{Policy: p.feed.Policy}
	for {
		err := p.read(ctx, &pause)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			p.feed.Log.DebugContext(ctx, "stream dropped", "cursor", p.request.GetFromSequence(), "error", err)
		}
		if err := pause.Wait(ctx, err); err != nil {
			return err
		}
	}
}

// read makes one call and moves the cursor. It returns nil after a terminal
// frame.
func (p *pump) read(ctx context.Context, pause *retry.Pause) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the call when it is left before its end
	call, err := p.feed.Client.Read(ctx, p.request)
	if err != nil {
		return err
	}
	for {
		frame, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return fault.New(fault.Unavailable, "STREAM_DROPPED", "the stream ended without a terminal frame")
		}
		if err != nil {
			return err
		}
		pause.Over()
		select {
		case p.frames <- frame:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.request.FromSequence = Cursor(frame, p.request.GetFromSequence())
		if terminal(frame, p.request.GetHistoryOnly()) {
			return nil
		}
	}
}

// Cursor gives the cursor of a reader that has taken the frame; before is the
// one that it had.
func Cursor(frame *streamv1.ReadResponse, before int64) int64 {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return f.Chunk.GetSequence()
	case *streamv1.ReadResponse_End:
		return f.End.GetSequence()
	case *streamv1.ReadResponse_Fail:
		return f.Fail.GetSequence()
	case *streamv1.ReadResponse_Rewound:
		return f.Rewound.GetSequence()
	case *streamv1.ReadResponse_CaughtUp:
		return max(before, f.CaughtUp.GetSequence())
	default:
		return before
	}
}

func terminal(frame *streamv1.ReadResponse, historyOnly bool) bool {
	switch frame.GetFrame().(type) {
	case *streamv1.ReadResponse_End, *streamv1.ReadResponse_Fail, *streamv1.ReadResponse_Truncated:
		return true
	case *streamv1.ReadResponse_CaughtUp:
		return historyOnly
	default:
		return false
	}
}
