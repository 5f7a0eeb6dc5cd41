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
	"github.com/holdfast-run/holdfast/services/state/internal/store/memory"
)

// searched is a store that counts how often claims look into it.
type searched struct {
	store.Store
	mu    sync.Mutex
	looks looks
	most  func(look int) int // of the queued runs that a look finds, searched from 1; nil for all
}

type looks struct{ queued, orphaned int }

func (w *searched) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
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

// since is what was looked for since the last time, when the loops have come to
// rest.
func (w *searched) since() looks {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.looks
	w.looks = looks{}
	return got
}

// looking tests the looks of claims in a bubble of fake time.
func looking(t *testing.T, poll time.Duration, test func(b *bench, w *searched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &searched{Store: memory.New()}
		test(newBenchOn(t, w, func(c *Config) { c.Scheduler.Poll, c.Scheduler.StopPoll = poll, time.Hour }), w)
	})
}

func (w *searched) wants(b *bench, when string, want looks) {
	b.Helper()
	if got := w.since(); got != want {
		b.Errorf("%s: got %+v, want %+v", when, got, want)
	}
}

func TestAClaimCostsOneLook(t *testing.T) {
	t.Parallel()
	looking(t, time.Hour, func(b *bench, w *searched) {
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
	looking(t, time.Hour, func(b *bench, w *searched) {
		s := b.open("e1", 10)
		w.since()
		w.most = func(look int) int {
			if look == 1 { // the run that it is about comes too late for it
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

func TestARunThatWasPassedOverIsFoundSoon(t *testing.T) {
	t.Parallel()
	for locked, want := range map[int]time.Duration{1: 3 * time.Millisecond, 2: 9 * time.Millisecond, 3: 21 * time.Millisecond} {
		looking(t, time.Hour, func(b *bench, w *searched) {
			s := b.open("e1", 10)
			w.since()
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

func TestOfTwoRunsTheOneThatWasPassedOverIsFoundSoon(t *testing.T) {
	t.Parallel()
	looking(t, time.Hour, func(b *bench, w *searched) {
		s := b.open("e1", 10)
		w.since()
		w.most = func(look int) int {
			switch look {
			case 1:
				for _, id := range []string{"b", "c"} { // the loop is awake: one signal says both
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

func TestWhatIsNotFoundSoonIsLeftToThePoll(t *testing.T) {
	t.Parallel()
	looking(t, time.Hour, func(b *bench, w *searched) {
		b.open("e1", 10)
		w.since()
		b.server.Wake("support")
		time.Sleep(10 * time.Minute)
		w.wants(b, "a signal of nothing", looks{4, 0})
		b.server.Wake("support")
		time.Sleep(5 * time.Millisecond)
		b.server.Wake("support") // the search begins anew
		time.Sleep(10 * time.Minute)
		w.wants(b, "two signals of nothing", looks{2 + 4, 0})
		time.Sleep(75 * time.Minute)
		if got := w.since(); got.orphaned < 1 || got.orphaned > 3 || got.queued != got.orphaned {
			b.Errorf("the poll: got %+v, want it to look for everything", got)
		}
	})
}

func TestSignalsDoNotPutThePollOff(t *testing.T) {
	t.Parallel()
	looking(t, 200*time.Millisecond, func(b *bench, w *searched) {
		b.open("e1", 10)
		w.since()
		for began := time.Now(); w.since().orphaned == 0; time.Sleep(time.Millisecond) {
			b.server.Wake("support")
			if took := time.Since(began); took > 301*time.Millisecond {
				b.Fatalf("nobody has looked for everything after %v", took)
			}
		}
	})
}

func TestWhatOneLoopCannotTakeGoesToAnother(t *testing.T) {
	t.Parallel()
	looking(t, time.Hour, func(b *bench, w *searched) {
		first, second := b.open("e1", 1), b.open("e2", 1)
		w.since()
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
