package api

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
)

// ListCheckpoints implements the service.
func (s *Server) ListCheckpoints(ctx context.Context, r *agentv1.ListCheckpointsRequest) (*agentv1.ListCheckpointsResponse, error) {
	page, err := ask(ctx, s, s.Checkpoints.ListCheckpoints, &statev1.ListCheckpointsRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), BeforeStep: r.GetBeforeStep(), Limit: r.GetLimit(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListCheckpointsResponse{
		Checkpoints: each(page.GetCheckpoints(), checkpointOf),
		Total:       page.GetTotal(),
		HasMore:     page.GetHasMore(),
	}, nil
}

// GetCheckpoint implements the service.
func (s *Server) GetCheckpoint(ctx context.Context, r *agentv1.GetCheckpointRequest) (*agentv1.GetCheckpointResponse, error) {
	found, err := ask(ctx, s, s.Checkpoints.GetCheckpoint, &statev1.GetCheckpointRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.GetCheckpointResponse{Checkpoint: checkpointOf(found.GetCheckpoint())}, nil
}

// Branch implements the service.
func (s *Server) Branch(ctx context.Context, r *agentv1.BranchRequest) (*agentv1.BranchResponse, error) {
	branch := &statev1.BranchRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(), NewSessionId: r.GetNewSessionId(),
	}
	if branch.NewSessionId == "" {
		branch.NewSessionId = s.NewID()
	}
	created, err := ask(ctx, s, s.Checkpoints.Branch, branch)
	if r.GetNewSessionId() == "" && fault.ReasonOf(err) == "SESSION_EXISTS" { // an earlier attempt created it, and its answer was lost
		session, _, err := s.Sessions.Session(ctx, branch.Tenant, branch.NewSessionId)
		return &agentv1.BranchResponse{Session: sessionOf(session)}, err
	}
	if err != nil {
		return nil, err
	}
	return &agentv1.BranchResponse{Session: sessionOf(created.GetSession())}, nil
}

// Rewind implements the service.
func (s *Server) Rewind(ctx context.Context, r *agentv1.RewindRequest) (*agentv1.RewindResponse, error) {
	rewound, err := ask(ctx, s, s.Checkpoints.Rewind, &statev1.RewindRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), CheckpointId: r.GetCheckpointId(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.RewindResponse{Session: sessionOf(rewound.GetSession())}, nil
}

func checkpointOf(c *statev1.Checkpoint) *agentv1.Checkpoint {
	return &agentv1.Checkpoint{
		CheckpointId: c.GetCheckpointId(), RunId: c.GetRunId(), Step: c.GetStep(), Status: conversation.SessionStatus(c.GetStatus()),
		Version: c.GetVersion(), MessageCount: c.GetMessageCount(), CreatedAt: c.GetCreatedAt(), CustomState: c.GetCustomState(),
	}
}
