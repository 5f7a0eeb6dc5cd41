package gatewaytest

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Record keeps what a step has shown beside its messages.
func (r *Run) Record(step int32, record *eventv1.StepRecord) {
	r.world.State.change(r.tenant, r.Run, func(s *session, _ *statev1.Run) {
		if s.records == nil {
			s.records = map[int32]*eventv1.StepRecord{}
		}
		s.records[step] = record
	})
}

// ListSteps implements the service; it gives the steps that have messages, a few at a time.
func (s *State) ListSteps(_ context.Context, r *statev1.ListStepsRequest) (*statev1.ListStepsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[streamKey(r.GetTenant(), r.GetSessionId())]
	if found == nil {
		return nil, fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", r.GetSessionId())
	}
	out := &statev1.ListStepsResponse{Session: proto.CloneOf(found.Session), CurrentRun: proto.CloneOf(found.current())}
	stored := map[int32]*statev1.StoredStep{}
	follows := int32(0)
	for _, m := range found.messages {
		number := m.GetStep()
		if number == 0 || number <= r.GetAfterStep() || r.GetRunId() != "" && r.GetRunId() != m.GetRunId() {
			continue
		}
		if stored[number] == nil {
			if len(out.GetSteps()) == maxListed {
				out.HasMore = true
				break
			}
			stored[number] = &statev1.StoredStep{Step: number, RunId: m.GetRunId(), Follows: follows, Record: proto.CloneOf(found.records[number])}
			out.Steps = append(out.Steps, stored[number])
		}
		follows = number
		stored[number].Messages = append(stored[number].Messages, proto.CloneOf(m))
	}
	return out, nil
}
