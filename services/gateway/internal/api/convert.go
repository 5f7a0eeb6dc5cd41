package api

import (
	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/watch"
)

// sink sends frames as they come; Connect flushes each message.
type sink struct {
	out *connect.ServerStream[agentv1.StreamResponse]
}

func (s sink) Flush() error { return nil }
func (s sink) Beat() error  { return nil } // HTTP/2 has its own

func (s sink) Frame(f *feed.Frame) error {
	if r := streamResponse(f.ReadResponse); r != nil {
		return s.out.Send(r)
	}
	return nil
}

func streamResponse(frame *streamv1.ReadResponse) *agentv1.StreamResponse {
	switch f := frame.GetFrame().(type) {
	case *streamv1.ReadResponse_Chunk:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Chunk{Chunk: &agentv1.Chunk{Sequence: f.Chunk.GetSequence(), Chunk: f.Chunk.GetChunk()}}}
	case *streamv1.ReadResponse_End:
		end := &agentv1.End{Sequence: f.End.GetSequence(), Status: watch.StatusName(f.End.GetEnd().GetStatus()), Output: f.End.GetEnd().GetOutput()}
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: end}}
	case *streamv1.ReadResponse_Fail:
		fail := f.Fail.GetFail()
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Fail{Fail: &agentv1.Fail{
			Sequence: f.Fail.GetSequence(), Error: fail.GetError(), Code: fail.GetCode(), Recoverable: fail.GetRecoverable()}}}
	case *streamv1.ReadResponse_Truncated:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Truncated{Truncated: &agentv1.Truncated{Floor: f.Truncated.GetFloor()}}}
	case *streamv1.ReadResponse_Rewound:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Rewound{Rewound: &agentv1.Rewound{Sequence: f.Rewound.GetSequence(), At: f.Rewound.GetAt()}}}
	case *streamv1.ReadResponse_CaughtUp:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_CaughtUp{CaughtUp: &agentv1.CaughtUp{Sequence: f.CaughtUp.GetSequence()}}}
	default:
		return nil
	}
}

func getResponse(s *statev1.Session, run *statev1.Run) *agentv1.GetResponse {
	r := &agentv1.GetResponse{
		SessionId: s.GetSessionId(), AgentType: s.GetAgentType(), Status: conversation.SessionStatus(s.GetStatus()),
		StepCount: s.GetStepCount(), Turn: s.GetTurn(), MessageCount: s.GetMessageCount(), Output: s.GetOutput(),
		Error: s.GetFailure().GetError(), ErrorCode: s.GetFailure().GetCode(), StreamSequence: s.GetStreamSequence(),
		CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(),
	}
	if run != nil {
		r.RunId, r.RunStatus, r.IsExecuting = run.GetRunId(), conversation.RunStatus(run.GetStatus()), conversation.Executing(run)
	}
	return r
}
