package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The tables that no query may read completely.
var largeTables = []string{
	"sessions", "states", "runs", "messages", "plans", "results", "checkpoints", "usage_entries", "calls", "sub_sessions", "session_facets",
	"memories", "memory_words", "governors", "governor_leases",
}

// dueIndexes contain only due work, and so may be read completely.
var dueIndexes = []string{"runs_held", "runs_due", "runs_due_delayed"}

type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Cond     string     `json:"Index Cond"`
	Rows     float64    `json:"Plan Rows"`
	Children []planNode `json:"Plans"`
}

// checkPlans fails the test for every prepared statement that may read a whole table.
// Every test checks its statements at its end. Its tables are new, and so have no
// statistics.
func checkPlans(t testing.TB, s *Store) {
	t.Helper()
	ctx := context.Background() // the context of the test has ended
	for _, conn := range s.pool.AcquireAllIdle(ctx) {
		for text, plan := range plansOf(ctx, t, conn.Conn()) {
			for _, problem := range plan.problems() {
				t.Errorf("%s, by the plan of\n%s", problem, text)
			}
		}
		conn.Release()
	}
}

// plansOf returns the plans of the prepared statements of a connection.
func plansOf(ctx context.Context, t testing.TB, conn *pgx.Conn) map[string]planNode {
	t.Helper()
	rows, err := conn.Query(ctx, `SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements WHERE name LIKE 'holdfast%'
		AND statement !~ '^(BEGIN|COMMIT|ROLLBACK)'`)
	if err != nil {
		t.Fatal(err)
	}
	type prepared struct {
		Name, Text string
		Params     int
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
	if err != nil {
		t.Fatal(err)
	}
	plans := map[string]planNode{}
	for _, p := range all {
		execute := p.Name
		if p.Params > 0 {
			execute += "(" + strings.TrimSuffix(strings.Repeat("NULL,", p.Params), ",") + ")"
		}
		var text []byte
		if err := conn.QueryRow(ctx, `EXPLAIN (FORMAT JSON) EXECUTE `+execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
			t.Fatalf("%s: %v", p.Text, err)
		}
		var explained []struct{ Plan planNode }
		if err := json.Unmarshal(text, &explained); err != nil {
			t.Fatal(err)
		}
		plans[p.Text] = explained[0].Plan
	}
	return plans
}

func (n planNode) problems() (list []string) {
	switch {
	case n.Type == "Seq Scan" && slices.Contains(largeTables, n.Relation):
		list = append(list, "a scan of all "+n.Relation)
	case strings.Contains(n.Type, "Index") && n.Cond == "" && n.Rows > 1 && !slices.Contains(dueIndexes, n.Index) && (n.Relation == "" || slices.Contains(largeTables, n.Relation)):
		list = append(list, "a walk through all of the index "+n.Index)
	}
	for _, child := range n.Children {
		list = append(list, child.problems()...)
	}
	return list
}

// openWithOneConnection opens a store with one connection, whose statistics are complete.
func openWithOneConnection(t *testing.T) *Store {
	t.Helper()
	one := commits
	one.Lanes = 1
	s, err := Open(t.Context(), withoutIdleTimeout(t, pgtest.URL(t)), 1, one, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkPlans(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// statistic queries the statistics of the database, after the connection of
// openWithOneConnection has flushed its own.
func statistic(t *testing.T, s *Store, query string) int {
	t.Helper()
	ask[any](t, s, `SELECT pg_stat_force_next_flush()`)
	return ask[int](t, s, query)
}

// addHistory adds n committed steps to a session, each of its own run.
func addHistory(t *testing.T, s *Store, key session.Key, n int) {
	t.Helper()
	for _, insert := range []string{
		`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, step_count, output,
			failure, completion_reason, attempt, epoch, executor_id, claimed_at, finish_step, finish_version, traceparent, tracestate,
			created_at, started_at, completed_at, start_message_count)
			SELECT $1, $2, 'old-' || i, 'support', i, 'completed', 'old-' || i, '', 'ui-' || i, 1, '', '', '', 1, 1, '', 0, i, i, '', '', 0, 0, 0, i - 1
			FROM generate_series(1, $3) i`,
		`INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body)
			SELECT $1, $2, i - 1, 'old-' || i, 'user', 'old-' || i, CASE WHEN i % 2 = 0 THEN i ELSE 0 END, 0, 1, 'x' FROM generate_series(1, $3) i`,
		`INSERT INTO states (tenant, session_id, version, base_version, state) SELECT $1, $2, i, i, '{"seen":[]}' FROM generate_series(2, $3) i`,
		`INSERT INTO checkpoints (tenant, session_id, step, checkpoint_id, run_id, epoch, version, message_count, status, state_version,
			state_base, warnings, created_at)
			SELECT $1, $2, i, 'cpv1-' || $2 || '-s' || i || '-t1-abcdef', 'old-' || i, 1, i, i, 'active', i, i, '', 0 FROM generate_series(1, $3) i`,
		`INSERT INTO calls (tenant, root_id, call_id, session_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash, created_at,
			deadline_at, answer, revision, response, answered_at, consumed_at, late, late_at, told)
			SELECT $1, $2, 'old-' || i, $2, 'old-' || i, i, '', '', 'client_tool', '', '', '', 0, 0, 'client', 1, '', 1, 1, '', 0, false FROM generate_series(1, $3) i`,
		`UPDATE sessions SET turn = $3, step_count = $3, message_count = $3, version = $3, state_version = $3, state_base = $3, current_run_id = 'old-' || $3,
			status = 'completed' WHERE tenant = $1 AND session_id = $2`,
	} {
		if _, err := s.pool.Exec(t.Context(), insert, pgx.QueryExecModeSimpleProtocol, key.Tenant, key.SessionID, n); err != nil {
			t.Fatalf("%s: %v", insert, err)
		}
	}
}

func TestACommandReadsAFewRowsHoweverLongTheSessionIs(t *testing.T) {
	t.Parallel()
	const old, most = 2000, 40
	s := openWithOneConnection(t)
	w := newWorker(t, s)
	keys := keysOf("t", 3)
	for _, key := range keys {
		w.must(s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(key)}, nil
		}))
	}
	addHistory(t, s, keys[1], old)
	const read = `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes`
	before := statistic(t, s, read)
	commands := 0
	count := func(what string, n int) {
		t.Helper()
		commands += n
		now := statistic(t, s, read)
		if rows := now - before; rows > most*n {
			t.Errorf("%s read %d index entries, want at most %d", what, rows, most*n)
		}
		before = statistic(t, s, read)
	}
	w.must(w.run(t.Context(), keys[1], session.Need{AnswerID: fmt.Sprint("ui-", old), FailedStep: true}, func(v *session.View) (*session.Change, error) {
		if a, f := v.Answer, v.Failed; a == nil || a.Run.Turn != old || !a.QuestionInPlace || len(a.Questions) != session.MaxQuestions || f == nil || f.Checkpoint == nil || f.Checkpoint.Step != old || f.State == "" || len(f.Messages) != 1 {
			t.Errorf("got the answer %+v, the failed step %+v", a, f)
		}
		return nil, nil
	}))
	count("a command that wants the newest answer and the failed step", 3)
	refs := w.begin(keys[1])
	count("a start and a claim", 2)
	for step := range int32(5) {
		c := w.stepOf(refs[0], old+step+1)
		c.Ops = []session.StateOp{{Key: "seen", Kind: session.OpAppend, Value: `[1]`}}
		w.must(w.commit(t.Context(), c))
	}
	count("steps", 5)
	w.must(w.run(t.Context(), keys[1], session.Need{
		RunID: "old-7", RequestKey: "old-8", AgentType: agent, MessageIDs: []string{"old-1", "old-2"}, CallIDs: []string{"old-3"},
		CheckpointID: session.CheckpointID(keys[1].SessionID, 1999, 1, "abcdef"), Current: true, Live: true, State: true, Journal: true, Calls: true, Children: true,
		Tail: session.Tail{MaxMessages: 3, MaxBytes: 1 << 20}, Waiting: true, OwnAgent: true, Undo: true,
	}, func(v *session.View) (*session.Change, error) {
		if v.Run == nil || v.KeyedRun == nil || len(v.TakenIDs) != 2 || len(v.NamedCalls) != 1 || v.Checkpoint == nil || v.Current == nil || v.Live == nil || len(v.Tail) != 3 {
			t.Errorf("got %+v", v)
		}
		return nil, nil
	}))
	count("a command that wants everything, and what it would take to undo a run", 2)
	w.must(w.run(t.Context(), keys[1], session.Need{CheckpointBelow: old - 1, RewindToMessage: "old-1998"}, func(v *session.View) (*session.Change, error) {
		if b := v.RewindPoint; b == nil || b.StepBefore != old-4 || b.Checkpoint == nil || b.State == "" || len(b.ReportedLate) != 0 || v.Checkpoint == nil || v.Checkpoint.Step != old-2 {
			t.Errorf("got %+v", v)
		}
		return nil, nil
	}))
	count("what it takes to go back to a message, or to fewer", 2)
	reads := []func() error{
		func() error { _, err := s.Parts().Session(t.Context(), keys[1]); return err },
		func() error { _, err := s.Parts().Run(t.Context(), keys[1], "old-7"); return err },
		func() error { _, err := s.Parts().Runs(t.Context(), keys[1], 1000, 5); return err },
		func() error { _, err := s.Parts().Waiting(t.Context(), keys[1]); return err },
		func() error { _, err := registry{s}.Stops(t.Context(), executor, "another"); return err },
		func() error {
			_, _, err := s.Parts().Messages(t.Context(), keys[1], store.Page{From: 1000, Limit: 5, MaxBytes: 1000})
			return err
		},
		func() error { _, _, err := s.Parts().Checkpoint(t.Context(), keys[1], ""); return err },
		func() error {
			_, _, err := s.Parts().Checkpoint(t.Context(), keys[1], session.CheckpointID(keys[1].SessionID, 1000, 1, "abcdef"))
			return err
		},
		func() error {
			_, err := s.Parts().Owners(t.Context(), keys[1], []string{"old-1000", "old-1"})
			return err
		},
		func() error { _, err := s.Parts().Family(t.Context(), keys[1], 5); return err },
	}
	for i, read := range reads {
		w.must(read())
		count(fmt.Sprint("read ", i), 1)
	}
	// Statistics must not change the plans.
	if _, err := s.pool.Exec(t.Context(), `ANALYZE`); err != nil {
		t.Fatal(err)
	}
	before = statistic(t, s, read)
	w.must(w.commit(t.Context(), w.stepOf(refs[0], old+6)))
	count("a step after ANALYZE", 1)
	w.goBack(refs[0])
	count("an end, and a session that is taken back to a message", 3)
}

// goBack ends the run, and rewinds its session to the message that started it.
func (w *worker) goBack(ref session.ClaimRef) {
	w.Helper()
	end := session.Finish{ClaimRef: ref, Outcome: session.Outcome{Status: session.RunCompleted}, Now: w.now}
	w.must(w.run(w.Context(), ref.Key, end.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := end.Decide(v)
		return change, err
	}))
	post := session.RunRequest{Key: ref.Key, RunID: "again", MessageID: "ui-again", Now: w.now, Bodies: session.BodyFuncs{
		IsVisible: func(session.Message) (bool, error) { return true, nil },
		MoveToRun: func(m session.Message, _ string) (session.Message, error) { return m, nil },
	}}
	back := session.Edit{Send: session.Send{RunRequest: post}, Target: "msg-" + ref.RunID}
	w.must(w.run(w.Context(), ref.Key, back.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := back.Decide(v)
		return change, err
	}))
}

