package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UpdateDue implements store.Updater.
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.Decide) ([]store.Decided, error) {
	var done []store.Decided
	err := s.write(ctx, func(tx pgx.Tx) error {
		done = nil
		found, err := candidates(ctx, tx, due, limit)
		if err != nil || len(found) == 0 {
			return err
		}
		done, err = decideDue(ctx, tx, found, need, decide)
		return err
	})
	if err != nil {
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

// decideDue shows each run to decide as it is now that its session is locked,
// which may be other than when it was found, and writes all changes together.
func decideDue(ctx context.Context, tx pgx.Tx, found []candidate, need session.Need, decide store.Decide) ([]store.Decided, error) {
	var r reader
	views := make([]*session.View, len(found))
	for i, c := range found {
		need.RunID, need.Open = c.runID, true
		v := r.view(c.key, need)
		r.row(c.key, `SELECT NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id) FROM runs r
			WHERE r.tenant = $1 AND r.session_id = $2 AND r.run_id = $3`,
			func(row pgx.Row) error { return row.Scan(&v.HolderSilent) }, c.runID)
		views[i] = v
	}
	if err := tx.SendBatch(ctx, &r.batch).Close(); err != nil {
		return nil, err
	}
	var w writer
	var done []store.Decided
	for i, v := range views {
		change, err := decide(v)
		if err != nil {
			return nil, err
		}
		if change != nil {
			w.apply(found[i].key, change)
			done = append(done, store.Decided{View: v, Change: change})
		}
	}
	return done, w.send(ctx, tx)
}

type candidate struct {
	key   session.Key
	runID string
}

// candidates finds runs that are due and locks their sessions, but for those
// that are locked. For each agent the oldest are found by index, and the oldest
// of those taken; sessions that were locked in vain are free again after the
// commit, and passed over until then.
func candidates(ctx context.Context, tx pgx.Tx, due store.Due, limit int) ([]candidate, error) {
	switch due := due.(type) {
	case store.Queued:
		return findRuns(ctx, tx, `SELECT d.tenant, d.session_id, d.run_id FROM (SELECT DISTINCT unnest($1::text[])) AS a (agent_type)
			CROSS JOIN LATERAL (
				SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
				JOIN sessions s ON s.tenant = r.tenant AND s.session_id = r.session_id
				WHERE r.status = 'queued' AND r.agent_type = a.agent_type
					AND NOT EXISTS (SELECT 1 FROM runs f WHERE f.tenant = r.tenant AND f.session_id = r.session_id
						AND NOT f.settled AND f.status NOT IN ('queued', 'running'))
				ORDER BY r.created_at LIMIT $3 FOR UPDATE OF s SKIP LOCKED) d
			WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2)
			ORDER BY d.created_at LIMIT $3`, due.AgentTypes, due.ExecutorID, limit)
	case store.Unsettled:
		return findRuns(ctx, tx, `SELECT d.tenant, d.session_id, d.run_id FROM (SELECT DISTINCT unnest($1::text[])) AS a (agent_type)
			CROSS JOIN LATERAL (
				SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
				JOIN sessions s ON s.tenant = r.tenant AND s.session_id = r.session_id
				WHERE NOT r.settled AND r.status NOT IN ('queued', 'running') AND r.agent_type = a.agent_type
					AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)
				ORDER BY r.created_at LIMIT $3 FOR UPDATE OF s SKIP LOCKED) d
			WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2)
			ORDER BY d.created_at LIMIT $3`, due.AgentTypes, due.ExecutorID, limit)
	case store.Silent:
		return findRuns(ctx, tx, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			JOIN sessions s ON s.tenant = r.tenant AND s.session_id = r.session_id
			WHERE r.executor_id <> '' AND r.status = 'running'
				AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)
			LIMIT $1 FOR UPDATE OF s SKIP LOCKED`, limit)
	case store.Lost:
		return findRuns(ctx, tx, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			JOIN sessions s ON s.tenant = r.tenant AND s.session_id = r.session_id
			WHERE r.executor_id = $1 AND r.executor_id <> '' AND r.claimed_at < $2 AND r.run_id <> ALL ($3::text[])
			LIMIT $4 FOR UPDATE OF s SKIP LOCKED`, due.ExecutorID, due.ClaimedBefore, list(due.Held), limit)
	default:
		return nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}

func findRuns(ctx context.Context, tx pgx.Tx, query string, args ...any) ([]candidate, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	var found []candidate
	err = each(rows, func(row pgx.Row) error {
		var c candidate
		err := row.Scan(&c.key.Tenant, &c.key.SessionID, &c.runID)
		found = append(found, c)
		return err
	})
	return found, err
}

// list makes no list the empty list: <> ALL (NULL) is never true.
func list(items []string) []string {
	if items == nil {
		return []string{}
	}
	return items
}
