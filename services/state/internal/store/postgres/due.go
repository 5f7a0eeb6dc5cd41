package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// attempts is how often runs that are due are tried when other transactions
// are in the way. The one order of locks leaves little room for that.
const attempts = 5

// UpdateDue implements store.Updater.
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) (done []store.Decided, err error) {
	find, args, err := search(due, limit)
	if err != nil {
		return nil, err
	}
	for range attempts {
		done, err = s.updateDue(ctx, find, args, need, decide)
		if !isConflict(err) {
			break
		}
	}
	return done, lasting(err)
}

// updateDue is one attempt: find and lock, read, write.
func (s *Store) updateDue(ctx context.Context, find *statement, args []any, need session.Need, decide store.DecideDue) (done []store.Decided, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, wrap(ctx, err, "connect")
	}
	var r reader
	r.exec(begin)
	r.queue(find, args, func(row pgx.CollectableRow) error {
		t := session.Target{Need: need}
		t.Need.Open = true
		err := row.Scan(&t.Tenant, &t.SessionID, &t.Need.RunID)
		r.all = append(r.all, shown{Target: t, view: &session.View{}})
		return err
	})
	if err = r.run(ctx, conn.Conn()); err == nil && len(r.all) == 0 {
		go leave(ctx, conn)
		return nil, nil
	}
	defer conn.Release()
	if err == nil {
		done, err = s.decideDue(ctx, conn.Conn(), &r, decide)
	}
	if err != nil {
		s.hot.drop(r.all)
		abandon(ctx, conn.Conn())
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

// leave ends a transaction that has found nothing, which no caller waits for.
// It is over before the pool is: closing that waits for the connection.
func leave(ctx context.Context, conn *pgxpool.Conn) {
	abandon(ctx, conn.Conn())
	conn.Release()
}

// decideDue shows each run to decide as it is now that its session is locked,
// which may be other than when it was found, and writes all changes together.
func (s *Store) decideDue(ctx context.Context, conn *pgx.Conn, r *reader, decide store.DecideDue) ([]store.Decided, error) {
	r.silent()
	if err := r.views(ctx, conn); err != nil {
		return nil, err
	}
	w := newWriter()
	defer w.release()
	var done []store.Decided
	for i := range r.all {
		one := &r.all[i]
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
	return done, r.end(ctx, conn, w, s.hot)
}

// free locks the session of a run, and passes the run over when somebody else
// has locked it.
const free = `CROSS JOIN LATERAL (SELECT 1 FROM sessions WHERE tenant = r.tenant AND session_id = r.session_id FOR UPDATE SKIP LOCKED) s`

// queued are the runs of an agent that wait for an executor. Those that wait for
// a time as well stand behind the others in the index, and are in nobody's way.
const queued = `SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r
	` + free + `
	WHERE r.status = 'queued' AND r.agent_type = a.agent_type`

// These find runs that are due and lock their sessions, but for those that are
// locked. For each agent the oldest are found by index, and the oldest of those
// taken; sessions that were locked in vain are free again after the commit, and
// passed over until then.
var (
	findQueued = prepared(`SELECT d.tenant, d.session_id, d.run_id FROM (SELECT DISTINCT unnest($1::text[])) AS a (agent_type)
		CROSS JOIN LATERAL (
			(` + queued + ` AND r.due_at = 0 ORDER BY r.created_at LIMIT $3::bigint)
			UNION ALL
			(` + queued + ` AND r.due_at > 0 AND r.due_at <= $4::bigint ORDER BY r.due_at, r.created_at LIMIT $3::bigint)) d
		WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2::text)
		ORDER BY d.created_at LIMIT $3::bigint`)
	// findOrphaned looks at no run where every agent is announced by somebody.
	findOrphaned = prepared(`SELECT d.tenant, d.session_id, d.run_id FROM (SELECT k.agent_type FROM agents k
			WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE k.agent_type = ANY (e.agents) OFFSET 0)) AS a
		CROSS JOIN LATERAL (
			(` + queued + ` AND r.stop <> '' AND r.due_at <= $1::bigint ORDER BY r.created_at LIMIT $3::bigint)
			UNION ALL
			(` + queued + ` AND r.stop = '' AND r.deadline_at > 0 AND r.deadline_at <= $1::bigint AND r.due_at <= $1::bigint
				ORDER BY r.deadline_at LIMIT $3::bigint)) d
		WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2::text)
		ORDER BY d.created_at LIMIT $3::bigint`)
	findSilent = prepared(`SELECT r.tenant, r.session_id, r.run_id FROM runs r
		` + free + `
		WHERE r.executor_id > '' AND r.executor_id <> '' AND r.status = 'running'
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id OFFSET 0)
		LIMIT $1::bigint`)
	findLost = prepared(`SELECT r.tenant, r.session_id, r.run_id FROM runs r
		` + free + `
		WHERE r.executor_id = $1::text AND r.executor_id <> '' AND r.status = 'running' AND r.claimed_at < $2::bigint
			AND r.run_id NOT IN (SELECT h FROM unnest($3::text[]) h)
		LIMIT $4::bigint`)
)

func search(due store.Due, limit int) (*statement, []any, error) {
	switch due := due.(type) {
	case store.Queued:
		return findQueued, []any{due.AgentTypes, due.ExecutorID, limit, due.Now}, nil
	case store.Orphaned:
		return findOrphaned, []any{due.Now, due.ExecutorID, limit}, nil
	case store.Silent:
		return findSilent, []any{limit}, nil
	case store.Lost:
		return findLost, []any{due.ExecutorID, due.ClaimedBefore, due.Held, limit}, nil
	default:
		return nil, nil, fmt.Errorf("unknown kind of due work %T", due)
	}
}
