package sweep_test

import (
	"context"
	"errors"
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

// registry is a store that counts the checks of the watcher, and may fail.
type registry struct {
	store.Store
	looks  atomic.Int32
	blind  atomic.Bool // LastSeen fails
	frozen atomic.Bool // UnregisterUnseen fails
}

// parts returns the store with its wrapped parts.
func (r *registry) parts() store.Store {
	s := r.Store
	s.Registry = r
	return s
}

func (r *registry) LastSeen(ctx context.Context) (map[string]session.Millis, error) {
	r.looks.Add(1)
	if r.blind.Load() {
		return nil, store.Unavailable(errors.New("outage"))
	}
	return r.Store.LastSeen(ctx)
}

func (r *registry) UnregisterUnseen(ctx context.Context, since map[string]session.Millis) ([]string, error) {
	if r.frozen.Load() {
		return nil, store.Unavailable(errors.New("outage"))
	}
	return r.Store.UnregisterUnseen(ctx, since)
}

// watched is a replica in a bubble of fake time. Executor e1 has a claim stream to it and a
// run.
type watched struct {
	*testing.T
	store    *registry
	suspects *sweep.Suspects
	requeued chan time.Time
	skipped  atomic.Int64 // offset of the replica's wall clock
	broke    time.Time
}

func watching(t *testing.T, test func(w *watched), changes ...func(*sweep.Sweep)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{T: t, store: &registry{Store: sqlitetest.Open(t)}, suspects: sweep.NewSuspects(), requeued: make(chan time.Time, 10)}
		claimed(t, w.store)
		s := worker(w.store.parts())
		s.Suspects, s.Wake = w.suspects, func(string) { w.requeued <- time.Now() }
		s.Now = func() time.Time { return time.Now().Add(time.Duration(w.skipped.Load())) }
		for _, change := range changes {
			change(s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = s.Run(ctx) })
		defer ended.Wait()
		defer cancel()
		w.suspects.Join("e1")
		w.beating("e1", 10*time.Second) // the sweep has waited for heartbeats
		test(w)
	})
}

// beating sends heartbeats for some time, and one after it.
func (w *watched) beating(id string, lasts time.Duration) {
	w.Helper()
	for end := time.Now().Add(lasts); ; time.Sleep(500 * time.Millisecond) {
		if known, err := w.store.Heartbeat(w.Context(), id, now()); err != nil || !known {
			w.Fatalf("%s was unregistered, %v", id, err)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// neighbour is an executor that lives until the test ends.
func (w *watched) neighbour(id string) {
	w.Helper()
	if err := w.store.Announce(w.Context(), id, nil, now()); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var ended sync.WaitGroup
	w.Cleanup(func() { cancel(); ended.Wait() })
	ended.Go(func() {
		ticks := time.NewTicker(500 * time.Millisecond)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				_, _ = w.store.Heartbeat(ctx, id, now())
			case <-ctx.Done():
				return
			}
		}
	})
}

func (w *watched) breaks() {
	w.suspects.Leave("e1", true)
	w.broke = time.Now()
}

// loses waits until the run is requeued, and checks the time since the break.
func (w *watched) loses(from, to time.Duration) {
	w.Helper()
	took := (<-w.requeued).Sub(w.broke)
	if took < from || took > to {
		w.Errorf("the run was requeued after %v, want %v to %v", took, from, to)
	}
	if known, err := w.store.Heartbeat(w.Context(), "e1", now()); known || err != nil {
		w.Errorf("got known %v, %v; want the executor unregistered", known, err)
	}
}

// The bounds of a grace of one second: with the first checks, and with the wait for a
// neighbour's heartbeat.
const atOnce, soon = time.Second, 1250 * time.Millisecond

// The bounds of silence, with its sweep.
const silence, silenceEnds = 2 * time.Second, 3100 * time.Millisecond

func TestAnExecutorIsForgottenSoonAfterItsStreamBroke(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("e2")
		w.breaks()
		w.loses(atOnce, soon)
		looks := w.store.looks.Load()
		time.Sleep(time.Minute)
		if more := w.store.looks.Load() - looks; looks > 30 || more > 1 {
			t.Errorf("it cost %d looks, and %d without suspects", looks, more)
		}
	})
}

func TestAHeartbeatSentBeforeTheBreakIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("e2")
		w.breaks()
		time.Sleep(80 * time.Millisecond)
		w.beating("e1", 0)
		w.loses(atOnce, soon)
	})
}

func TestAnExecutorThatStillSendsHeartbeatsKeepsItsRuns(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) { // as it drains
		w.neighbour("e2")
		w.breaks()
		time.Sleep(499 * time.Millisecond)
		w.beating("e1", time.Minute)
		if looks := w.store.looks.Load(); looks > 15 {
			t.Errorf("it cost %d looks", looks)
		}
		w.broke = time.Now() // then it dies, without a stream
		w.loses(silence, silenceEnds)
	})
}

