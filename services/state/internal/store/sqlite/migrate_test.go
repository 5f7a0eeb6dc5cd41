package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// firstReleaseFile creates a file of the release of the first migration. It has a session that
// ended after two steps, a session that was never claimed, and more sessions than
// fillPageSize.
func firstReleaseFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	run := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := migrations.ReadFile("migrations/0001_sessions.sql")
	if err != nil {
		t.Fatal(err)
	}
	run(`BEGIN`)
	run(`CREATE TABLE holdfast_state_migrations (version INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1)) STRICT`)
	run(`INSERT INTO holdfast_state_migrations (version) VALUES (1)`)
	run(string(schema))
	addSession := func(id, status string, version, turn, steps int, tags, metadata string, created int) {
		t.Helper()
		run(`INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count,
				message_count, state_version, output, failure, stream_sequence, stream_step, current_run_id, user_id, tags, metadata,
				created_at, updated_at, expires_at)
			VALUES ('acme', ?, 'support', '', ?, ?, ?, 1, ?, ?, 1, 1, '{"a": 1}', '{"error":"boom","code":"E"}', 7, 0, 'r1', 'ann', ?, ?, ?, 9, 0)`,
			id, id, status, version, turn, steps, tags, metadata, created)
		run(`INSERT INTO states (tenant, session_id, version, state) VALUES ('acme', ?, 1, '{"n":1}')`, id)
	}
	addSession("ended", "failed", 4, 1, 2, `["a","b"]`, `{"k":"v"}`, 1000)
	addSession("waiting", "active", 1, 1, 0, ``, ``, 2000)
	run(`UPDATE sessions SET state_version = 3 WHERE session_id = 'ended'`)
	run(`INSERT INTO states (tenant, session_id, version, state) VALUES ('acme', 'ended', 3, '{"n":2}')`)
	for id, status := range map[string]string{"ended": "failed", "waiting": "queued"} {
		run(`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence,
				step_count, output, failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step,
				finish_version, traceparent, tracestate, created_at, started_at, completed_at)
			VALUES ('acme', ?, 'r1', 'support', 1, ?, 'key', x'01', 'ui', 0, 2, '{"a": 1}', '{"error":"boom","code":"E"}', '', 0, 1, 1, '', 5, 0, 4,
				'tp', 'ts', 4, 5, 0)`, id, status)
	}
	for step, version := range map[int]int{1: 1, 2: 3} {
		run(`INSERT INTO checkpoints (tenant, session_id, checkpoint_id, run_id, step, epoch, version, message_count, stream_sequence,
				status, state_version, warnings, created_at)
			VALUES ('acme', 'ended', ?, 'r1', ?, 1, ?, 1, 7, 'active', ?, '["w"]', 8)`, fmt.Sprint("cp-", step), step, step+1, version)
	}
	run(`INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body)
		VALUES ('acme', 'ended', 0, 'm1', 'user', 'r1', 0, 4, 2, x'6869')`)
	run(`INSERT INTO plans (tenant, session_id, step, body, call_ids, stream_sequence, usage)
		VALUES ('acme', 'waiting', 1, x'70', '["c1"]', 7, '[{"model":"m"}]')`)
	run(`INSERT INTO results (tenant, session_id, position, call_id, body, ops, usage)
		VALUES ('acme', 'waiting', 0, 'c1', x'72', '[{"key":"n","kind":"delete"}]', '')`)
	for place, model := range []string{"m", ""} {
		run(`INSERT INTO usage_entries (tenant, session_id, run_id, step, position, recorded_at, model, prompt_tokens, completion_tokens,
				reasoning_tokens, cached_tokens, total_tokens, tool, success, duration_ms)
			VALUES ('acme', 'ended', 'r1', 1, ?, 6, ?, 1, 2, 3, 4, 5, ?, 1, 9)`, place, model,
			map[bool]string{true: "", false: "search"}[model != ""])
	}
	run(`INSERT INTO agents (agent_type, description, announced_at) VALUES ('support', 'helps', 1)`)
	run(`INSERT INTO executors (executor_id, heard_at) VALUES ('executor-1', 1)`)
	for i := range fillPageSize + 1 {
		addSession(fmt.Sprint("more-", i), "completed", 1, 1, 0, `["more"]`, ``, 3000+i)
	}
	run(`COMMIT`)
	return path
}