func TestAStepUpdatesItsRowsInTheirPage(t *testing.T) {
	t.Parallel()
	s := openWithOneConnection(t)
	w := newWorker(t, s)
	refs := w.begin(keysOf("t", 4)...)
	const steps = 50
	query := func(column, table string) string {
		return `SELECT ` + column + ` FROM pg_stat_user_tables WHERE relname = '` + table + `'`
	}
	for _, table := range []string{"sessions", "runs"} {
		updated, hot := statistic(t, s, query("n_tup_upd", table)), statistic(t, s, query("n_tup_hot_upd", table))
		defer func() {
			updated, hot = statistic(t, s, query("n_tup_upd", table))-updated, statistic(t, s, query("n_tup_hot_upd", table))-hot
			if updated != steps*len(refs) || hot < updated*3/4 { // some are not while another process of the server has a snapshot
				t.Errorf("%d of %d updates of %s stayed in their page, want %d and nearly all", hot, updated, table, steps*len(refs))
			}
		}()
	}
	for step := range int32(steps) {
		for _, ref := range refs {
			w.must(w.commit(t.Context(), w.stepOf(ref, step+1)))
		}
	}
}

func TestAListReadsNoMoreThanItsPage(t *testing.T) {
	t.Parallel()
	s := openWithOneConnection(t)
	// Sessions of two users, one with few sessions; every tenth has failed.
	_, err := s.pool.Exec(t.Context(), `INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count,
			message_count, state_version, output, failure, current_run_id, user_id, tags, metadata, created_at, updated_at, expires_at)
		SELECT 't', 's' || i, 'a', '', 's' || i, 'completed', 1, 0, 0, 0, 0, 1, '', '', '', '', '', '', i, i, 0 FROM generate_series(1, 3000) i`)
	if err == nil {
		_, err = s.pool.Exec(t.Context(), `INSERT INTO session_facets (tenant, facet, created_at, session_id)
			SELECT 't', convert_to(f, 'UTF8'), i, 's' || i FROM generate_series(1, 3000) i, unnest(ARRAY['all',
				CASE WHEN i % 100 = 0 THEN 'user:few' ELSE 'user:many' END, CASE WHEN i % 10 = 0 THEN 'status:failed' ELSE 'status:completed' END]) f`)
	}
	if err != nil {
		t.Fatal(err)
	}
	const read = `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname <> 'pg_class'`
	few, many, failed, completed := session.UserFacet("few"), session.UserFacet("many"), session.StatusFacet(session.Failed), session.StatusFacet(session.Completed)
	for _, q := range []struct {
		store.SessionQuery
		rows, most int
	}{
		{store.SessionQuery{Limit: 10}, 10, 60},
		{store.SessionQuery{Limit: 10, After: &store.SessionPlace{CreatedAt: 1500, SessionID: "s1500"}}, 10, 60},
		{store.SessionQuery{Limit: 10, All: []session.Facet{many}}, 10, 60},
		{store.SessionQuery{Limit: 10, Any: []session.Facet{failed, completed}}, 10, 120},
		{store.SessionQuery{Limit: 10, All: []session.Facet{many, completed}}, 10, 2*maxFacetSize + 100},
		{store.SessionQuery{Limit: 10, All: []session.Facet{session.AllSessions, few, failed}}, 10, maxFacetSize + 400},
		{store.SessionQuery{Limit: 10, All: []session.Facet{few}, Any: []session.Facet{completed}}, 0, 200},
	} {
		before := statistic(t, s, read)
		list, err := s.Sessions(t.Context(), "t", q.SessionQuery)
		if err != nil {
			t.Fatal(err)
		}
		if n := statistic(t, s, read) - before; len(list) != q.rows || n > q.most {
			t.Errorf("%+v: got %d sessions from %d index entries, want %d from at most %d", q.SessionQuery, len(list), n, q.rows, q.most)
		}
	}
}
