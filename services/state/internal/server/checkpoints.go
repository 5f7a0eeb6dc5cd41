package server

import (
	"cmp"
	"context"
	"math"

	"google.golang.org/protobuf/proto"

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
	clock      clock
	ids        ids
}

// GetCheckpoint implements statev1.CheckpointServiceServer.
func (s *checkpointService) GetCheckpoint(ctx context.Context, r *statev1.GetCheckpointRequest) (*statev1.GetCheckpointResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkOptionalCheckpointID(r.GetCheckpointId()); err != nil {
		return nil, err
	}
	found, state, err := readerOf(r, s.store).Checkpoint(ctx, key, r.GetCheckpointId())
	if err != nil {
		return nil, err
	}
	checkpoint := checkpointOut(found)
	checkpoint.CustomState = state
	return &statev1.GetCheckpointResponse{Checkpoint: checkpoint}, nil
}

// ListCheckpoints implements statev1.CheckpointServiceServer.
func (s *checkpointService) ListCheckpoints(ctx context.Context, r *statev1.ListCheckpointsRequest) (*statev1.ListCheckpointsResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(r.GetLimit())
	if err := cmp.Or(err, checkOffset(r.GetOffset()),
		checkRange("LIMIT_INVALID", "before_step", r.GetBeforeStep(), math.MaxInt32, "give a step, or 0 for the newest checkpoints")); err != nil {
		return nil, err
	}
	rows, total, err := readerOf(r, s.store).Checkpoints(ctx, key, r.GetBeforeStep(), int(r.GetOffset()), limit+1)
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
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkCheckpointID(r.GetCheckpointId()); err != nil {
		return nil, err
	}
	command := session.RewindTo{Key: key, CheckpointID: r.GetCheckpointId(), Schemas: s.runner.schemas, Now: s.clock.millis()}
	rewound, err := spread(ctx, s.runner.by(r.GetCaller()), targetOf(r, key, command.Need()), proto.Size(r), command.Now, alone(command.Decide))
	if err != nil {
		return nil, err
	}
	return &statev1.RewindResponse{Session: sessionOut(&rewound)}, nil
}

// Branch implements statev1.CheckpointServiceServer.
func (s *checkpointService) Branch(ctx context.Context, r *statev1.BranchRequest) (*statev1.BranchResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkCheckpointID(r.GetCheckpointId()), checkOptionalID("new_session_id", r.GetNewSessionId())); err != nil {
		return nil, err
	}
	if err := s.admissions.checkBytes(ctx, key.Tenant, 1); err != nil { // it copies messages
		return nil, err
	}
	branch := session.Key{Tenant: key.Tenant, SessionID: r.GetNewSessionId()}
	if branch.SessionID == "" {
		branch.SessionID = s.ids.session()
	}
	command := session.Branch{From: key, Owner: r.GetCaller().GetOwner(), CheckpointID: r.GetCheckpointId(), Key: branch, Schemas: s.runner.schemas, Now: s.clock.millis()}
	created, err := run(ctx, s.runner.by(r.GetCaller()), command.Targets(), proto.Size(r), func(_ []session.Target, views []*session.View) ([]*session.Change, session.Session, error) {
		return command.Decide(views...)
	})
	if err != nil {
		return nil, err
	}
	return &statev1.BranchResponse{Session: sessionOut(&created)}, nil
}
