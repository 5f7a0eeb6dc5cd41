package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The condition on all statuses is that of the index.
const selectPending = `SELECT count(*) FROM (SELECT 1 FROM runs
	WHERE status IN ('waiting', 'queued', 'running') AND status IN ('queued', 'waiting') AND tenant = ?1`

// PendingRuns implements store.Counts.
func (s *Store) PendingRuns(ctx context.Context, tenant, userID string, most int64) (n int64, err error) {
	query, args := selectPending+` LIMIT 0 + ?2)`, arguments(tenant, most)
	if userID != "" {
		query, args = selectPending+` AND user_id = ?3 LIMIT 0 + ?2)`, arguments(tenant, most, userID)
	}
	err = s.read(ctx, func(c *connection) error {
		_, err := c.queryRow(ctx, query, args, &n)
		return err
	})
	return n, wrap(ctx, err, "count the pending runs of tenant %q", tenant)
}

// QueuedRuns implements store.Counts.
func (s *Store) QueuedRuns(ctx context.Context, tenant string, most int64) (map[string]store.QueuedRuns, error) {
	queued := map[string]store.QueuedRuns{}
	err := s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT agent_type, count(*), min(since) FROM (SELECT COALESCE(NULLIF(stored_agent, ''), agent_type) AS agent_type, max(created_at, claimed_at) AS since FROM runs
			WHERE status IN ('waiting', 'queued', 'running') AND status = 'queued' AND tenant = ?1 LIMIT 0 + ?2) GROUP BY agent_type`,
			arguments(tenant, most), func(row scanner) error {
				var agentType string
				var q store.QueuedRuns
				err := row.Scan(&agentType, &q.Runs, &q.Oldest)
				queued[agentType] = q
				return err
			})
	})
	return queued, wrap(ctx, err, "count the queued runs of tenant %q", tenant)
}

const selectRunning = `SELECT count(*) FROM runs WHERE status IN ('waiting', 'queued', 'running') AND status = 'running' AND tenant = ?`

// RunningRuns implements store.Counts.
func (s *Store) RunningRuns(ctx context.Context, tenant, userID string) (n int64, err error) {
	query, args := selectRunning, arguments(tenant)
	if userID != "" {
		query, args = selectRunning+` AND user_id = ?`, arguments(tenant, userID)
	}
	err = s.read(ctx, func(c *connection) error {
		_, err := c.queryRow(ctx, query, args, &n)
		return err
	})
	return n, wrap(ctx, err, "count the running runs of tenant %q", tenant)
}

// StoredBytes implements store.Counts.
func (s *Store) StoredBytes(ctx context.Context, tenant string) (n int64, err error) {
	err = s.read(ctx, func(c *connection) error {
		_, err := c.queryRow(ctx, `SELECT
			(SELECT COALESCE(sum(size), 0) FROM messages WHERE tenant = ?1) + (SELECT COALESCE(sum(size), 0) FROM files WHERE tenant = ?1)
			+ (SELECT COALESCE(sum(store_bytes), 0) FROM sessions WHERE tenant = ?1)`,
			arguments(tenant), &n)
		return err
	})
	return n, wrap(ctx, err, "add up the bytes of tenant %q", tenant)
}

const selectBacklog = `WITH due AS (SELECT max(created_at, due_at) AS since FROM runs
			WHERE status IN ('waiting', 'queued', 'running') AND status = 'queued' AND due_at <= ?1 LIMIT 0 + ?2)
		SELECT (SELECT count(*) FROM due), (SELECT COALESCE(min(since), 0) FROM due),
			count(*) FILTER (WHERE status = 'suspended_client_tool'), COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_client_tool'), 0),
			count(*) FILTER (WHERE status = 'suspended_awaiting_children'),
			COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_awaiting_children'), 0),
			count(*) FILTER (WHERE status = 'suspended_step_partial'), COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_step_partial'), 0)
		FROM (SELECT status, updated_at FROM sessions
		WHERE expires_at > 0 AND expires_at > ?1 AND status NOT IN ('completed', 'failed') ORDER BY expires_at LIMIT 0 + ?2) s`

// Backlog implements store.Counts.
func (s *Store) Backlog(ctx context.Context, now session.Millis, most int64) (store.Backlog, error) {
	var b store.Backlog
	var client, children, partial store.SuspendedSessions
	columns := []any{
		&b.Queued, &b.OldestQueued, &client.Sessions, &client.Oldest, &children.Sessions, &children.Oldest, &partial.Sessions, &partial.Oldest,
	}
	err := s.read(ctx, func(c *connection) error {
		_, err := c.queryRow(ctx, selectBacklog, arguments(now, most), columns...)
		return err
	})
	b.Suspended = map[session.Status]store.SuspendedSessions{
		session.SuspendedClientTool: client, session.SuspendedAwaitingChildren: children, session.SuspendedStepPartial: partial,
	}
	return b, wrap(ctx, err, "read the backlog")
}
