package api

import (
	"context"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
)

// Interrupt implements the service.
func (s *Server) Interrupt(ctx context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	stopped, err := s.stop(ctx, r, statev1.StopKind_STOP_KIND_INTERRUPT)
	return &agentv1.InterruptResponse{Effect: stopped.Effect, RunId: stopped.RunID}, err
}

// Abort implements the service.
func (s *Server) Abort(ctx context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	stopped, err := s.stop(ctx, r, statev1.StopKind_STOP_KIND_ABORT)
	return &agentv1.AbortResponse{Effect: stopped.Effect, RunId: stopped.RunID}, err
}

// stopRequest has the common fields of InterruptRequest and AbortRequest.
type stopRequest interface {
	GetSessionId() string
	GetRunId() string
	GetReason() string
	GetWaitMs() int64
}

func (s *Server) stop(ctx context.Context, r stopRequest, kind statev1.StopKind) (stop.Stopped, error) {
	return s.Stops.Stop(ctx, stop.Request{
		Tenant: tenantOf(ctx), SessionID: r.GetSessionId(), RunID: r.GetRunId(), Kind: kind, Reason: r.GetReason(),
		Wait: time.Duration(r.GetWaitMs()) * time.Millisecond,
	})
}
