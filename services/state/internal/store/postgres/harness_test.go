package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// connections is fewer than the goroutines of a test, so that some have to wait.
const connections = 6

var commits = group.Config{Queue: 10_000, QueueBytes: 256 << 20, Batch: 256, BatchBytes: 16 << 20, Lanes: 2, BatchTimeout: 30 * time.Second}

// open opens a store without the idle timeout, since a test process may be frozen for a
// while on a busy machine.
func open(t testing.TB, url string) *Store {
	t.Helper()
	return openWithURL(t, withoutIdleTimeout(t, url))
}

// withoutIdleTimeout raises the limit of an idle transaction.
func withoutIdleTimeout(t testing.TB, url string) string {
	t.Helper()
	return pgtest.With(t, url, "idle_in_transaction_session_timeout", "60000")
}

// openWithURL opens a store with the default time limits.
func openWithURL(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, connections, commits, nil)
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

// ask runs a query for one value.
func ask[V any](t testing.TB, s *Store, query string, args ...any) (value V) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func targets(need session.Need, keys ...session.Key) []session.Target {
	list := make([]session.Target, len(keys))
	for i, key := range keys {
		list[i] = session.Target{Key: key, Need: need}
	}
	return list
}

// created returns a change that creates a session without a run.
func created(key session.Key) *session.Change {
	return &session.Change{Created: true, NewState: true, Session: &session.Session{
		Key: key, AgentType: agent, RootID: key.SessionID, Status: session.Paused, Version: 1, State: `{}`, StateVersion: 1, StateBase: 1,
	}}
}

func incompressible(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + random.IntN(90))
	}
	return string(b)
}

const (
	agent    = "support"
	executor = "executor-1"
)

// worker runs steps of sessions.
type worker struct {
	testing.TB
	store *Store
	now   session.Millis
}

func newWorker(t testing.TB, s *Store) *worker {
	w := &worker{TB: t, store: s, now: 1_700_000_000_000}
	w.must(registry{s}.Announce(t.Context(), executor, []session.Agent{{Type: agent}}, w.now))
	return w
}

func (w *worker) must(err error) {
	if err != nil {
		w.Helper()
		w.Error(err)
		panic(err)
	}
}

// run runs a command on one session.
func (w *worker) run(ctx context.Context, key session.Key, need session.Need, decide func(*session.View) (*session.Change, error)) error {
	return w.store.Update(ctx, targets(need, key), 1000, func(views []*session.View) ([]*session.Change, error) {
		change, err := decide(views[0])
		return []*session.Change{change}, err
	})
}

// begin starts a run in each session and claims the runs.
func (w *worker) begin(keys ...session.Key) []session.ClaimRef {
	w.Helper()
	for i, key := range keys {
		run := fmt.Sprintf("%s-run-%d", key.SessionID, w.now)
		c := session.Send{RunRequest: session.RunRequest{
			Key: key, AgentType: agent, RunID: run, MessageID: "ui-" + run, Now: w.now + session.Millis(i), RequestKey: "rk-" + run,
			Messages: []session.Message{{ID: "msg-" + run, Role: "user", RunID: run, CreatedAt: w.now, Body: []byte("hello")}},
		}, NewSession: session.Create{State: `{"seen":[]}`, UserID: "user", Tags: []string{"tag"}}}
		w.must(w.run(w.Context(), key, c.Need(), func(v *session.View) (*session.Change, error) {
			change, _, err := c.Decide(v)
			return change, err
		}))
	}
	return w.claims(len(keys))
}

// claims claims n queued runs.
func (w *worker) claims(n int) []session.ClaimRef {
	w.Helper()
	claimed, err := w.store.UpdateDue(w.Context(), store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: w.now + 1_000_000},
		session.Need{State: true, Journal: true, Calls: true, Tail: session.Tail{MaxMessages: 3, MaxBytes: 1 << 20}}, n,
		session.Claim{ExecutorID: executor, Now: w.now}.Decide)
	w.must(err)
	refs := make([]session.ClaimRef, len(claimed))
	for i, d := range claimed {
		refs[i] = session.ClaimRef{Key: d.View.Session.Key, RunID: d.View.Run.RunID, Epoch: d.Change.Runs[0].Epoch}
	}
	if len(refs) != n {
		w.Fatalf("got %d claims, want %d", len(refs), n)
	}
	return refs
}

// stepOf returns a typical step: two messages of some hundred bytes, and the usage of a
// model call.
func (w *worker) stepOf(ref session.ClaimRef, step int32) session.Commit {
	id := func(kind string) string { return fmt.Sprintf("%s-%s-%d", ref.SessionID, kind, step) }
	return session.Commit{
		ClaimRef: ref, Step: step, CheckpointID: id("cp"),
		Limits: session.Limits{State: 1 << 20, Journal: 1 << 20}, Now: w.now,
		Usage: []session.Usage{{Kind: session.UsageTokens, Source: "agent", Model: "m", PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120}},
		Messages: []session.Message{
			{ID: id("a"), Role: "assistant", RunID: ref.RunID, Step: step, CreatedAt: w.now, Body: make([]byte, 300)},
			{ID: id("t"), Role: "tool", RunID: ref.RunID, Step: step, CreatedAt: w.now, Body: make([]byte, 300)},
		},
	}
}

func (w *worker) commit(ctx context.Context, c session.Commit) error {
	return w.run(ctx, c.Key, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func keysOf(tenant string, n int) []session.Key {
	keys := make([]session.Key, n)
	for i := range keys {
		keys[i] = session.Key{Tenant: tenant, SessionID: fmt.Sprintf("session-%04d", i)}
	}
	return keys
}
