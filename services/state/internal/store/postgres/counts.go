package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var (
	countPending = prepared(`SELECT count(*) FROM (
			(SELECT 1 FROM runs WHERE status = 'queued' AND tenant = $1::text LIMIT $2::bigint)
			UNION ALL (SELECT 1 FROM runs WHERE status = 'waiting' AND tenant = $1::text LIMIT $2::bigint) LIMIT $2::bigint) r`)
	countPendingOfUser = prepared(`SELECT count(*) FROM (
			(SELECT 1 FROM runs WHERE status = 'queued' AND tenant = $1::text AND user_id = $3::text LIMIT $2::bigint)
			UNION ALL (SELECT 1 FROM runs WHERE status = 'waiting' AND tenant = $1::text
				AND user_id = $3::text LIMIT $2::bigint) LIMIT $2::bigint) r`)
	groupQueued = prepared(`SELECT agent_type, count(*), min(since) FROM (SELECT COALESCE(NULLIF(stored_agent, ''), agent_type) AS agent_type, GREATEST(created_at, claimed_at) AS since
		FROM runs
			WHERE status IN ('waiting', 'queued', 'running') AND status = 'queued' AND tenant = $1::text LIMIT $2::bigint) r GROUP BY agent_type`)
	countRunning       = prepared(`SELECT count(*) FROM runs WHERE status = 'running' AND tenant = $1::text`)
	countRunningOfUser = prepared(`SELECT count(*) FROM runs WHERE status = 'running' AND tenant = $1::text AND user_id = $2::text`)
	sumBytes           = prepared(`SELECT ((SELECT COALESCE(sum(size), 0) FROM messages WHERE tenant = $1::text)
		+ (SELECT COALESCE(sum(size), 0) FROM files WHERE tenant = $1::text)
		+ (SELECT COALESCE(sum(store_bytes), 0) FROM sessions WHERE tenant = $1::text))::bigint`)
	// The condition on all statuses is that of the index.
	selectBacklog = prepared(`WITH due AS (SELECT GREATEST(created_at, due_at) AS since FROM runs
			WHERE status IN ('waiting', 'queued', 'running') AND status = 'queued' AND due_at <= $1::bigint LIMIT $2::bigint)
		SELECT (SELECT count(*) FROM due), (SELECT COALESCE(min(since), 0) FROM due),
			count(*) FILTER (WHERE status = 'suspended_client_tool'), COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_client_tool'), 0),
			count(*) FILTER (WHERE status = 'suspended_awaiting_children'), COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_awaiting_children'), 0),
			count(*) FILTER (WHERE status = 'suspended_step_partial'), COALESCE(min(updated_at) FILTER (WHERE status = 'suspended_step_partial'), 0)
		FROM (SELECT status, updated_at FROM sessions WHERE expires_at > 0 AND expires_at > $1::bigint
			AND status NOT IN ('completed', 'failed') ORDER BY expires_at LIMIT $2::bigint) s`)
)

// PendingRuns implements store.Counts.
func (s *Store) PendingRuns(ctx context.Context, tenant, userID string, most int64) (n int64, err error) {
	if userID == "" {
		err = s.query(ctx, countPending, scanInto(&n), tenant, most)
	} else {
		err = s.query(ctx, countPendingOfUser, scanInto(&n), tenant, most, userID)
	}
	return n, wrap(ctx, err, "count the pending runs of tenant %q", tenant)
}

// QueuedRuns implements store.Counts.
func (s *Store) QueuedRuns(ctx context.Context, tenant string, most int64) (map[string]store.QueuedRuns, error) {
	queued := map[string]store.QueuedRuns{}
	err := s.query(ctx, groupQueued, func(row pgx.CollectableRow) error {
		var agentType string
		var q store.QueuedRuns
		err := row.Scan(&agentType, &q.Runs, &q.Oldest)
		queued[agentType] = q
		return err
	}, tenant, most)
	return queued, wrap(ctx, err, "count the queued runs of tenant %q", tenant)
}

// RunningRuns implements store.Counts.
func (s *Store) RunningRuns(ctx context.Context, tenant, userID string) (n int64, err error) {
	if userID == "" {
		err = s.query(ctx, countRunning, scanInto(&n), tenant)
	} else {
		err = s.query(ctx, countRunningOfUser, scanInto(&n), tenant, userID)
	}
	return n, wrap(ctx, err, "count the running runs of tenant %q", tenant)
}

// StoredBytes implements store.Counts.
func (s *Store) StoredBytes(ctx context.Context, tenant string) (n int64, err error) {
	err = s.query(ctx, sumBytes, scanInto(&n), tenant)
	return n, wrap(ctx, err, "add up the bytes of tenant %q", tenant)
}

// Backlog implements store.Counts.
func (s *Store) Backlog(ctx context.Context, now session.Millis, most int64) (store.Backlog, error) {
	var b store.Backlog
	var client, children, partial store.SuspendedSessions
	columns := []any{
		&b.Queued, &b.OldestQueued, &client.Sessions, &client.Oldest, &children.Sessions, &children.Oldest, &partial.Sessions, &partial.Oldest,
	}
	err := s.query(ctx, selectBacklog, scanInto(columns...), int64(now), most)
	b.Suspended = map[session.Status]store.SuspendedSessions{
		session.SuspendedClientTool: client, session.SuspendedAwaitingChildren: children, session.SuspendedStepPartial: partial,
	}
	return b, wrap(ctx, err, "read the backlog")
}
