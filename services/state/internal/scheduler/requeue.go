package scheduler

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/meters"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// lostBatch is how many lost claims one transaction requeues at most.
const lostBatch = 100

// RequeueLost requeues the runs claimed by the executor and not held by it: their claims were
// lost on the way. Claims younger than Config.Fresh may still arrive, and stay.
func (s *Scheduler) RequeueLost(ctx context.Context, executorID string, held []string) error {
	return s.requeueLost(ctx, executorID, held, session.Millis(s.Now().Add(-s.config.Fresh).UnixMilli()))
}

// requeueLost requeues the runs claimed by the executor before the time and not held by it.
func (s *Scheduler) requeueLost(ctx context.Context, executorID string, held []string, before session.Millis) error {
	command := session.RequeueLost{ExecutorID: executorID, HeldRunIDs: held, ClaimedBefore: before, Now: s.millis()}
	due := store.LostClaims{ExecutorID: executorID, HeldRunIDs: held, ClaimedBefore: before}
	for {
		requeued, err := s.Store.UpdateDue(ctx, due, session.Need{}, lostBatch, command.Decide)
		if err != nil {
			return err
		}
		s.Meters.Requeued(ctx, len(requeued), meters.ClaimLost)
		for _, d := range requeued {
			s.Log.WarnContext(
				ctx,
				"claim was lost on its way",
				"executor",
				session.ExecutorName(executorID),
				"session",
				d.View.Session.SessionID,
				"run",
				d.View.Run.RunID,
			)
			s.wakeIfDue(d.View.Session.Tenant, &d.Change.Runs[0], command.Now)
		}
		if len(requeued) < lostBatch {
			return nil
		}
	}
}
