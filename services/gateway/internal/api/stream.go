package api

import (
	"context"

	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// Stream implements the service.
func (s *Server) Stream(ctx context.Context, r *agentv1.StreamRequest, out *connect.ServerStream[agentv1.StreamResponse]) error {
	stream, release, err := s.Streams.Open(ctx, httpapi.ProtocolConnect)
	if err != nil {
		return err
	}
	defer release()
	followed, err := s.Follower.Begin(stream, follow.Request{
		Tenant: tenantOf(ctx), SessionID: r.GetSessionId(), RunID: r.GetRunId(), OnlyRun: true, After: r.GetFromSequence(),
	})
	if err != nil {
		return err
	}
	err = followed.To(stream, sink{out})
	if err != nil && stream.Err() != nil && ctx.Err() == nil {
		return context.Cause(stream) // the gateway ended it, so the caller may connect again
	}
	return err
}

// sink sends each frame as one message. Connect flushes each.
type sink struct {
	out *connect.ServerStream[agentv1.StreamResponse]
}

func (s sink) Flush() error     { return nil }
func (s sink) Heartbeat() error { return nil } // HTTP/2 pings instead

func (s sink) Frame(f *frame.Frame) error { return s.out.Send(streamResponse(f)) }

func streamResponse(f *frame.Frame) *agentv1.StreamResponse {
	switch fail, end := f.Terminal.GetFail(), f.Terminal.GetEnd(); {
	case f.Chunk != nil:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Chunk{Chunk: &agentv1.Chunk{Sequence: f.Sequence, Chunk: f.Chunk}}}
	case fail != nil:
		return &agentv1.StreamResponse{
			Frame: &agentv1.StreamResponse_Fail{Fail: &agentv1.Fail{Sequence: f.Sequence, Error: fail.GetError(), Code: fail.GetCode()}},
		}
	case f.Terminal != nil:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{
			Sequence: f.Sequence, Status: frame.StatusName(end.GetStatus()), Output: end.GetOutput(), Usage: end.GetUsage(), CompletionReason: end.GetCompletionReason(),
		}}}
	case f.Rewound:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Rewound{Rewound: &agentv1.Rewound{Sequence: f.Sequence, At: f.Sequence}}}
	default:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_CaughtUp{CaughtUp: &agentv1.CaughtUp{Sequence: f.Sequence}}}
	}
}
