package sqlite

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UpdateDue implements store.Updater. It looks with a reader first, so that
// those who ask again and again for work that is not there do not stand in the
// way of the writer.
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	var found []candidate
	err := s.read(ctx, func(c *connection) (err error) {
		found, err = candidates(ctx, c, due, 1)
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, wrap(ctx, err, "find due runs")
	}
	var done []store.Decided
	var refused error
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		found, err := candidates(ctx, c, due, limit)
		if err != nil {
			return err
		}
		for _, one := range found {
			v, err := viewDue(ctx, c, one, need)
			if err != nil {
				return err
			}
			change, err := decide(v)
			if err != nil {
				refused = err
				return err
			}
			if change == nil {
				continue
			}
			if err := apply(ctx, c, one.key, v.Session, change); err != nil {
				return fmt.Errorf("write session %q of tenant %q: %w", one.key.SessionID, one.key.Tenant, err)
			}
			done = append(done, store.Decided{View: v, Change: change})
		}
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

func viewDue(ctx context.Context, c *connection, one candidate, need session.Need) (*session.View, error) {
	need.RunID, need.Open = one.runID, true
	v, err := view(ctx, c, one.key, need)
	if err != nil {
		return nil, err
	}
	_, err = c.one(ctx, `SELECT NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = ?)`, arguments(v.Run.ExecutorID), &v.HolderSilent)
	return v, err
}

type candidate struct {
	key   session.Key
	runID string
}

// candidates returns the runs that are due, those with an order in it.
func candidates(ctx context.Context, c *connection, due store.Due, limit int) ([]candidate, error) {
	switch due := due.(type) {
	case store.Queued:
		return findRuns(ctx, c, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.status = 'queued' AND r.agent_type IN (SELECT value FROM json_each(?)) AND r.due_at <= ?
				AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)
				AND NOT EXISTS (SELECT 1 FROM runs f WHERE f.tenant = r.tenant AND f.session_id = r.session_id
					AND NOT f.settled AND f.status NOT IN ('queued', 'running'))
			ORDER BY r.created_at, r.tenant, r.session_id LIMIT ?`, list(due.AgentTypes), due.Now, due.ExecutorID, limit)
	case store.Unsettled:
		return findRuns(ctx, c, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE NOT r.settled AND r.status NOT IN ('queued', 'running') AND r.agent_type IN (SELECT value FROM json_each(?))
				AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)
				AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)
			ORDER BY r.created_at, r.tenant, r.session_id LIMIT ?`, list(due.AgentTypes), due.ExecutorID, limit)
	case store.Silent:
		return findRuns(ctx, c, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.executor_id <> '' AND r.status = 'running'
				AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id) LIMIT ?`, limit)
	case store.Lost:
		return findRuns(ctx, c, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.executor_id <> '' AND r.executor_id = ? AND r.claimed_at < ?
				AND r.run_id NOT IN (SELECT value FROM json_each(?)) LIMIT ?`, due.ExecutorID, due.ClaimedBefore, list(due.Held), limit)
	default:
		return nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}

func findRuns(ctx context.Context, c *connection, query string, args ...any) ([]candidate, error) {
	var found []candidate
	err := c.each(ctx, query, args, func(row scanner) error {
		var one candidate
		err := row.Scan(&one.key.Tenant, &one.key.SessionID, &one.runID)
		found = append(found, one)
		return err
	})
	return found, err
}
