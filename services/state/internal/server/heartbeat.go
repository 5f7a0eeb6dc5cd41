package server

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Heartbeat implements statev1.WorkServiceServer.
func (s *workService) Heartbeat(ctx context.Context, r *statev1.HeartbeatRequest) (*statev1.HeartbeatResponse, error) {
	id := r.GetExecutorId()
	if err := checkID("executor_id", id); err != nil {
		return nil, err
	}
	known, err := s.registry.Heartbeat(ctx, id, s.clock.millis())
	if err != nil && ctx.Err() == nil {
		s.suspects.MissedHeartbeat()
	}
	if err != nil {
		return nil, err
	}
	if known && r.GetHeld() != nil {
		held := r.GetHeld().GetRunIds()
		if err = checkHeld(held); err == nil {
			err = s.scheduler.RequeueLost(ctx, id, held)
		}
	}
	if err != nil || !known {
		return &statev1.HeartbeatResponse{Forgotten: !known}, err
	}
	stops, err := s.registry.Stops(ctx, id)
	answer := &statev1.HeartbeatResponse{}
	for _, run := range stops {
		answer.Stops = append(answer.Stops, &statev1.StoppedRun{RunId: run.RunID, Stop: stopOut(&run.Stop)})
	}
	return answer, err
}