func TestAFileOfTheFirstReleaseIsRead(t *testing.T) {
	t.Parallel()
	path := firstReleaseFile(t)
	var wg sync.WaitGroup
	for range 4 { // other processes open it at the same time
		wg.Go(func() {
			if s, err := Open(t.Context(), path, config, nil); err != nil {
				t.Error(err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	s := open(t, path)
	wg.Wait()
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", what, got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := session.Key{Tenant: "acme", SessionID: "ended"}
	shot, err := s.Parts().Session(t.Context(), key)
	must(err)
	failure := &session.Failure{Error: "boom", Code: "E"}
	same("session", shot.Session, session.Session{
		Key: key, AgentType: "support", RootID: "ended", Status: session.Failed, Version: 4, Epoch: 1, Turn: 1, StepCount: 2, MessageCount: 1,
		State: `{"n":2}`, StateVersion: 3, StateBase: 3, Output: `{"a": 1}`, Failure: failure, CurrentRunID: "r1",
		CheckpointID: "cp-2", Position: position.Ended(2), UserID: "ann", Tags: []string{"a", "b"}, Metadata: map[string]string{"k": "v"},
		CreatedAt: 1000, UpdatedAt: 9,
	})
	same("run", *shot.Current, session.Run{
		RunID: "r1", AgentType: "support", Turn: 1, Status: session.RunFailed, RequestKey: "key", RequestHash: []byte{1}, MessageID: "ui",
		StepCount: 2,
		Outcome:   session.Outcome{Status: session.RunFailed, Output: `{"a": 1}`, Failure: failure}, Attempt: 1, Entry: session.EntryStart,
		Traceparent: "tp", Tracestate: "ts", CreatedAt: 4, StartedAt: 5, Epoch: 1, ClaimedAt: 5, FinishVersion: 4,
	})
	first, state, err := s.Parts().Checkpoint(t.Context(), key, "cp-1")
	must(err)
	same("first checkpoint", *first, session.Checkpoint{ID: "cp-1", RunID: "r1", Step: 1, Epoch: 1, Version: 2, MessageCount: 1,
		Status: session.Active, StateVersion: 1, StateBase: 1, Warnings: []string{"w"}, CreatedAt: 8})
	same("its state", state, `{"n":1}`)
	messages, total, err := s.Parts().Messages(t.Context(), key, store.Page{Limit: 9, MaxBytes: 99})
	must(err)
	same("messages", messages, []session.Message{{ID: "m1", Role: "user", RunID: "r1", CreatedAt: 4, Body: []byte("hi")}})
	same("number of messages", total, int64(1))
	usage, err := s.Parts().UsageEntries(t.Context(), key, nil, 0, 9)
	must(err)
	entry := session.UsageEntry{RunID: "r1", Step: 1, At: 6, Usage: session.Usage{Kind: session.UsageTokens, Source: "agent", Model: "m",
		PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 5, Success: true, DurationMS: 9}}
	second := entry
	second.Position, second.Kind, second.Source, second.Model, second.Tool = 1, session.UsageTool, "tool", "", "search"
	same("usage", usage, []session.UsageEntry{entry, second})

	found, err := s.Sessions(t.Context(), "acme",
		store.SessionQuery{All: []session.Facet{session.TagFacet("b"), session.MetadataFacet("k", "v")}, Limit: 9})
	must(err)
	if len(found) != 1 || found[0].SessionID != "ended" {
		t.Errorf("got %+v by tag and metadata, want the session that ended", found)
	}
	n, err := s.CountSessions(t.Context(), "acme", store.SessionQuery{}, 0)
	must(err)
	same("listed sessions", n, int64(fillPageSize+3))

	// The queued run of the other session continues with its journal.
	due := store.Queued{ExecutorID: "executor-1", AgentTypes: []string{"support"}, Now: now}
	claimed, err := s.UpdateDue(t.Context(), due, session.Need{Journal: true, State: true}, 9,
		session.Claim{ExecutorID: "executor-1", Now: now}.Decide)
	must(err)
	if len(claimed) != 1 || claimed[0].View.Session.State != `{"n":1}` {
		t.Fatalf("got %+v, want the waiting session's run", claimed)
	}
	same("journal", *claimed[0].View.Journal, session.Journal{
		Step: 1, Plan: []byte("p"), CallIDs: []string{"c1"}, Usage: []session.Usage{{Model: "m"}},
		Results: []session.Result{{CallID: "c1", Body: []byte("r"), Ops: []session.StateOp{{Key: "n", Kind: session.OpDelete}}}},
	})
}

// secondReleaseFile creates a file of the release of the second migration.
func secondReleaseFile(t *testing.T) string {
	t.Helper()
	path := firstReleaseFile(t)
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	schema, err := migrations.ReadFile("migrations/0002_whole.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`BEGIN`,
		string(schema),
		`INSERT INTO holdfast_state_migrations (version) VALUES (2)`,
		`UPDATE runs SET entry = 'resume', stop = '{"kind":"abort","reason":"why","at":7}', due_at = 8, losses = 9 WHERE session_id = 'waiting'`,
		`INSERT INTO calls (tenant, root_id, call_id, session_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash,
			created_at, deadline_at, answer, revision, response, answered_at, consumed_at, late, late_at, told)
		VALUES ('acme', 'ended', 'c1', 'ended', 'r1', 1, '', 'ask', 'client_tool', '', '', x'', 1, 0, 'client', 1, x'61', 2, 0, x'', 0, 0)`,
		`COMMIT`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return path
}

func TestAFileOfTheSecondReleaseIsRead(t *testing.T) {
	t.Parallel()
	s := open(t, secondReleaseFile(t))
	shot, err := s.Parts().Session(t.Context(), session.Key{Tenant: "acme", SessionID: "waiting"})
	if err != nil {
		t.Fatal(err)
	}
	want := session.Run{
		RunID: "r1", AgentType: "support", Turn: 1, Status: session.RunQueued, RequestKey: "key", RequestHash: []byte{1}, MessageID: "ui",
		StepCount: 2,
		Outcome:   session.Outcome{Output: `{"a": 1}`, Failure: &session.Failure{Error: "boom", Code: "E"}},
		Attempt:   1, Entry: session.EntryResume,
		Stop: &session.Stop{Kind: session.StopAbort, Reason: "why", At: 7}, DueAt: 8, Losses: 9,
		Traceparent: "tp", Tracestate: "ts", CreatedAt: 4, StartedAt: 5, Epoch: 1, ClaimedAt: 5, FinishVersion: 4,
	}
	if !reflect.DeepEqual(*shot.Current, want) || shot.Session.Waiting != 0 || len(shot.Waiting) != 0 {
		t.Errorf("got  %+v,\nwant %+v", *shot.Current, want)
	}
	shot, err = s.Parts().Session(t.Context(), session.Key{Tenant: "acme", SessionID: "ended"})
	if err != nil || len(shot.Calls) != 1 || shot.Calls[0].ConsumedStep != 0 || string(shot.Calls[0].Response) != "a" {
		t.Errorf("got %+v, %v", shot, err)
	}
}
