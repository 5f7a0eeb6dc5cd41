package server

import (
	"context"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Heartbeat implements statev1.WorkServiceServer.
func (s *workService) Heartbeat(ctx context.Context, r *statev1.HeartbeatRequest) (*statev1.HeartbeatResponse, error) {
	x := s.runner.read(r)
	id, running := x.id("executor_id", r.GetExecutorId()), readClaimedRuns(x, r.GetHeld().GetRunIds())
	if x.err != nil {
		return nil, x.err
	}
	known, err := s.registry.Heartbeat(ctx, id, x.now)
	if err != nil && ctx.Err() == nil {
		s.suspects.MissedHeartbeat()
	}
	if err == nil && known && r.GetHeld() != nil {
		err = s.scheduler.RequeueLost(ctx, id, running)
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
