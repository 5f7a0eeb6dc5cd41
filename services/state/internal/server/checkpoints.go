package server

import (
	"cmp"
	"context"
	"math"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// checkpointService implements statev1.CheckpointServiceServer.
type checkpointService struct {
	statev1.UnimplementedCheckpointServiceServer
	store      store.Reader
	runner     *runner
	admissions *admissions
}

// GetCheckpoint implements statev1.CheckpointServiceServer.
func (s *checkpointService) GetCheckpoint(ctx context.Context, r *statev1.GetCheckpointRequest) (*statev1.GetCheckpointResponse, error) {
	x := s.runner.read(r)
	key, id := x.key(r), x.optionalCheckpointID(r.GetCheckpointId())
	if x.err != nil {
		return nil, x.err
	}
	found, state, err := x.owned(s.store).Checkpoint(ctx, key, id)
	if err != nil {
		return nil, err
	}
	checkpoint := checkpointOut(found)
	checkpoint.CustomState = state
	return &statev1.GetCheckpointResponse{Checkpoint: checkpoint}, nil
}

// ListCheckpoints implements statev1.CheckpointServiceServer.
func (s *checkpointService) ListCheckpoints(
	ctx context.Context, r *statev1.ListCheckpointsRequest,
) (*statev1.ListCheckpointsResponse, error) {
	x := s.runner.read(r)
	key, limit, offset := x.key(r), x.pageLimit(r.GetLimit()), x.offset(r.GetOffset())
	before := number(x, "LIMIT_INVALID", "before_step", r.GetBeforeStep(), math.MaxInt32, "give a step, or 0 for the newest checkpoints")
	if x.err != nil {
		return nil, x.err
	}
	rows, total, err := x.owned(s.store).Checkpoints(ctx, key, before, offset, limit+1)
	if err != nil {
		return nil, err
	}
	page, more := splitPage(rows, limit)
	answer := &statev1.ListCheckpointsResponse{Total: total, HasMore: more}
	for i := range page {
		answer.Checkpoints = append(answer.Checkpoints, checkpointOut(&page[i]))
	}
	return answer, nil
}

// Rewind implements statev1.CheckpointServiceServer.
func (s *checkpointService) Rewind(ctx context.Context, r *statev1.RewindRequest) (*statev1.RewindResponse, error) {
	x := s.runner.read(r)
	command := session.RewindTo{Key: x.key(r), CheckpointID: x.checkpointID(r.GetCheckpointId()), Schemas: s.runner.schemas, Now: x.now}
	if x.err != nil {
		return nil, x.err
	}
	rewound, err := run(ctx, s.runner, onFamily(x, command.Key, command))
	if err != nil {
		return nil, err
	}
	return &statev1.RewindResponse{Session: sessionOut(&rewound)}, nil
}

// Branch implements statev1.CheckpointServiceServer.
func (s *checkpointService) Branch(ctx context.Context, r *statev1.BranchRequest) (*statev1.BranchResponse, error) {
	x := s.runner.read(r)
	branch := session.Branch{
		From: x.key(r), Owner: x.by.Owner, CheckpointID: x.checkpointID(r.GetCheckpointId()), Schemas: s.runner.schemas, Now: x.now,
		Key: session.Key{Tenant: r.GetTenant(), SessionID: cmp.Or(x.optionalID("new_session_id", r.GetNewSessionId()), x.ids.session())},
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := s.admissions.checkBytes(ctx, r.GetTenant(), 1); err != nil { // it copies messages
		return nil, err
	}
	command := onViews(x, session.Target{}, branch.Decide)
	command.Targets, command.Alone = branch.Targets(), true
	created, err := run(ctx, s.runner, command)
	if err != nil {
		return nil, err
	}
	return &statev1.BranchResponse{Session: sessionOut(&created)}, nil
}
