package server

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// SaveState implements statev1.SessionServiceServer.
func (s *sessionService) SaveState(ctx context.Context, r *statev1.SaveStateRequest) (*statev1.SaveStateResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(s.limits.checkState(r.GetCustomState()), s.grants.ofMethod(ctx, key)); err != nil {
		return nil, err
	}
	command := session.SaveState{
		Key: key, State: r.GetCustomState(), ExpectedVersion: r.GetExpectedVersion(), Limits: s.limits.sessionLimits(), Schemas: s.runner.schemas, Now: s.clock.millis(),
	}
	version, err := update(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), proto.Size(r), command.Decide)
	if err != nil {
		return nil, err
	}
	return &statev1.SaveStateResponse{Version: version}, nil
}

// MergeState implements statev1.SessionServiceServer.
func (s *sessionService) MergeState(ctx context.Context, r *statev1.MergeStateRequest) (*statev1.MergeStateResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	ops, err := s.limits.opsIn(r.GetOps())
	if err != nil {
		return nil, err
	}
	command := session.MergeState{
		Key: key, Ops: ops, ExpectedVersion: r.GetExpectedVersion(), Limits: s.limits.sessionLimits(), Schemas: s.runner.schemas, Now: s.clock.millis(),
	}
	merged, err := update(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), proto.Size(r), command.Decide)
	if err != nil {
		return nil, err
	}
	return &statev1.MergeStateResponse{Version: merged.Version, Warnings: merged.Warnings}, nil
}