func TestAnExecutorThatComesBackKeepsItsRuns(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(w *watched) error{
		"to this replica": func(w *watched) error { w.suspects.Join("e1"); return nil },
		"to another, whose clock is behind": func(w *watched) error {
			return w.store.Announce(w.Context(), "e1", nil, now()-1000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watching(t, func(w *watched) {
				w.neighbour("e2")
				w.breaks()
				time.Sleep(950 * time.Millisecond)
				if err := back(w); err != nil {
					w.Fatal(err)
				}
				w.loses(silence-time.Second/2, silenceEnds+time.Second) // it hangs from then on
			})
		})
	}
}

func TestAStreamThatEndsOtherwiseIsNoBreak(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(s *sweep.Suspects){
		"one that ends well":   func(s *sweep.Suspects) { s.Leave("e1", false) },
		"one that is replaced": func(s *sweep.Suspects) { s.Join("e1"); s.Leave("e1", true) },
		"one that was the older, and broke late": func(s *sweep.Suspects) {
			s.Join("e1")
			s.Leave("e1", true)
			s.Join("e1")
			s.Leave("e1", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watching(t, func(w *watched) {
				w.neighbour("e2")
				ends(w.suspects)
				w.broke = time.Now()
				w.loses(silence, silenceEnds)
				if looks := w.store.looks.Load(); looks != 0 {
					t.Errorf("it was suspected, which cost %d looks", looks)
				}
			})
		})
	}
}

func TestNobodyIsConvictedWhileNobodyIsHeard(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.breaks()
		w.loses(silence, silenceEnds)
	})
	watching(t, func(w *watched) { // the network comes back, first for another executor
		w.breaks()
		time.Sleep(1300 * time.Millisecond)
		w.neighbour("e2")
		w.loses(1800*time.Millisecond, 1900*time.Millisecond)
	})
}

func TestAReplicaThatCannotHaveHeardGivesTheWholeGraceAgain(t *testing.T) {
	t.Parallel()
	const at = 900 * time.Millisecond
	for name, happens := range map[string]func(w *watched){
		"the store could not be read": func(w *watched) {
			w.store.blind.Store(true)
			time.Sleep(100 * time.Millisecond)
			w.store.blind.Store(false)
		},
		"a heartbeat was not noted": func(w *watched) { w.suspects.MissedHeartbeat() },
		"the replica stood still":   func(w *watched) { w.skipped.Add(int64(400 * time.Millisecond)) },
		"the clock was set back":    func(w *watched) { w.skipped.Add(-int64(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watching(t, func(w *watched) {
				w.neighbour("e2")
				w.breaks()
				time.Sleep(at)
				happens(w)
				w.loses(at+atOnce, at+soon)
			}, func(s *sweep.Sweep) { s.SilentAfter = time.Minute })
		})
	}
}

func TestAStrikeThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("e2")
		w.store.frozen.Store(true)
		w.breaks()
		time.Sleep(1500 * time.Millisecond)
		w.store.frozen.Store(false)
		w.loses(2*time.Second, 2600*time.Millisecond)
	}, func(s *sweep.Sweep) { s.SilentAfter = time.Minute })
}

func TestWithoutAGraceNobodyIsSuspected(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("e2")
		w.breaks()
		w.loses(silence, silenceEnds)
		if looks := w.store.looks.Load(); looks != 0 {
			t.Errorf("it cost %d looks", looks)
		}
	}, func(s *sweep.Sweep) { s.BrokenAfter = 0 })
}

func TestAnExecutorThatReconnectsInALoopKeepsItsRunsAndCostsLittle(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("e2")
		w.breaks()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(7 * time.Millisecond) {
			w.suspects.Join("e1")
			if err := w.store.Announce(w.Context(), "e1", nil, now()); err != nil {
				w.Fatal(err)
			}
			w.breaks()
		}
		if looks := w.store.looks.Load(); looks > 60*20+1 || len(w.requeued) > 0 {
			t.Errorf("it cost %d looks, and %d runs", looks, len(w.requeued))
		}
		w.loses(atOnce, soon)
	})
}

func TestManyExecutorsThatDieAtOnceAreForgottenAtOnce(t *testing.T) {
	t.Parallel()
	watching(t, func(w *watched) {
		w.neighbour("lives")
		ids := make([]string, 0, 300)
		for i := range cap(ids) {
			ids = append(ids, "dies "+string(rune('a'+i)))
			w.suspects.Join(ids[i])
			if err := w.store.Announce(w.Context(), ids[i], nil, now()); err != nil {
				w.Fatal(err)
			}
		}
		w.breaks()
		for _, id := range ids {
			w.suspects.Leave(id, true)
		}
		w.loses(atOnce, soon)
		if left, err := w.store.LastSeen(w.Context()); err != nil || len(left) != 1 {
			t.Errorf("got %d executors, %v; want the one that lives", len(left), err)
		}
	})
}
