package gatewaytest

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func noCheckpoint(id string) error {
	return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "there is no checkpoint %q", id)
}

// checkpoint keeps where the session stands.
func (s *session) checkpoint(step int32) {
	s.checkpoints = append(s.checkpoints, &statev1.Checkpoint{
		CheckpointId: fmt.Sprintf("cp-%d", step), Step: step, MessageCount: int64(len(s.messages)),
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
