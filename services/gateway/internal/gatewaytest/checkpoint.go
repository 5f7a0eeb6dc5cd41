package gatewaytest

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func noCheckpoint(id string) error {
	return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "there is no checkpoint %q", id)
}

// checkpoint keeps where the session stands.
func (s *session) checkpoint(run *statev1.Run, step int32) {
	s.checkpoints = append(s.checkpoints, &statev1.Checkpoint{
		CheckpointId: fmt.Sprintf("cp-%d", step), RunId: run.GetRunId(), Step: step,
		Status: s.GetStatus(), MessageCount: int64(len(s.messages)),
	})
}

// at finds a checkpoint, nil when there is none.
func (s *session) at(id string) *statev1.Checkpoint {
	for _, c := range s.checkpoints {
		if c.GetCheckpointId() == id {
			return c
		}
	}
	return nil
}

// rewind takes the messages back that are behind the checkpoint; "" for none.
func (s *session) rewind(id string) {
	if c := s.at(id); c != nil {
		s.messages = s.messages[:c.GetMessageCount()]
		s.takeBack(c.GetStep())
	}
}

// ListCheckpoints implements the service.
func (s *State) ListCheckpoints(_ context.Context, r *statev1.ListCheckpointsRequest) (*statev1.ListCheckpointsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	listed := slices.Clone(found.checkpoints)
	slices.Reverse(listed)
	listed = slices.DeleteFunc(listed, func(c *statev1.Checkpoint) bool { return r.GetBeforeStep() > 0 && c.GetStep() >= r.GetBeforeStep() })
	return &statev1.ListCheckpointsResponse{Checkpoints: listed[:min(len(listed), int(r.GetLimit()))]}, nil
}

// GetCheckpoint implements the service.
func (s *State) GetCheckpoint(_ context.Context, r *statev1.GetCheckpointRequest) (*statev1.GetCheckpointResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	c := found.at(r.GetCheckpointId())
	if c == nil {
		return nil, noCheckpoint(r.GetCheckpointId())
	}
	return &statev1.GetCheckpointResponse{Checkpoint: c}, nil
}

// Branch implements the service.
func (s *State) Branch(_ context.Context, r *statev1.BranchRequest) (*statev1.BranchResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.find(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	key := streamKey(r.GetTenant(), r.GetNewSessionId())
	if s.sessions[key] != nil {
		return nil, fault.New(fault.Conflict, "SESSION_EXISTS", "there is a session %q", r.GetNewSessionId())
	}
	c := found.at(r.GetCheckpointId())
	if c == nil {
		return nil, noCheckpoint(r.GetCheckpointId())
	}
	made := &session{
		Session: &statev1.Session{
			Tenant: r.GetTenant(), SessionId: r.GetNewSessionId(), RootSessionId: r.GetNewSessionId(), AgentType: found.GetAgentType(),
			Status: statev1.SessionStatus_SESSION_STATUS_PAUSED,
		},
		messages: slices.Clone(found.messages[:c.GetMessageCount()]),
	}
	s.sessions[key] = made
	return &statev1.BranchResponse{Session: proto.CloneOf(made.Session)}, nil
}

// takeBack takes back the steps above the step.
func (s *session) takeBack(step int32) {
	kept := slices.DeleteFunc(slices.Clone(s.steps), func(t *statev1.StoredStep) bool { return t.GetStep() > step })
	if len(kept) == len(s.steps) {
		return
	}
	s.steps, s.Position = kept, 0
	if len(kept) > 0 {
		s.Position = position.Ended(kept[len(kept)-1].GetStep())
	}
}

// TakeBack takes back the steps of a session above the step.
func (s *State) TakeBack(tenant, id string, step int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[streamKey(tenant, id)].takeBack(step)
}
