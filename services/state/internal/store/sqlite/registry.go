package sqlite

import (
	"context"
	"database/sql"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Announce implements store.Registry.
func (s *Store) Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error {
	err := write(ctx, s.writer, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO executors (executor_id, heard_at) VALUES (?, ?)
			ON CONFLICT (executor_id) DO UPDATE SET heard_at = excluded.heard_at`, executorID, now)
		if err != nil {
			return err
		}
		for _, a := range agents {
			_, err := tx.ExecContext(ctx, `INSERT INTO agents (agent_type, description, announced_at) VALUES (?, ?, ?)
				ON CONFLICT (agent_type) DO UPDATE SET description = excluded.description, announced_at = excluded.announced_at`,
				a.Type, a.Description, now)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(ctx, err, "announce executor %q", executorID)
}

// Beat implements store.Registry.
func (s *Store) Beat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	r, err := s.writer.ExecContext(ctx, `UPDATE executors SET heard_at = ? WHERE executor_id = ?`, now, executorID)
	if err != nil {
		return false, wrap(ctx, err, "heartbeat of executor %q", executorID)
	}
	n, err := r.RowsAffected()
	return n > 0, wrap(ctx, err, "heartbeat of executor %q", executorID)
}

// Forget implements store.Registry.
func (s *Store) Forget(ctx context.Context, heardBefore session.Millis) (int, error) {
	r, err := s.writer.ExecContext(ctx, `DELETE FROM executors WHERE heard_at < ?`, heardBefore)
	if err != nil {
		return 0, wrap(ctx, err, "forget silent executors")
	}
	n, err := r.RowsAffected()
	return int(n), wrap(ctx, err, "forget silent executors")
}

// Agents implements store.Registry.
func (s *Store) Agents(ctx context.Context) ([]session.Agent, error) {
	var agents []session.Agent
	rows, err := s.reader.QueryContext(ctx, `SELECT agent_type, description FROM agents ORDER BY agent_type`)
	err = collect(rows, err, func(row scanner) error {
		var a session.Agent
		err := row.Scan(&a.Type, &a.Description)
		agents = append(agents, a)
		return err
	})
	return agents, wrap(ctx, err, "read agents")
}
