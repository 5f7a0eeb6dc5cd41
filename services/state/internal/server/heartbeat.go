package server

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Heartbeat implements statev1.WorkServiceServer.
func (s *Server) Heartbeat(ctx context.Context, r *statev1.HeartbeatRequest) (*statev1.HeartbeatResponse, error) {
	if err := checkID("executor_id", r.GetExecutorId()); err != nil {
		return nil, err
	}
	known, err := s.store.Beat(ctx, r.GetExecutorId(), s.millis())
	if err != nil && ctx.Err() == nil {
		s.suspects.Deaf()
	}
	if err != nil {
		return nil, err
	}
	if known && r.GetHeld() != nil {
		before := session.Millis(s.now().Add(-s.config.Fresh).UnixMilli())
		err = s.reclaimLost(ctx, r.GetExecutorId(), r.GetHeld().GetRunIds(), before)
	}
	if err != nil || !known {
		return &statev1.HeartbeatResponse{Forgotten: !known}, err
	}
	stops, err := s.store.Stops(ctx, r.GetExecutorId())
	answer := &statev1.HeartbeatResponse{}
	for _, run := range stops {
		answer.Stops = append(answer.Stops, &statev1.StoppedRun{RunId: run.RunID, Stop: stopOut(&run.Stop)})
	}
	return answer, err
}

// Lost claims are taken back in batches, so that no transaction is large.
const lostBatch = 100

// reclaimLost takes back what the executor has claimed before the time and
// does not hold.
func (s *Server) reclaimLost(ctx context.Context, executorID string, held []string, before session.Millis) error {
	if err := checkHeld(held); err != nil {
		return err
	}
	command := session.RequeueLost{ExecutorID: executorID, Held: held, ClaimedBefore: before, Now: s.millis()}
	due := store.Lost{ExecutorID: executorID, Held: held, ClaimedBefore: before}
	for {
		freed, err := s.store.UpdateDue(ctx, due, session.Need{}, lostBatch, command.Decide)
		if err != nil {
			return err
		}
		for _, f := range freed {
			s.log.WarnContext(ctx, "claim was lost on its way", "executor", executorID, "session", f.View.Session.SessionID, "run", f.View.Run.RunID)
			s.wake(&f.Change.Runs[0], command.Now)
		}
		if len(freed) < lostBatch {
			return nil
		}
	}
}

func checkHeld(held []string) error {
	const most = 100_000
	if len(held) > most {
		return fault.New(fault.Invalid, "EXECUTOR_INVALID", "an executor cannot hold %d runs; the limit is %d", len(held), most)
	}
	for _, id := range held {
		if err := checkID("a held run id", id); err != nil {
			return err
		}
	}
	return nil
}
