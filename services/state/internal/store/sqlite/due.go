package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UpdateDue implements store.Updater. It looks with a reader first, so that
// those who ask again and again for work that is not there do not stand in the
// way of the writer.
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.Decide) ([]store.Decided, error) {
	found, err := candidates(ctx, s.reader, due, 1)
	if err != nil || len(found) == 0 {
		return nil, wrap(ctx, err, "find due runs")
	}
	var done []store.Decided
	err = write(ctx, s.writer, func(tx *sql.Tx) error {
		found, err := candidates(ctx, tx, due, limit)
		if err != nil {
			return err
		}
		for _, c := range found {
			d, err := decideDue(ctx, tx, c, need, decide)
			if err != nil {
				return err
			}
			if d.Change != nil {
				done = append(done, d)
			}
		}
		return nil
	})
	if err != nil {
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

func decideDue(ctx context.Context, tx *sql.Tx, c candidate, need session.Need, decide store.Decide) (store.Decided, error) {
	need.RunID, need.Open = c.runID, true
	v, err := view(ctx, tx, c.key, need)
	if err != nil {
		return store.Decided{}, err
	}
	err = tx.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = ?)`, v.Run.ExecutorID).Scan(&v.HolderSilent)
	if err != nil {
		return store.Decided{}, err
	}
	change, err := decide(v)
	if err != nil || change == nil {
		return store.Decided{}, err
	}
	return store.Decided{View: v, Change: change}, apply(ctx, tx, c.key, change)
}

type candidate struct {
	key   session.Key
	runID string
}

// candidates returns the runs that are due, those with an order in it.
func candidates(ctx context.Context, q querier, due store.Due, limit int) ([]candidate, error) {
	switch due := due.(type) {
	case store.Queued:
		return findRuns(ctx, q, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.status = 'queued' AND r.agent_type IN (SELECT value FROM json_each(?))
				AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)
				AND NOT EXISTS (SELECT 1 FROM runs f WHERE f.tenant = r.tenant AND f.session_id = r.session_id
					AND NOT f.settled AND f.status NOT IN ('queued', 'running'))
			ORDER BY r.created_at, r.tenant, r.session_id LIMIT ?`, list(due.AgentTypes), due.ExecutorID, limit)
	case store.Unsettled:
		return findRuns(ctx, q, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE NOT r.settled AND r.status NOT IN ('queued', 'running') AND r.agent_type IN (SELECT value FROM json_each(?))
				AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)
				AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)
			ORDER BY r.created_at, r.tenant, r.session_id LIMIT ?`, list(due.AgentTypes), due.ExecutorID, limit)
	case store.Silent:
		return findRuns(ctx, q, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.executor_id <> '' AND r.status = 'running'
				AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id) LIMIT ?`, limit)
	case store.Lost:
		return findRuns(ctx, q, `SELECT r.tenant, r.session_id, r.run_id FROM runs r
			WHERE r.executor_id <> '' AND r.executor_id = ? AND r.claimed_at < ?
				AND r.run_id NOT IN (SELECT value FROM json_each(?)) LIMIT ?`, due.ExecutorID, due.ClaimedBefore, list(due.Held), limit)
	default:
		return nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}

func findRuns(ctx context.Context, q querier, query string, args ...any) ([]candidate, error) {
	var found []candidate
	rows, err := q.QueryContext(ctx, query, args...)
	err = collect(rows, err, func(row scanner) error {
		var c candidate
		err := row.Scan(&c.key.Tenant, &c.key.SessionID, &c.runID)
		found = append(found, c)
		return err
	})
	return found, err
}

// list passes strings as one argument, for json_each.
func list(items []string) string {
	text, err := json.Marshal(items)
	if err != nil || items == nil {
		return "[]" // strings always encode
	}
	return string(text)
}
