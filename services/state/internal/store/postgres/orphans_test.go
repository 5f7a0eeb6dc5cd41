package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// TestOrphansAreFoundAtOnceHoweverManyRunsWait has the backlog of an agent without
// executors. The searches of all executors would read it each time.
func TestOrphansAreFoundAtOnceHoweverManyRunsWait(t *testing.T) {
	t.Parallel()
	const backlog, most = 3000, 40
	s := openWithOneConnection(t)
	w := newWorker(t, s)
	keys := keysOf("t", 2)
	w.begin(keys...)
	for _, change := range []string{
		`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, step_count, output,
			failure, completion_reason, attempt, epoch, executor_id, claimed_at, finish_step, finish_version, traceparent, tracestate,
			created_at, started_at, completed_at, deadline_at)
			SELECT 't', 'waits-' || i, 'r', 'support', 1, 'queued', '', '', '', 0, '', '', '', 0, 0, '', 0, 0, 0, '', '', i, 0, 0, $1::bigint + 1 + i
			FROM generate_series(1, $2) i`,
		`UPDATE runs SET status = 'queued', executor_id = '', stop = '{"kind":"abort","reason":"","at":1}' WHERE session_id = 'session-0000' AND $1::bigint > 0 AND $2 > 0`,
		`UPDATE runs SET status = 'queued', executor_id = '', deadline_at = $1::bigint WHERE session_id = 'session-0001' AND $2 > 0`,
	} {
		if _, err := s.pool.Exec(t.Context(), change, pgx.QueryExecModeSimpleProtocol, int64(w.now), backlog); err != nil {
			t.Fatalf("%s: %v", change, err)
		}
	}
	const read = `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = 'runs'`
	look := func(when string, want int) {
		t.Helper()
		before, found := statistic(t, s, read), 0
		due := store.Orphaned{ExecutorID: executor, Now: w.now}
		_, err := s.UpdateDue(t.Context(), due, session.Need{}, 16, func(*session.View) (*session.Change, error) { found++; return nil, nil })
		w.must(err)
		if rows := statistic(t, s, read) - before; found != want || rows > most || want == 0 && rows > 0 {
			t.Errorf("%s: found %d runs by %d index entries, want %d by at most %d", when, found, rows, want, most)
		}
	}
	look("the agent is announced", 0)
	w.must(registry{s}.Announce(t.Context(), executor, []session.Agent{{Type: "sales"}}, w.now))
	look("the agent is gone", 2)
	if _, err := s.pool.Exec(t.Context(), `ANALYZE`); err != nil {
		t.Fatal(err)
	}
	look("after ANALYZE", 2)
}
