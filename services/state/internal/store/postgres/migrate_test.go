package postgres

import (
	"io/fs"
	"reflect"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// oldRows are rows of the release of the first migration: a session with two committed
// steps and one without a step.
const oldRows = `
	INSERT INTO holdfast_state_migrations (version) VALUES (1);
	INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count, message_count, state_version,
		output, failure, stream_sequence, stream_step, current_run_id, user_id, tags, metadata, created_at, updated_at, expires_at) VALUES
		('t', 's1', 'support', '', 's1', 'active', 3, 1, 1, 2, 2, 2, '', '', 80, 2, 'r1', 'u', '["a","b"]', '{"k":"v"}', 1000, 2000, 0),
		('t', 's2', 'support', '', 's2', 'completed', 2, 1, 1, 0, 0, 1, '{"a":1}', '', 0, 0, 'r2', '', '', '', 1001, 2000, 0);
	INSERT INTO states (tenant, session_id, version, state) VALUES ('t', 's1', 1, '{}'), ('t', 's1', 2, '{"n":1}'), ('t', 's2', 1, '{}');
	INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence, step_count, output,
		failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step, finish_version, traceparent, tracestate,
		created_at, started_at, completed_at) VALUES
		('t', 's1', 'r1', 'support', 1, 'running', '', '', 'ui', 0, 2, '', '', '', false, 1, 1, 'executor-1', 1500, 0, 0, '', '', 1000, 1500, 0),
		('t', 's2', 'r2', 'support', 1, 'completed', '', '', 'ui', 0, 0, '{"a":1}', '', '', true, 1, 1, '', 1500, 0, 2, '', '', 1000, 1500, 1600);
	INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body) VALUES
		('t', 's1', 0, 'm0', 'user', 'r1', 0, 1000, 2, 'hi'), ('t', 's1', 1, 'm1', 'assistant', 'r1', 1, 1600, 5, 'hello');
	INSERT INTO checkpoints (tenant, session_id, step, checkpoint_id, run_id, epoch, version, message_count, stream_sequence, status, state_version,
		warnings, created_at) VALUES
		('t', 's1', 1, 'cp1', 'r1', 1, 2, 2, 40, 'active', 2, '["w"]', 1600), ('t', 's1', 2, 'cp2', 'r1', 1, 3, 2, 80, 'active', 2, '', 1700);
	INSERT INTO usage_entries (tenant, session_id, run_id, step, position, recorded_at, model, prompt_tokens, completion_tokens, reasoning_tokens,
		cached_tokens, total_tokens, tool, success, duration_ms) VALUES
		('t', 's1', 'r1', 1, 0, 1600, 'm', 1, 2, 0, 0, 3, '', false, 0), ('t', 's1', 'r1', 1, 1, 1600, '', 0, 0, 0, 0, 0, 'search', true, 7);
	INSERT INTO plans (tenant, session_id, step, body, call_ids, stream_sequence, usage) VALUES ('t', 's1', 3, 'p', '["c"]', 90, '');
	INSERT INTO executors (executor_id, heard_at) VALUES ('executor-1', 1000);
	INSERT INTO agents (agent_type, description, announced_at) VALUES ('support', 'helps', 1000);`

// oldDatabase returns the URL of a database of the release of the first migration.
func oldDatabase(t *testing.T) string {
	t.Helper()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	first, err := fs.ReadFile(migrations, "migrations/0001_sessions.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`CREATE TABLE holdfast_state_migrations (version INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1), applied_at TIMESTAMPTZ NOT NULL DEFAULT now())`,
		string(first), oldRows,
	} {
		if _, err := conn.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return url
}

func TestRowsOfTheFirstReleaseAreRead(t *testing.T) {
	t.Parallel()
	s := open(t, oldDatabase(t))
	key := session.Key{Tenant: "t", SessionID: "s1"}
	shot, err := s.Parts().Session(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	want := session.Session{
		Key: key, AgentType: "support", RootID: "s1", Status: session.Active, Version: 3, Epoch: 1, Turn: 1, StepCount: 2, MessageCount: 2,
		State: `{"n":1}`, StateVersion: 2, StateBase: 2, CurrentRunID: "r1", CheckpointID: "cp2", Position: position.Committed(2),
		UserID: "u", Tags: []string{"a", "b"}, Metadata: map[string]string{"k": "v"}, CreatedAt: 1000, UpdatedAt: 2000,
	}
	if !reflect.DeepEqual(shot.Session, want) {
		t.Errorf("got  %+v,\nwant %+v", shot.Session, want)
	}
	if r := shot.Current; r == nil || r.Entry != session.EntryStart || r.Stop != nil || r.DueAt != 0 || r.ExecutorID != executor {
		t.Errorf("got the run %+v", r)
	}
	checkpoint, state, err := s.Parts().Checkpoint(t.Context(), key, "cp1")
	if err != nil || state != `{"n":1}` || checkpoint.StateBase != 2 || len(checkpoint.Warnings) != 1 {
		t.Errorf("got %+v with %q, %v", checkpoint, state, err)
	}
	var journal *session.Journal
	err = s.Update(t.Context(), targets(session.Need{Journal: true}, key), 1, func(views []*session.View) ([]*session.Change, error) {
		journal = views[0].Journal
		return nil, nil
	})
	if want := (&session.Journal{Step: 3, Plan: []byte("p"), CallIDs: []string{"c"}}); err != nil || !reflect.DeepEqual(journal, want) {
		t.Errorf("got the journal %+v, %v; want %+v", journal, err, want)
	}
	messages, total, err := s.Parts().Messages(t.Context(), key, store.Page{Limit: 10, MaxBytes: 100})
	if err != nil || total != 2 || len(messages) != 2 || string(messages[1].Body) != "hello" {
		t.Errorf("got %+v of %d, %v", messages, total, err)
	}
	usage, err := s.Parts().UsageEntries(t.Context(), key, nil, 0, 10)
	if err != nil || len(usage) != 2 || usage[0].Kind != session.UsageTokens || usage[0].Source != "agent" || usage[1].Kind != session.UsageTool || usage[1].Source != "tool" {
		t.Errorf("got %+v, %v", usage, err)
	}
	for facet, want := range map[session.Facet]string{
		session.AllSessions: "s2s1", session.TagFacet("b"): "s1", session.MetadataFacet("k", "v"): "s1", session.UserFacet("u"): "s1",
		session.StatusFacet(session.Completed): "s2", session.ParentFacet(""): "s2s1", session.AgentFacet("support"): "s2s1",
	} {
		list, err := s.Sessions(t.Context(), "t", store.SessionQuery{All: []session.Facet{facet}, Limit: 10})
		got := ""
		for _, found := range list {
			got += found.SessionID
		}
		if err != nil || got != want {
			t.Errorf("sessions of %s: got %s, %v; want %s", facet, got, err, want)
		}
	}
}

func TestASessionOfAnOlderReleaseContinues(t *testing.T) {
	t.Parallel()
	s := open(t, oldDatabase(t))
	w := newWorker(t, s)
	ref := session.ClaimRef{Key: session.Key{Tenant: "t", SessionID: "s1"}, RunID: "r1", Epoch: 1}
	c := w.stepOf(ref, 3)
	c.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "2"}}
	w.must(w.commit(t.Context(), c))
	shot, err := s.Parts().Session(t.Context(), ref.Key)
	if err != nil || shot.Session.State != `{"n":1,"m":2}` || shot.Session.StepCount != 3 || shot.Session.CheckpointID != c.CheckpointID {
		t.Errorf("got %+v, %v", shot, err)
	}
	if _, state, err := s.Parts().Checkpoint(t.Context(), ref.Key, "cp2"); err != nil || state != `{"n":1}` {
		t.Errorf("got %q, %v from the checkpoint before", state, err)
	}
}

func TestRowsOfTheSecondReleaseAreRead(t *testing.T) {
	t.Parallel()
	url := oldDatabase(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	second, err := fs.ReadFile(migrations, "migrations/0002_whole.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		string(second),
		`INSERT INTO holdfast_state_migrations (version) VALUES (2)`,
		`UPDATE runs SET entry = 'resume', stop = '{"kind":"abort","reason":"why","at":7}', due_at = 8, losses = 9 WHERE session_id = 's1'`,
	} {
		if _, err := conn.Exec(t.Context(), text, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	shot, err := open(t, url).Parts().Session(t.Context(), session.Key{Tenant: "t", SessionID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	want := session.Run{
		RunID: "r1", AgentType: "support", Turn: 1, Status: session.RunRunning, MessageID: "ui", StepCount: 2, Attempt: 1, Entry: session.EntryResume,
		Stop: &session.Stop{Kind: session.StopAbort, Reason: "why", At: 7}, DueAt: 8, Losses: 9,
		CreatedAt: 1000, StartedAt: 1500, ClaimedAt: 1500, Epoch: 1, ExecutorID: executor,
	}
	if !reflect.DeepEqual(*shot.Current, want) || shot.Session.Waiting != 0 {
		t.Errorf("got  %+v,\nwant %+v", *shot.Current, want)
	}
}

func TestSeveralProcessesMayBootAtOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"an empty database": pgtest.URL(t), "one of the former release": oldDatabase(t)} {
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				s, err := Open(t.Context(), url, 1, commits, nil)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if err := s.Close(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		s := open(t, url)
		if n := ask[int](t, s, `SELECT count(*) FROM holdfast_state_migrations`); n != countMigrations(t) {
			t.Errorf("%s: %d migrations are recorded, want %d", name, n, countMigrations(t))
		}
	}
}

func TestManySessionsGetTheirFacets(t *testing.T) {
	t.Parallel()
	url := oldDatabase(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count,
			message_count, state_version, output, failure, stream_sequence, stream_step, current_run_id, user_id, tags, metadata, created_at, updated_at, expires_at)
		SELECT 't' || i % 3, 'ä' || i, 'a', '', 's' || i, 'completed', 1, 0, 1, 0, 0, 1, '', '', 0, 0, '', '', '', '', i, i, 0
		FROM generate_series(1, $1) i`, pgx.QueryExecModeSimpleProtocol, 2*facetPageSize); err != nil {
		t.Fatal(err)
	}
	s := open(t, url)
	if n := ask[int](t, s, `SELECT count(DISTINCT (tenant, session_id)) FROM session_facets WHERE facet = 'all'`); n != 2*facetPageSize+2 {
		t.Errorf("got the facets of %d sessions, want %d", n, 2*facetPageSize+2)
	}
}

// countMigrations returns the number of migrations of this release.
func countMigrations(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
