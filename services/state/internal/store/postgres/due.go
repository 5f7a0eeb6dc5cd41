package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// attempts is how often a transaction is tried when it conflicts with others. The
// fixed order of locks makes conflicts rare.
const attempts = 5

// UpdateDue implements store.Updater.
func (s *Store) UpdateDue(
	ctx context.Context,
	due store.Due,
	need session.Need,
	limit int,
	decide store.DecideDue,
) (done []store.Decided, err error) {
	find, args, err := dueStatement(due, limit)
	if err != nil {
		return nil, err
	}
	if find == findQueuedCapped { // one connection of this process waits for lockCaps, and the others do work
		select {
		case s.capped <- struct{}{}:
			defer func() { <-s.capped }()
		case <-ctx.Done():
			return nil, wrap(ctx, ctx.Err(), "wait for another claim")
		}
	}
	for range attempts {
		done, err = s.updateDue(ctx, find, args, need, decide)
		if !isConflict(err) {
			break
		}
	}
	return done, asUnavailable(err)
}

// updateDue is one attempt of UpdateDue: find and lock, read, write.
func (s *Store) updateDue(
	ctx context.Context,
	find *statement,
	args []any,
	need session.Need,
	decide store.DecideDue,
) (done []store.Decided, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	r := reader{composer: &s.composer}
	if find == findSilent || find == findLost || find == findOrphaned {
		// These polls mostly find nothing, and need a transaction only for what they find.
		r.queue(find, args, func(pgx.CollectableRow) error { return nil })
		if err := r.run(ctx, conn.Conn()); err != nil || !r.gotRow {
			conn.Release()
			return nil, wrap(ctx, err, "find due runs")
		}
	}
	r.exec(begin)
	if find == findQueuedCapped {
		r.exec(lockCaps)
	}
	r.queue(find, args, func(row pgx.CollectableRow) error {
		t := session.Target{Need: need}
		t.Need.Live = true
		to := []any{&t.Tenant, &t.SessionID, &t.Need.RunID}
		if find == findQueued || find == findQueuedCapped {
			to = append(to, &t.Need.Definition)
		}
		err := row.Scan(to...)
		r.sessions = append(r.sessions, loadedSession{Target: t, view: &session.View{}})
		return err
	})
	if err = r.run(ctx, conn.Conn()); err == nil && len(r.sessions) == 0 {
		go releaseEmpty(ctx, conn)
		return nil, nil
	}
	defer conn.Release()
	if err == nil {
		done, err = s.decideDue(ctx, conn.Conn(), &r, decide)
	}
	if err != nil {
		s.hot.drop(r.sessions)
		rollBack(ctx, conn.Conn())
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

// releaseEmpty ends a transaction without a result. No caller waits for it. Closing the
// pool does, since it waits for the connection.
func releaseEmpty(ctx context.Context, conn *pgxpool.Conn) {
	rollBack(ctx, conn.Conn())
	conn.Release()
}

// decideDue passes each run to decide, and writes all changes together. A run may have
// changed between the search and the lock of its session; decide gets it as locked.
func (s *Store) decideDue(ctx context.Context, conn *pgx.Conn, r *reader, decide store.DecideDue) ([]store.Decided, error) {
	r.silent()
	if err := r.loadViews(ctx, conn); err != nil {
		return nil, err
	}
	w := s.composer.newWriter()
	defer w.release()
	var done []store.Decided
	for i := range r.sessions {
		one := &r.sessions[i]
		change, err := decide(one.view)
		if err == nil && change != nil {
			err = check(change)
		}
		if err != nil {
			return nil, err
		}
		if change != nil {
			one.change = change
			w.change(one)
			done = append(done, store.Decided{View: one.view, Change: change})
		}
	}
	return done, r.commit(ctx, conn, w, s.hot)
}

// lockFree locks the session of a run r. It skips the run when another transaction
// holds the lock.
const lockFree = `CROSS JOIN LATERAL (SELECT 1 FROM sessions
	WHERE tenant = r.tenant AND session_id = r.session_id FOR UPDATE SKIP LOCKED) s`

// queuedRuns selects the queued runs of an agent.
const queuedRuns = `SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
	` + lockFree + `
	WHERE r.status = 'queued' AND r.agent_type = a.agent_type`

// Each statement finds due runs and locks their sessions. It skips locked sessions.
var (
	// findOrphaned reads no run when every agent is announced by an executor. It returns the
	// oldest runs overall. The sessions of others stay locked until the commit.
	findOrphaned = prepared(`SELECT d.tenant, d.session_id, d.run_id FROM (SELECT k.agent_type FROM agents k
			WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE k.agent_type = ANY (e.agents) OFFSET 0)) AS a
		CROSS JOIN LATERAL (
			(` + queuedRuns + ` AND r.stop <> '' AND r.due_at <= $1::bigint ORDER BY r.created_at LIMIT $3::bigint)
			UNION ALL
			(` + queuedRuns + ` AND r.stop = '' AND r.deadline_at > 0 AND r.deadline_at <= $1::bigint AND r.due_at <= $1::bigint
				ORDER BY r.deadline_at LIMIT $3::bigint)) d
		WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2::text)
		ORDER BY d.created_at LIMIT $3::bigint`)
	// findUnserved looks at all agents of $1 by their index.
	findUnserved = prepared(`SELECT d.tenant, d.session_id, d.run_id FROM (SELECT DISTINCT k.agent_type FROM unnest($1::text[]) k (agent_type)
			WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE k.agent_type = ANY (e.agents) OFFSET 0)) AS a
		CROSS JOIN LATERAL (
			(` + queuedRuns + ` AND r.due_at = 0 AND r.created_at <= $2::bigint AND r.claimed_at <= $2::bigint LIMIT $5::bigint)
			UNION ALL
			(` + queuedRuns + ` AND r.due_at > 0 AND r.due_at <= $3::bigint AND r.created_at <= $2::bigint
				AND r.claimed_at <= $2::bigint LIMIT $5::bigint)) d
		WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $4::text)
		LIMIT $5::bigint`)
	findSilent = prepared(`SELECT r.tenant, r.session_id, r.run_id FROM runs r
		` + lockFree + `
		WHERE r.executor_id > '' AND r.executor_id <> '' AND r.status = 'running'
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id OFFSET 0)
		LIMIT $1::bigint`)
	findLost = prepared(`SELECT r.tenant, r.session_id, r.run_id FROM runs r
		` + lockFree + `
		WHERE r.executor_id = $1::text AND r.executor_id <> '' AND r.status = 'running' AND r.claimed_at < $2::bigint
			AND r.run_id NOT IN (SELECT h FROM unnest($3::text[]) h)
		LIMIT $4::bigint`)
)

func dueStatement(due store.Due, limit int) (*statement, []any, error) {
	switch due := due.(type) {
	case store.Queued:
		return queuedStatement(due, limit)
	case store.Orphaned:
		return findOrphaned, []any{due.Now, due.ExecutorID, limit}, nil
	case store.Unserved:
		return findUnserved, []any{due.AgentTypes, due.QueuedBefore, due.Now, due.ExecutorID, limit}, nil
	case store.OwnerUnregistered:
		return findSilent, []any{limit}, nil
	case store.LostClaims:
		return findLost, []any{due.ExecutorID, due.ClaimedBefore, due.HeldRunIDs, limit}, nil
	default:
		return nil, nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}
