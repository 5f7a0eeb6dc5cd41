package sweep_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// outageStore is a store with outages.
type outageStore struct {
	store.Store
	away atomic.Bool
}

// parts returns the store with its wrapped parts.
func (a *outageStore) parts() store.Store {
	s := a.Store
	s.Updater = a
	return s
}

func (a *outageStore) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	if a.away.Load() {
		return nil, store.Unavailable(errors.New("outage"))
	}
	return a.Store.UpdateDue(ctx, due, need, limit, decide)
}

func now() session.Millis { return session.Millis(time.Now().UnixMilli()) }

// worker is a sweep with the default times and without overdue work.
func worker(s store.Store) *sweep.Sweep {
	return &sweep.Sweep{
		Store: s, Every: 500 * time.Millisecond, SilentAfter: 2500 * time.Millisecond, BrokenAfter: time.Second, ExpireEvery: time.Minute,
		Suspects: sweep.NewSuspects(), Now: time.Now,
		Wake: func(string) {}, TimeOut: func(context.Context, session.Key) error { return nil },
		Expire: func(context.Context, int) (sweep.Summary, error) { return sweep.Summary{}, nil },
		Files:  func(context.Context) error { return nil }, Audit: func(context.Context) error { return nil },
		Deliveries: func(context.Context) error { return nil }, Log: slog.New(slog.DiscardHandler),
	}
}

// sweeping runs a sweep in a bubble of fake time, on a store with a run of executor e1.
func sweeping(t *testing.T, f func(t *testing.T, s *outageStore, woken *atomic.Int32)) {
	synctest.Test(t, func(t *testing.T) {
		s := &outageStore{Store: sqlitetest.Open(t)}
		claimed(t, s)
		var woken atomic.Int32
		w := worker(s.parts())
		w.Wake = func(string) { woken.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("got %v, want nil at the end of the context", err)
			}
		})
		f(t, s, &woken)
		cancel()
		wg.Wait()
	})
}

func claimed(t *testing.T, s interface {
	store.Updater
	store.Registry
}) {
	t.Helper()
	if err := s.Announce(t.Context(), "e1", []session.Agent{{Type: "a"}}, now()); err != nil {
		t.Fatal(err)
	}
	key := session.Key{Tenant: "t", SessionID: "s"}
	start := session.Send{RunRequest: session.RunRequest{Key: key, AgentType: "a", RunID: "r", Now: now()}, NewSession: session.Create{State: "{}"}}
	err := s.Update(t.Context(), []session.Target{{Key: key, Need: start.Need()}}, 1, func(views []*session.View) ([]*session.Change, error) {
		change, _, err := start.Decide(views...)
		return []*session.Change{change}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	due := store.Queued{ExecutorID: "e1", AgentTypes: []string{"a"}, Now: now()}
	if got, err := s.UpdateDue(t.Context(), due, session.Need{}, 1, session.Claim{ExecutorID: "e1", Now: now()}.Decide); err != nil || len(got) != 1 {
		t.Fatalf("got %d claims, %v", len(got), err)
	}
}

func beat(t *testing.T, s store.Registry) bool {
	t.Helper()
	known, err := s.Heartbeat(t.Context(), "e1", now())
	if err != nil {
		t.Fatal(err)
	}
	return known
}

func TestARunOfASilentExecutorIsQueuedAgain(t *testing.T) {
	t.Parallel()
	sweeping(t, func(t *testing.T, s *outageStore, woken *atomic.Int32) {
		time.Sleep(2400 * time.Millisecond)
		if !beat(t, s) {
			t.Fatal("unregistered too early")
		}
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		if beat(t, s) || woken.Load() != 1 {
			t.Errorf("got %d runs requeued, want 1, and the executor unregistered", woken.Load())
		}
	})
}

func TestANewSweepWaitsForHeartbeatsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &outageStore{Store: sqlitetest.Open(t)}
		claimed(t, s)
		time.Sleep(time.Hour) // no state service received heartbeats
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := worker(s.parts())
		go func() { _ = w.Run(ctx) }()
		time.Sleep(2400 * time.Millisecond)
		if !beat(t, s) {
			t.Error("an executor was unregistered for a silence before the sweep began")
		}
	})
}

func TestAnOutageOfTheStoreIsNoSilence(t *testing.T) {
	t.Parallel()
	sweeping(t, func(t *testing.T, s *outageStore, woken *atomic.Int32) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if woken.Load() != 1 {
			t.Fatalf("got %d runs queued again, want 1", woken.Load())
		}
		if err := s.Announce(t.Context(), "e1", nil, now()); err != nil {
			t.Fatal(err)
		}
		s.away.Store(true)
		time.Sleep(time.Minute)
		s.away.Store(false)
		time.Sleep(2400 * time.Millisecond)
		if !beat(t, s) {
			t.Error("an executor was unregistered for a silence during an outage")
		}
	})
}
