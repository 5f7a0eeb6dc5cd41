package server

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// lookCounter is a store that counts the looks of claims.
type lookCounter struct {
	store.Store
	mu    sync.Mutex
	looks looks
	most  func(look int) int // limits the queued runs found by a look, numbered from 1; nil for no limit
}

type looks struct{ queued, orphaned int }

// parts returns the store with its wrapped parts.
func (w *lookCounter) parts() store.Store {
	s := w.Store
	s.Updater = w
	return s
}

func (w *lookCounter) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	w.mu.Lock()
	switch due.(type) {
	case store.Queued:
		w.looks.queued++
		if w.most != nil {
			limit = min(limit, w.most(w.looks.queued))
		}
	case store.Orphaned:
		w.looks.orphaned++
	}
	w.mu.Unlock()
	if limit == 0 {
		return nil, nil
	}
	return w.Store.UpdateDue(ctx, due, need, limit, decide)
}

// looksSince waits until the loops are at rest, and returns the looks since its last call.
func (w *lookCounter) looksSince() looks {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.looks
	w.looks = looks{}
	return got
}

// countingLooks tests the looks of claims in a bubble of fake time.
func countingLooks(t *testing.T, poll time.Duration, test func(b *bench, w *lookCounter)) {
	synctest.Test(t, func(t *testing.T) {
		w := &lookCounter{Store: sqlitetest.Open(t)}
		test(newBenchOn(t, w.parts(), func(c *Config) { c.Scheduler.Poll, c.Scheduler.StopPoll = poll, time.Hour }), w)
	})
}

func (w *lookCounter) wants(b *bench, when string, want looks) {
	b.Helper()
	if got := w.looksSince(); got != want {
		b.Errorf("%s: got %+v, want %+v", when, got, want)
	}
}

func TestAClaimCostsOneLook(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		s := b.open("e1", 10)
		w.wants(b, "a stream opens", looks{1, 1})
		b.start("handed over")
		s.execute()
		w.wants(b, "a run starts while the loop waits", looks{})
		b.queue("a")
		ref := refTo(s.execute())
		w.wants(b, "a run was started elsewhere", looks{1, 0})
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		w.wants(b, "more credits", looks{})
		b.finish(ref)
		w.wants(b, "an executor ends a run", looks{})
		_, err := b.work.ReleaseRun(b.Context(), &statev1.ReleaseRunRequest{Run: ref})
		b.refuses(err, fault.Stale, "RUN_FINISHED")
		w.wants(b, "a command is refused", looks{})
	})
}

func TestARunThatCameDuringALookIsFoundByTheNext(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		s := b.open("e1", 10)
		w.looksSince()
		w.most = func(look int) int {
			if look == 1 { // the run begins during the look
				if _, err := b.server.runs.StartRun(b.Context(), startOf("b")); err != nil {
					b.Error(err)
				}
				return 1
			}
			return 10
		}
		b.queue("a")
		s.execute()
		s.execute()
		w.wants(b, "two runs", looks{2, 0})
	})
}

func TestASkippedRunIsFoundSoon(t *testing.T) {
	t.Parallel()
	for locked, want := range map[int]time.Duration{1: 3 * time.Millisecond, 2: 9 * time.Millisecond, 3: 21 * time.Millisecond} {
		countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
			s := b.open("e1", 10)
			w.looksSince()
			w.most = func(look int) int {
				if look <= locked {
					return 0
				}
				return 10
			}
			b.queue("a")
			began := time.Now()
			s.execute()
			if took := time.Since(began); took != want {
				b.Errorf("locked for %d looks: took %v, want %v", locked, took, want)
			}
			w.wants(b, "a run that was locked", looks{locked + 1, 0})
			time.Sleep(time.Minute)
			w.wants(b, "after it", looks{})
		})
	}
}

func TestTheSkippedOneOfTwoRunsIsFoundSoon(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		s := b.open("e1", 10)
		w.looksSince()
		w.most = func(look int) int {
			switch look {
			case 1:
				for _, id := range []string{"b", "c"} { // the loop is awake: one signal covers both
					if _, err := b.server.runs.StartRun(b.Context(), startOf(id)); err != nil {
						b.Error(err)
					}
				}
			case 2: // of b and c
			default:
				return 10
			}
			return 1
		}
		b.queue("a")
		began := time.Now()
		for range 3 {
			s.execute()
		}
		if took := time.Since(began); took != 3*time.Millisecond {
			b.Errorf("took %v, want 3 ms", took)
		}
		w.wants(b, "three runs", looks{3, 0})
	})
}

func TestMissingRunsAreLeftToThePoll(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		b.open("e1", 10)
		w.looksSince()
		b.server.Wake("support")
		time.Sleep(10 * time.Minute)
		w.wants(b, "a signal of nothing", looks{4, 0})
		b.server.Wake("support")
		time.Sleep(5 * time.Millisecond)
		b.server.Wake("support") // the search starts over
		time.Sleep(10 * time.Minute)
		w.wants(b, "two signals of nothing", looks{2 + 4, 0})
		time.Sleep(75 * time.Minute)
		if got := w.looksSince(); got.orphaned < 1 || got.orphaned > 3 || got.queued != got.orphaned {
			b.Errorf("the poll: got %+v, want it to look for everything", got)
		}
	})
}

func TestSignalsDoNotPostponeThePoll(t *testing.T) {
	t.Parallel()
	countingLooks(t, 200*time.Millisecond, func(b *bench, w *lookCounter) {
		b.open("e1", 10)
		w.looksSince()
		for began := time.Now(); w.looksSince().orphaned == 0; time.Sleep(time.Millisecond) {
			b.server.Wake("support")
			if took := time.Since(began); took > 301*time.Millisecond {
				b.Fatalf("no loop has looked for everything after %v", took)
			}
		}
	})
}

func TestABacklogGoesToAnotherLoop(t *testing.T) {
	t.Parallel()
	countingLooks(t, time.Hour, func(b *bench, w *lookCounter) {
		first, second := b.open("e1", 1), b.open("e2", 1)
		w.looksSince()
		w.most = func(look int) int {
			if look == 1 {
				if _, err := b.server.runs.StartRun(b.Context(), startOf("b")); err != nil {
					b.Error(err)
				}
			}
			return 10
		}
		b.queue("a")
		first.execute()
		second.execute()
	})
}
