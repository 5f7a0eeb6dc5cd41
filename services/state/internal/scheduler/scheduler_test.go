package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// noStore is a store that the test does not call.
type noStore struct{ Store }

func newScheduler(t *testing.T) *Scheduler {
	t.Helper()
	return New(Config{}, Peers{Store: noStore{}, Caps: func() *store.Caps { return nil }, Suspects: sweep.NewSuspects(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

func TestAnUnreadSignalGoesToAnotherLoop(t *testing.T) {
	t.Parallel()
	h := newHub(time.Now)
	first, second := h.join([]string{"a"}, newCredits(1, 0)), h.join([]string{"a", "b"}, newCredits(1, 0))
	h.signal("a")
	h.leave(first)
	select {
	case <-second.woken:
	default:
		t.Error("the signal was lost")
	}
	h.signal("c") // no loop serves it
	h.signal("b")
	h.signal("b") // the loop is awake
	if len(second.woken) != 1 {
		t.Errorf("got %d signals, want 1", len(second.woken))
	}
}

func TestAStreamIsBrokenWhenNeitherSideHasEndedIt(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		gone  bool
		ended error
		want  bool
	}{
		{false, errors.New("the store failed"), false},
		{true, nil, true},
		{true, context.Canceled, true},
		{true, io.EOF, false}, // it closed its side, and its context ended before the loop noticed
	} {
		claims := &claimer{Scheduler: s, credits: newCredits(1, 0)}
		claims.credits.ended = c.ended
		ctx := t.Context()
		if c.gone {
			ctx = gone
		}
		if got := claims.broke(ctx); got != c.want {
			t.Errorf("gone %v, %v: got broken %v, want %v", c.gone, c.ended, got, c.want)
		}
	}
	s.Stop()
	if (&claimer{Scheduler: s, credits: newCredits(1, 0)}).broke(gone) {
		t.Error("a stream that the service has ended counts as broken")
	}
}

func TestACreditIsReservedOnce(t *testing.T) {
	t.Parallel()
	h := newHub(time.Now)
	c := &claimer{executorID: "e1", credits: newCredits(1, 0)}
	h.markIdle(h.join([]string{"a"}, c.credits), c, 0)
	first, second := h.findIdle("a"), h.findIdle("a")
	if first != c || second != c {
		t.Fatalf("got %v and %v, want the one with a free credit", first, second)
	}
	if !h.reserve(first) || h.reserve(second) {
		t.Error("the credit was not reserved exactly once")
	}
}

func TestIdleExecutorsAreFoundInTurn(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := newHub(func() time.Time { return now })
	of := func(id string, credits int) *claimer {
		return &claimer{executorID: id, credits: newCredits(credits, 0)}
	}
	join := func(c *claimer, agents ...string) *waiter {
		w := h.join(agents, c.credits)
		h.markIdle(w, c, 0)
		return w
	}
	first := of("first", 2)
	w := join(first, "a", "b")
	join(of("second", 1), "a")
	join(of("none", 0), "a")
	deaf := of("deaf", 1)
	deaf.outbox.more = make(chan struct{}, 1)
	join(deaf, "a")
	for range maxUnsent {
		deaf.outbox.put(store.Decided{}, now)
	}
	h.join([]string{"a"}, newCredits(1, 0)) // has not looked for work yet
	took := func(agent string) string {
		if c := h.findIdle(agent); c != nil && h.reserve(c) {
			return c.executorID
		}
		return ""
	}
	for i, want := range []string{"first", "second", "first", ""} {
		if got := took("a"); got != want {
			t.Errorf("%d: got a credit of %q, want %q", i, got, want)
		}
	}
	deaf.outbox.sent(1, now)
	now = now.Add(slowAfter + 1)
	if got := took("a"); got != "" {
		t.Errorf("got a credit of %q, whose stream sends nothing", got)
	}
	deaf.outbox.sent(1, now)
	if got := took("a"); got != "deaf" {
		t.Errorf("got a credit of %q, want the executor that reads again", got)
	}
	first.credits.giveBack(1)
	h.signal("b") // its one credit is for that run
	if got := took("b"); got != "" {
		t.Errorf("got a credit of %q, which was notified of work", got)
	}
	first.credits.giveBack(1)
	if got := took("b"); got != "first" {
		t.Errorf("got %q, want its second credit", got)
	}
	if runs := h.take(w, 1); runs != 1 {
		t.Errorf("notified of %d runs, want 1", runs)
	}
	h.markIdle(w, first, 1)
	if got := took("b"); got != "" {
		t.Errorf("got a credit of %q, which has to look again for a missing run", got)
	}
	h.markBacklog(w)
	first.credits.giveBack(10)
	if got := took("b"); got != "" {
		t.Errorf("got a credit of %q, which has work behind", got)
	}
	h.markIdle(w, first, 0)
	if got := took("b"); got != "first" {
		t.Errorf("got a credit of %q", got)
	}
	h.signal("b")
	h.signal("b")
	h.take(w, 1) // more than its limit
	if got := took("b"); got != "" {
		t.Errorf("got a credit of %q, which has work behind", got)
	}
}

func TestSpareCreditsAreTakenLast(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		free, spare, limit int
		taken              int
		isSpare            bool
	}{
		{free: 5, spare: 2, limit: 16, taken: 3},
		{free: 5, spare: 2, limit: 1, taken: 1},
		{free: 3, spare: 2, limit: 16, taken: 1},
		{free: 2, spare: 2, limit: 16, taken: 2, isSpare: true},
		{free: 1, spare: 2, limit: 16, taken: 1, isSpare: true},
		{free: 0, spare: 2, limit: 16, taken: 0, isSpare: true},
		{free: 5, spare: 0, limit: 16, taken: 5},
		{free: 5, spare: -1, limit: 16, taken: 5},
		{free: -1, spare: -1, limit: 16, taken: 0, isSpare: true},
	} {
		credits := newCredits(c.free, c.spare)
		if n, spare := credits.take(c.limit); n != c.taken || spare != c.isSpare {
			t.Errorf("%+v: took %d, spare %v", c, n, spare)
		}
	}
}

func TestASignalGoesToALoopThatServesAnyTenant(t *testing.T) {
	t.Parallel()
	h := newHub(time.Now)
	spare := h.join([]string{"a"}, newCredits(2, 2))
	if h.signal("a") {
		t.Error("the other replicas were not asked although only spare credits are left here")
	}
	if len(spare.woken) != 1 {
		t.Error("the loop with spare credits was not woken, which is the only one")
	}
	h.take(spare, 2)
	open := h.join([]string{"a"}, newCredits(3, 2))
	if !h.signal("a") || len(open.woken) != 1 || len(spare.woken) != 0 {
		t.Errorf("got %d signals for the open loop and %d for the other, want 1 and 0", len(open.woken), len(spare.woken))
	}
	h.take(open, 1)
	h.passSignal(spare, 1)
	h.passSignal(open, 1) // to no loop: they would pass it to each other for ever
	if len(open.woken) != 1 || len(spare.woken) != 0 {
		t.Errorf("got %d signals for the open loop and %d for the other, want 1 and 0", len(open.woken), len(spare.woken))
	}
}

func TestAStopThatOvertakesItsClaimIsSentAgain(t *testing.T) {
	t.Parallel()
	s := newStops()
	box := s.join("e1")
	stop := store.StoppedRun{ExecutorID: "e1", RunID: "r", Stop: session.Stop{Kind: session.StopAbort}}
	s.send(stop)
	s.send(stop)
	if got := s.take(box); len(got) != 1 {
		t.Errorf("got %v, want the stop once", got)
	}
	s.sync([]string{"e1"}, []store.StoppedRun{stop})
	if got := s.take(box); len(got) != 0 {
		t.Errorf("got %v, want no stop that was sent", got)
	}
	s.forget(box, "r")
	s.sync([]string{"e1"}, []store.StoppedRun{stop})
	if got := s.take(box); len(got) != 1 {
		t.Errorf("got %v, want the stop again once the run was handed over", got)
	}
	s.sync([]string{"e1"}, nil) // the run has ended
	if len(box.sent) != 0 {
		t.Errorf("got %v stored for runs that have ended", box.sent)
	}
	s.leave(box)
	if s.send(stop); len(s.take(box)) != 0 {
		t.Error("a stop was left for an executor that has disconnected")
	}
}

func TestSignalsNeedAStoreThatCarriesThem(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	if s.replicas != nil {
		t.Fatal("the store carries signals")
	}
	s.replicas.send("x")            // does nothing
	s.exchangeSignals(t.Context())  // returns
	s.receive("of a newer version") // is ignored
}

func TestTheExecutorOfARunThatWasEndedFromOutsideIsTold(t *testing.T) {
	t.Parallel()
	s := newScheduler(t)
	box := s.stops.join("executor one")
	s.Notify([]*session.Change{nil, {CutOff: &session.Run{RunID: "run_queued"}}, {CutOff: &session.Run{RunID: "run_1", ExecutorID: "executor one"}}})
	if got := s.stops.take(box); len(got) != 1 || got["run_1"].Kind != session.StopAbort {
		t.Errorf("got %v, want an abort of run_1", got)
	}
	s.replicas = &replicas{more: make(chan struct{}, 1), pending: map[string]bool{}}
	s.Notify([]*session.Change{{CutOff: &session.Run{RunID: "run_2", ExecutorID: "executor two"}}})
	signals := s.replicas.take()
	other := newScheduler(t)
	there := other.stops.join("executor two")
	for _, what := range signals {
		other.receive(what)
	}
	if got := other.stops.take(there); len(got) != 1 || got["run_2"].Kind != session.StopAbort {
		t.Errorf("the signals %q brought %v, want an abort of run_2", signals, got)
	}
}
