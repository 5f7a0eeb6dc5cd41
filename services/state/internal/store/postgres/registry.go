package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Announce implements store.Registry.
func (s *Store) Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error {
	// Executors that announce the same agents at once lock them in one order.
	sorted := slices.SortedFunc(slices.Values(agents), func(a, b session.Agent) int { return cmp.Compare(a.Type, b.Type) })
	err := s.write(ctx, func(tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue(`INSERT INTO executors (executor_id, heard_at) VALUES ($1, $2)
			ON CONFLICT (executor_id) DO UPDATE SET heard_at = excluded.heard_at`, executorID, now)
		for _, a := range sorted {
			batch.Queue(`INSERT INTO agents (agent_type, description, announced_at) VALUES ($1, $2, $3)
				ON CONFLICT (agent_type) DO UPDATE SET description = excluded.description, announced_at = excluded.announced_at`,
				a.Type, a.Description, now)
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	return wrap(ctx, err, "announce executor %q", executorID)
}

// Beat implements store.Registry.
func (s *Store) Beat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	tag, err := s.pool.Exec(ctx, `UPDATE executors SET heard_at = $1 WHERE executor_id = $2`, now, executorID)
	return tag.RowsAffected() > 0, wrap(ctx, err, "heartbeat of executor %q", executorID)
}

// Forget implements store.Registry.
func (s *Store) Forget(ctx context.Context, heardBefore session.Millis) (int, error) {
	tag, err := s.pool.Exec(ctx, `DELETE FROM executors WHERE heard_at < $1`, heardBefore)
	return int(tag.RowsAffected()), wrap(ctx, err, "forget silent executors")
}

// Agents implements store.Registry.
func (s *Store) Agents(ctx context.Context) ([]session.Agent, error) {
	rows, err := s.pool.Query(ctx, `SELECT agent_type, description FROM agents ORDER BY agent_type`)
	if err != nil {
		return nil, wrap(ctx, err, "read agents")
	}
	var agents []session.Agent
	err = each(rows, func(row pgx.Row) error {
		var a session.Agent
		err := row.Scan(&a.Type, &a.Description)
		agents = append(agents, a)
		return err
	})
	return agents, wrap(ctx, err, "read agents")
}
