package postgres

import (
	"context"
	"encoding/json"
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
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) (done []store.Decided, err error) {
	find, args, err := dueStatement(due, limit)
	if err != nil {
		return nil, err
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
func (s *Store) updateDue(ctx context.Context, find *statement, args []any, need session.Need, decide store.DecideDue) (done []store.Decided, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	var r reader
	r.exec(begin)
	r.queue(find, args, func(row pgx.CollectableRow) error {
		t := session.Target{Need: need}
		t.Need.Live = true
		err := row.Scan(&t.Tenant, &t.SessionID, &t.Need.RunID)
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
	w := newWriter()
	defer w.release()
	var done []store.Decided
	for i := range r.sessions {
		one := &r.sessions[i]
		change, err := decide(one.view)
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
const lockFree = `CROSS JOIN LATERAL (SELECT 1 FROM sessions WHERE tenant = r.tenant AND session_id = r.session_id FOR UPDATE SKIP LOCKED) s`

// spare is how many candidates a search for queued runs reads for each run that it
// returns, because other transactions may hold the locks of some.
const spare = `4`

// tenantsWhere selects the tenants with queued runs of an agent, in their order, by one
// index probe each, and at most $3.
func tenantsWhere(condition string) string {
	next := `SELECT r.tenant FROM runs r WHERE r.status = 'queued' AND r.due_at = 0 AND r.agent_type = a.agent_type AND ` + condition
	const first = ` ORDER BY r.tenant LIMIT 1`
	return `(WITH RECURSIVE ring AS ((` + next + first + `)
		UNION ALL SELECT (` + next + ` AND r.tenant > ring.tenant` + first + `) FROM ring WHERE ring.tenant IS NOT NULL)
		SELECT tenant FROM ring WHERE tenant IS NOT NULL LIMIT $3::bigint)`
}

// queuedRuns selects the queued runs of an agent.
const queuedRuns = `SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
	` + lockFree + `
	WHERE r.status = 'queued' AND r.agent_type = a.agent_type`

// Each statement finds due runs and locks their sessions. It skips locked sessions.
var (
	// findQueued locks only the runs that it returns. What is left of a turn comes first.
	findQueued = prepared(`SELECT c.tenant, c.session_id, c.run_id FROM (
			SELECT q.*, CASE WHEN q.place < 0 THEN -1 ELSE q.place / COALESCE(($6::jsonb ->> q.tenant)::bigint, 1) END AS turn FROM (
				SELECT q.*, row_number() OVER (PARTITION BY q.tenant ORDER BY q.created_at) - 1 - CASE q.tenant WHEN $5::text THEN $7::bigint ELSE 0 END AS place
				FROM (SELECT DISTINCT unnest($1::text[])) AS a (agent_type)
				CROSS JOIN LATERAL (
					SELECT o.* FROM (SELECT $5::text AS tenant UNION ALL ` + tenantsWhere("r.tenant > $5::text") + ` UNION ALL ` + tenantsWhere("r.tenant < $5::text") + `) t
					CROSS JOIN LATERAL (SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
						WHERE r.status = 'queued' AND r.due_at = 0 AND r.agent_type = a.agent_type AND r.tenant = t.tenant
						ORDER BY r.created_at LIMIT ` + spare + ` * $3::bigint) o
					UNION ALL
					(SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
						WHERE r.status = 'queued' AND r.due_at > 0 AND r.due_at <= $4::bigint AND r.agent_type = a.agent_type
						ORDER BY r.due_at, r.created_at LIMIT ` + spare + ` * $3::bigint)) q
				WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2::text)) q
			ORDER BY turn, q.tenant <= $5::text, q.tenant, q.created_at) c
		CROSS JOIN LATERAL (SELECT 1 FROM sessions WHERE tenant = c.tenant AND session_id = c.session_id FOR UPDATE SKIP LOCKED) s
		LIMIT $3::bigint`)
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
		weights, err := json.Marshal(due.Weights)
		return findQueued, []any{due.AgentTypes, due.ExecutorID, limit, due.Now, due.After, string(weights), due.Left}, err
	case store.Orphaned:
		return findOrphaned, []any{due.Now, due.ExecutorID, limit}, nil
	case store.OwnerUnregistered:
		return findSilent, []any{limit}, nil
	case store.LostClaims:
		return findLost, []any{due.ExecutorID, due.ClaimedBefore, due.HeldRunIDs, limit}, nil
	default:
		return nil, nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}
