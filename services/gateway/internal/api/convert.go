package api

import (
	"connectrpc.com/connect"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

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
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Fail{Fail: &agentv1.Fail{Sequence: f.Sequence, Error: fail.GetError(), Code: fail.GetCode()}}}
	case f.Terminal != nil:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_End{End: &agentv1.End{
			Sequence: f.Sequence, Status: frame.StatusName(end.GetStatus()), Output: end.GetOutput(), Usage: end.GetUsage(),
		}}}
	case f.Rewound:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_Rewound{Rewound: &agentv1.Rewound{Sequence: f.Sequence, At: f.Sequence}}}
	default:
		return &agentv1.StreamResponse{Frame: &agentv1.StreamResponse_CaughtUp{CaughtUp: &agentv1.CaughtUp{Sequence: f.Sequence}}}
	}
}

func getResponse(found *statev1.GetSessionResponse) *agentv1.GetResponse {
	s, run := found.GetSession(), found.GetCurrentRun()
	r := &agentv1.GetResponse{
		SessionId: s.GetSessionId(), AgentType: s.GetAgentType(), Status: conversation.SessionStatus(s.GetStatus()),
		StepCount: s.GetStepCount(), Turn: s.GetTurn(), MessageCount: s.GetMessageCount(), Output: s.GetOutput(),
		Error: s.GetFailure().GetError(), ErrorCode: s.GetFailure().GetCode(), StreamSequence: s.GetPosition(),
		CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(),
	}
	if run != nil {
		r.RunId, r.RunStatus, r.IsExecuting = run.GetRunId(), conversation.RunStatus(run.GetStatus()), conversation.Executing(run)
	}
	for _, c := range conversation.OpenCalls(found) {
		r.PendingCalls = append(r.PendingCalls, &agentv1.PendingCall{
			ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), Input: c.GetInput(), ApprovalId: c.GetApprovalId(),
			SessionId: c.GetSessionId(), DeadlineAt: c.GetDeadlineAt(),
		})
	}
	return r
}
