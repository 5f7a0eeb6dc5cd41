package api

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// MergeState implements the service.
func (s *Server) MergeState(ctx context.Context, r *agentv1.MergeStateRequest) (*agentv1.MergeStateResponse, error) {
	merge := &statev1.MergeStateRequest{Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), ExpectedVersion: r.GetExpectedVersion()}
	safe := r.GetExpectedVersion() == 0
	for _, op := range r.GetOps() {
		out := &statev1.StateOp{Key: op.GetKey()}
		switch o := op.GetOp().(type) {
		case *agentv1.StateOp_Replace:
			out.Op = &statev1.StateOp_Replace{Replace: o.Replace}
		case *agentv1.StateOp_Append:
			out.Op = &statev1.StateOp_Append{Append: o.Append}
			safe = false // a repetition appends again
		case *agentv1.StateOp_Delete:
			out.Op = &statev1.StateOp_Delete{Delete: o.Delete}
		}
		merge.Ops = append(merge.Ops, out)
	}
	merged, err := askIf(ctx, s, safe, s.Sessions.Sessions.MergeState, merge)
	if err != nil {
		return nil, err
	}
	s.Follower.Live.Notify(ctx, &streamv2.StreamRef{Tenant: tenantOf(ctx), RootSessionId: r.GetSessionId(), SessionId: r.GetSessionId()})
	return &agentv1.MergeStateResponse{Version: merged.GetVersion(), Warnings: merged.GetWarnings()}, nil
}

// SetStatus implements the service.
func (s *Server) SetStatus(ctx context.Context, r *agentv1.SetStatusRequest) (*agentv1.SetStatusResponse, error) {
	set := &statev1.SetStatusRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), ExpectedVersion: r.GetExpectedVersion(),
		Status: statusOf(r.GetStatus()), InterruptReason: r.GetInterruptReason(),
	}
	for _, name := range r.GetExpected() {
		set.Expected = append(set.Expected, statusOf(name))
	}
	if f := r.GetFailure(); f != nil {
		set.Failure = &statev1.Failure{Error: f.GetError(), Detail: f.GetDetail(), Code: f.GetCode(), Retryable: f.GetRetryable()}
	}
	safe := len(set.GetExpected()) == 0 && set.GetExpectedVersion() == 0
	done, err := askIf(ctx, s, safe, s.Sessions.Sessions.SetStatus, set)
	if err != nil {
		return nil, err
	}
	if done.GetOk() {
		return &agentv1.SetStatusResponse{Ok: true, NewVersion: proto.Int64(done.GetVersion())}, nil
	}
	status := conversation.SessionStatus(done.GetStatus())
	return &agentv1.SetStatusResponse{CurrentStatus: proto.String(status), CurrentVersion: proto.Int64(done.GetVersion())}, nil
}

// statusOf returns the status with a public name; unspecified for none.
func statusOf(name string) statev1.SessionStatus {
	return statev1.SessionStatus(statev1.SessionStatus_value["SESSION_STATUS_"+strings.ToUpper(name)])
}

// PutSubSession implements the service.
func (s *Server) PutSubSession(ctx context.Context, r *agentv1.PutSubSessionRequest) (*agentv1.PutSubSessionResponse, error) {
	in := r.GetSubSession()
	sub := &statev1.SubSession{
		SessionId: in.GetSessionId(), AgentType: in.GetAgentType(), ParentToolCallId: in.GetToolCallId(), Name: in.GetName(),
		Status: statusOf(in.GetStatus()), Location: statev1.SubSessionLocation_SUB_SESSION_LOCATION_LOCAL,
		StartedAt: in.GetStartedAt(), CompletedAt: in.GetCompletedAt(),
	}
	if in.GetName() != "" {
		sub.Mode = statev1.SubSessionMode_SUB_SESSION_MODE_PERSISTENT
	}
	if in.GetRemote() {
		sub.Location = statev1.SubSessionLocation_SUB_SESSION_LOCATION_REMOTE
	}
	if _, err := ask(ctx, s, s.Sessions.Sessions.PutSubSession, &statev1.PutSubSessionRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), SubSession: sub,
	}); err != nil {
		return nil, err
	}
	return &agentv1.PutSubSessionResponse{}, nil
}
