package server

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// SaveState implements statev1.SessionServiceServer.
func (s *sessionService) SaveState(ctx context.Context, r *statev1.SaveStateRequest) (*statev1.SaveStateResponse, error) {
	x := s.runner.read(r)
	command := session.SaveState{
		Key: x.key(r), State: x.state(r.GetCustomState()), ExpectedVersion: r.GetExpectedVersion(),
		Limits: x.limits.sessionLimits(), Schemas: s.runner.schemas, Now: x.now,
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.grants.ofMethod(ctx, command.Key); err != nil {
		return nil, err
	}
	version, err := run(ctx, s.runner, onSession(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.SaveStateResponse{Version: version}, nil
}

// MergeState implements statev1.SessionServiceServer.
func (s *sessionService) MergeState(ctx context.Context, r *statev1.MergeStateRequest) (*statev1.MergeStateResponse, error) {
	x := s.runner.read(r)
	command := session.MergeState{
		Key: x.key(r), Ops: x.ops(r.GetOps()), ExpectedVersion: r.GetExpectedVersion(),
		Limits: x.limits.sessionLimits(), Schemas: s.runner.schemas, Now: x.now,
	}
	if x.err != nil {
		return nil, x.err
	}
	merged, err := run(ctx, s.runner, onSession(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.MergeStateResponse{Version: merged.Version, Warnings: merged.Warnings}, nil
}
