package memory

import (
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

type candidate struct {
	key   session.Key
	runID string
	since session.Millis
}

// candidates returns the runs that are due, the oldest first.
func (m *Store) candidates(due store.Due, limit int) []candidate {
	wanted := m.condition(due)
	var found []candidate
	for key, r := range m.sessions {
		for _, run := range r.runs {
			if wanted(r, &run) {
				found = append(found, candidate{key, run.RunID, run.CreatedAt})
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(a.since, b.since),
			cmp.Compare(a.key.Tenant, b.key.Tenant),
			cmp.Compare(a.key.SessionID, b.key.SessionID),
		)
	})
	return found[:min(limit, len(found))]
}

func (m *Store) condition(due store.Due) func(*rows, *session.Run) bool {
	switch due := due.(type) {
	case store.Queued:
		return func(r *rows, run *session.Run) bool {
			return m.lives(due.ExecutorID) && slices.Contains(due.AgentTypes, run.AgentType) && queued(run, due.Now)
		}
	case store.Orphaned:
		return func(r *rows, run *session.Run) bool {
			ends := run.Stop != nil || run.DeadlineAt > 0 && run.DeadlineAt <= due.Now
			return m.lives(due.ExecutorID) && ends && queued(run, due.Now) && !m.served(run.AgentType)
		}
	case store.Silent:
		return func(_ *rows, run *session.Run) bool {
			return run.Status == session.RunRunning && !m.lives(run.ExecutorID)
		}
	case store.Lost:
		return func(_ *rows, run *session.Run) bool {
			return run.Status == session.RunRunning && run.ExecutorID == due.ExecutorID &&
				run.ClaimedAt < due.ClaimedBefore && !slices.Contains(due.Held, run.RunID)
		}
	default:
		return func(*rows, *session.Run) bool { return false }
	}
}

// queued reports whether the run waits for nothing but an executor.
func queued(run *session.Run, now session.Millis) bool {
	return run.Status == session.RunQueued && run.DueAt <= now
}
