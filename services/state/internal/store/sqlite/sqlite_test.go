package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var config = group.Config{Queue: 10_000, QueueBytes: 256 << 20, Batch: 256, BatchBytes: 16 << 20, Lanes: 2, BatchTimeout: 30 * time.Second}

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func fresh(t testing.TB) *Store { return open(t, filepath.Join(t.TempDir(), "state.db")) }

// on returns a Decide for a command on one session.
func on(decide func(*session.View) (*session.Change, error)) store.Decide {
	return func(views []*session.View) ([]*session.Change, error) {
		change, err := decide(views[0])
		return []*session.Change{change}, err
	}
}

func target(key session.Key, need session.Need) []session.Target {
	return []session.Target{{Key: key, Need: need}}
}

const now = session.Millis(1_700_000_000_000)

func start(t testing.TB, s *Store, key session.Key) {
	t.Helper()
	c := session.Send{RunRequest: session.RunRequest{
		Key: key, AgentType: "support", RunID: "run-" + key.SessionID, MessageID: "ui", Now: now,
		Messages: []session.Message{{ID: "m1", Role: "user", CreatedAt: now, Body: []byte("hello")}},
	}, NewSession: session.Create{State: `{}`}}
	err := s.Update(t.Context(), target(c.Key, c.Need()), 100, on(func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	}))
	if err != nil {
		t.Fatal(err)
	}
}

func announce(t testing.TB, s *Store, executor string) {
	t.Helper()
	if err := (registry{s}).Announce(t.Context(), executor, []session.Agent{{Type: "support"}}, now); err != nil {
		t.Fatal(err)
	}
}

func TestSeveralProcessesMayBootAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			s, err := Open(t.Context(), path, config, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// begun opens the file a second time and starts a write transaction.
func begun(t *testing.T, path string) (end func()) {
	t.Helper()
	p, err := openPool(t.Context(), dataSource(path), 1)
	if err != nil {
		t.Fatal(err)
	}
	c := <-p.free
	if _, err := c.exec(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		if _, err := c.exec(context.WithoutCancel(t.Context()), `ROLLBACK`); err != nil {
			t.Error(err)
		}
		p.free <- c
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

// hasty opens a connection whose statements do not wait for locks.
func hasty(t *testing.T, path string) *pool {
	t.Helper()
	p, err := openPool(t.Context(), dataSource(path), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.withConn(t.Context(), func(c *connection) error {
		_, err := c.exec(t.Context(), `PRAGMA busy_timeout = 0`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestABootWaitsForAMigrationOfAnotherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	end, p := begun(t, path), hasty(t, path)
	tries := 0
	if err := retryBusy(t.Context(), time.Minute, func() error {
		if tries++; tries == 3 {
			end()
		}
		return p.withConn(t.Context(), func(c *connection) error { return migrate(t.Context(), c) })
	}); err != nil || tries < 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestOpenReportsAFileThatStaysLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	begun(t, path)
	p := hasty(t, path)
	tries := 0
	err := retryBusy(t.Context(), openRetryPause, func() error {
		tries++
		return p.withConn(t.Context(), func(c *connection) error { return migrate(t.Context(), c) })
	})
	if tries == 0 || !isBusy(err) || !errors.Is(asFault(t.Context(), err), fault.Unavailable) {
		t.Errorf("after %d tries: %v", tries, err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := retryBusy(stopped, time.Hour, func() error {
		return p.withConn(t.Context(), func(c *connection) error { return migrate(t.Context(), c) })
	}); !isBusy(err) {
		t.Errorf("stopped: %v", err)
	}
}

func TestEveryCommitIsSyncedToTheDisk(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	var journal string
	var synchronous int
	err := s.writer.withConn(t.Context(), func(c *connection) error {
		if _, err := c.queryRow(t.Context(), `PRAGMA journal_mode`, nil, &journal); err != nil {
			return err
		}
		_, err := c.queryRow(t.Context(), `PRAGMA synchronous`, nil, &synchronous)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const full = 2 // https://www.sqlite.org/pragma.html#pragma_synchronous
	if journal != "wal" || synchronous != full {
		t.Errorf("got journal_mode %s, synchronous %d; want wal, %d", journal, synchronous, full)
	}
}

func TestARefusedCommandLeavesItsBatchAsItIs(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	mine := errors.New("refused")
	write := func(id string) command {
		return func(ctx context.Context, c *connection) (error, error) {
			_, err := c.exec(ctx, `INSERT INTO executors (executor_id, heard_at) VALUES (?, 1)`, id)
			return nil, err
		}
	}
	refuse := func(context.Context, *connection) (error, error) { return mine, nil }
	each, err := s.writeBatch(t.Context(), []command{write("a"), refuse, write("b")})
	if err != nil || len(each) != 3 || each[0] != nil || !errors.Is(each[1], mine) || each[2] != nil {
		t.Fatalf("got %v, %v; want the refusal of the second command only", each, err)
	}
	if n, err := (registry{s}).UnregisterSilent(t.Context(), 2); n != 2 || err != nil {
		t.Errorf("got %d rows, %v; want 2", n, err)
	}
	each, err = s.writeBatch(t.Context(), []command{write("a"), write("a")})
	if err == nil || each != nil {
		t.Fatalf("got %v, %v; want an error of the batch", each, err)
	}
	if n, err := (registry{s}).UnregisterSilent(t.Context(), 2); n != 0 || err != nil {
		t.Errorf("got %d rows of a batch that failed, %v; want none", n, err)
	}
}

func TestABrokenCommandFailsAlone(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	const crowd = 32
	var wg sync.WaitGroup
	for i := range crowd {
		key := session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}
		start(t, s, key)
		wg.Go(func() {
			err := s.Update(t.Context(), target(key, session.Need{}), 10, on(func(v *session.View) (*session.Change, error) {
				after := *v.Session
				after.Version++
				change := &session.Change{Session: &after}
				if i%8 == 0 { // a message with this ordinal exists
					change.Messages = []session.Message{{Ordinal: 0, ID: "twin"}}
				}
				return change, nil
			}))
			if broken := i%8 == 0; broken != (err != nil) {
				t.Errorf("command %d: got %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range crowd {
		shot, err := s.Parts().Session(t.Context(), session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		want := int64(2)
		if i%8 == 0 {
			want = 1
		}
		if shot.Session.Version != want {
			t.Errorf("session %d: got version %d, want %d", i, shot.Session.Version, want)
		}
	}
}

func TestAPanicOfACommandIsUndone(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	key := session.Key{Tenant: "acme", SessionID: "s1"}
	start(t, s, key)
	err := s.Update(t.Context(), target(key, session.Need{}), 10, func([]*session.View) ([]*session.Change, error) { panic("boom") })
	if err == nil {
		t.Error("got no error of a command that panics")
	}
	if _, err := (registry{s}).Heartbeat(t.Context(), "executor-1", now); err != nil {
		t.Errorf("the writer does not write any more: %v", err)
	}
}

func TestAClosedStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	key := session.Key{Tenant: "acme", SessionID: "s1"}
	_, read := s.Parts().Session(t.Context(), key)
	_, due := s.UpdateDue(t.Context(), store.OwnerUnregistered{}, session.Need{}, 1, nil)
	errs := []error{
		read, due, registry{s}.Announce(t.Context(), "e", nil, now),
		s.Update(t.Context(), target(key, session.Need{}), 10, nil),
	}
	for i, err := range errs {
		if fault.KindOf(err) != fault.Unavailable {
			t.Errorf("call %d: got %v, want Unavailable", i, err)
		}
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	bad := config
	bad.Batch = 0
	_, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"), bad, nil)
	if fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}

func TestRefusalsComeBackAsTheyAre(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	want := errors.New("refused")
	key := session.Key{Tenant: "acme", SessionID: "s1"}
	got := s.Update(t.Context(), target(key, session.Need{}), 1, func([]*session.View) ([]*session.Change, error) { return nil, want })
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Batches and searches run without a pause.
func TestDueWorkAndCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	const callers, rounds = 16, 20
	for i := range callers {
		start(t, s, session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range callers {
		key := session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)}
		wg.Go(func() {
			for range rounds {
				err := s.Update(ctx, target(key, session.Need{}), 10, on(func(v *session.View) (*session.Change, error) {
					after := *v.Session
					after.Version++
					return &session.Change{Session: &after}, nil
				}))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			due := store.Queued{ExecutorID: "executor-1", AgentTypes: []string{"support"}, Now: now}
			for range rounds {
				_, err := s.UpdateDue(ctx, due, session.Need{}, 1, session.Claim{ExecutorID: "executor-1", Now: now}.Decide)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range callers {
		shot, err := s.Parts().Session(ctx, session.Key{Tenant: "acme", SessionID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if shot.Session.Version != rounds+1 || shot.Session.Epoch != 1 {
			t.Errorf("session %d: got version %d, epoch %d; want %d, 1", i, shot.Session.Version, shot.Session.Epoch, rounds+1)
		}
	}
}

func TestAReaderThatGivesUpLeavesItsConnectionAsItWas(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	key := session.Key{Tenant: "acme", SessionID: "s1"}
	start(t, s, key)
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 * readers {
			wg.Go(func() {
				if _, err := s.Parts().Session(ctx, key); err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want what ended the context", err)
				}
			})
		}
		if i%2 == 0 {
			runtime.Gosched()
		}
		cancel()
		wg.Wait()
	}
	for range 2 * readers {
		if _, err := s.Parts().Session(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// An older release on the newer schema deletes sessions without their facets.
func TestASessionStartsDespiteLeftoverFacets(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	announce(t, s, "executor-1")
	key := session.Key{Tenant: "acme", SessionID: "s1"}
	start(t, s, key)
	err := s.write(t.Context(), func(ctx context.Context, c *connection) error {
		for _, table := range table.OfSession() {
			if _, err := c.exec(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	start(t, s, key)
	page, err := s.Sessions(t.Context(), "acme", store.SessionQuery{All: []session.Facet{session.AgentFacet("support")}, Limit: 9})
	if err != nil || len(page) != 1 {
		t.Errorf("got %d sessions, %v; want the one", len(page), err)
	}
}
