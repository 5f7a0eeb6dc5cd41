package feed

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// pump reads a stream for one reader or one topic.
type pump struct {
	feed    *Feed
	request *streamv1.ReadRequest // its cursor is the pump's
	pause   retry.Pause
	// put takes a frame; it returns an error only when ctx has ended.
	put func(ctx context.Context, f *Frame) error
	// call is told before each call.
	call func()
}

// run reads until a terminal frame, which it returns, and again whenever the call is
// dropped.
func (p *pump) run(ctx context.Context) (*Frame, error) {
	for {
		p.call()
		last, err := p.read(ctx)
		if err == nil {
			return last, nil
		}
		if ctx.Err() == nil {
			p.feed.Log.DebugContext(ctx, "stream dropped", "cursor", p.request.GetFromSequence(), "error", err)
		}
		if err := p.pause.Wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// read makes one call and moves the cursor.
func (p *pump) read(ctx context.Context) (*Frame, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the call when it is left before its end
	call, err := p.feed.Client.Read(ctx, p.request)
	if err != nil {
		return nil, err
	}
	for {
		got, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return nil, fault.New(fault.Unavailable, "STREAM_DROPPED", "the stream ended without a terminal frame")
		}
		if err != nil {
			return nil, err
		}
		frame := NewFrame(p.request.GetStream().GetSessionId(), got)
		if got.GetTruncated() == nil {
			p.pause.Over()
		}
		if err := p.put(ctx, frame); err != nil {
			return nil, err
		}
		p.request.FromSequence = Cursor(got, p.request.GetFromSequence())
		if terminal(p.request, got) {
			return frame, nil
		}
	}
}

func terminal(r *streamv1.ReadRequest, frame *streamv1.ReadResponse) bool {
	switch frame.GetFrame().(type) {
	case *streamv1.ReadResponse_End, *streamv1.ReadResponse_Fail:
		return !r.GetEveryRun()
	case *streamv1.ReadResponse_Truncated:
		return true
	case *streamv1.ReadResponse_CaughtUp:
		return r.GetHistoryOnly()
	default:
		return false
	}
}
