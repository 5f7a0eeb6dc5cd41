package governor_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/governor"
)

// account is governors with their leases, as a store keeps them.
type account struct {
	governors []*governor.State
	limits    []governor.Limits
	leases    []map[string]*governor.Lease
}

func newAccount(limits ...governor.Limits) *account {
	a := &account{limits: limits}
	for range limits {
		a.governors = append(a.governors, &governor.State{})
		a.leases = append(a.leases, map[string]*governor.Lease{})
	}
	return a
}

func (a *account) update(id string, now governor.Millis, decide func([]*governor.Governor)) {
	var loaded []*governor.Governor
	for i, s := range a.governors {
		g := &governor.Governor{State: *s}
		for other, l := range a.leases[i] {
			switch {
			case l.Expires <= now:
				delete(a.leases[i], other)
			case other == id:
				copied := *l
				g.Lease = &copied
			default:
				g.Running++
			}
		}
		loaded = append(loaded, g)
	}
	decide(loaded)
	for i, g := range loaded {
		*a.governors[i] = g.State
		delete(a.leases[i], id)
		if g.Lease != nil {
			a.leases[i][id] = g.Lease
		}
	}
}

func (a *account) acquire(id string, tokens int64, now governor.Millis) (wait governor.Millis) {
	a.update(id, now, func(g []*governor.Governor) {
		wait = governor.Acquire(g, a.limits, governor.Call{LeaseID: id, Executor: "e", Tokens: tokens, TTL: 600_000}, now)
	})
	return wait
}

func (a *account) release(id string, used *int64, pause, now governor.Millis) {
	a.update(id, now, func(g []*governor.Governor) { governor.Release(g, id, used, pause, now) })
}

const start governor.Millis = 1_700_000_000_000

func expect(t *testing.T, what string, got, want governor.Millis) {
	t.Helper()
	if got != want {
		t.Errorf("%s: wait = %d ms, want %d", what, got, want)
	}
}

func TestTheCallAboveTheConcurrencyWaitsForAnEnd(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 2})
	expect(t, "first", a.acquire("1", 0, start), 0)
	expect(t, "second", a.acquire("2", 0, start), 0)
	expect(t, "third", a.acquire("3", 0, start), 250)
	expect(t, "fourth", a.acquire("4", 0, start), 500)
	a.release("1", nil, 0, start+100)
	expect(t, "fourth, before its turn", a.acquire("4", 0, start+150), 500)
	expect(t, "third", a.acquire("3", 0, start+250), 0)
	expect(t, "fourth, while two run", a.acquire("4", 0, start+300), 250)
}

func TestALeaseThatIsNotReleasedEndsWithItsTTL(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 1})
	expect(t, "first", a.acquire("1", 0, start), 0)
	expect(t, "at the last instant", a.acquire("2", 0, start+599_999), 250)
	expect(t, "after it", a.acquire("2", 0, start+600_000), 0)
}

func TestTheRequestAboveTheLimitWaitsForTheWindow(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Requests: 2})
	expect(t, "first", a.acquire("1", 0, start), 0)
	expect(t, "second", a.acquire("2", 0, start+30_000), 0)
	expect(t, "third, long before", a.acquire("3", 0, start+31_000), 5_000)
	expect(t, "third, shortly before", a.acquire("3", 0, start+61_000), 1_000)
	expect(t, "third", a.acquire("3", 0, start+62_000), 0)
	expect(t, "fourth", a.acquire("4", 0, start+62_000), 5_000)
}

func TestActualTokensReplaceTheEstimate(t *testing.T) {
	t.Parallel()
	less, more := int64(10), int64(95)
	a := newAccount(governor.Limits{Tokens: 100})
	expect(t, "first", a.acquire("1", 90, start), 0)
	expect(t, "second, with the estimate of the first", a.acquire("2", 50, start), 5_000)
	a.release("1", &less, 0, start+1_000)
	a.release("1", &less, 0, start+1_000)
	expect(t, "second, with the tokens of the first", a.acquire("2", 50, start+2_000), 0)
	a.release("2", &more, 0, start+40_000)
	expect(t, "third, when the estimates lie behind", a.acquire("3", 50, start+64_000), 0)
	expect(t, "fourth, with the excess of the second", a.acquire("4", 10, start+64_000), 5_000)
}

func TestAnEstimateAboveTheLimitTakesAWholeWindow(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Tokens: 100})
	expect(t, "large", a.acquire("1", 1_000, start), 0)
	expect(t, "small", a.acquire("2", 1, start+60_000), 2_000)
	expect(t, "small, later", a.acquire("2", 1, start+62_000), 0)
	expect(t, "large behind the small", a.acquire("3", 1_000, start+62_000), 5_000)
	expect(t, "small behind the large", a.acquire("4", 1, start+62_000), 5_000)
}

func TestARepeatedAcquireCountsOnce(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Requests: 2, Concurrency: 2})
	for range 3 {
		expect(t, "first", a.acquire("1", 0, start), 0)
	}
	expect(t, "second", a.acquire("2", 0, start), 0)
	a.release("1", nil, 0, start)
	expect(t, "third", a.acquire("3", 0, start), 5_000)
}

func TestATicketThatIsNotRenewedExpires(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 1})
	a.acquire("1", 0, start)
	expect(t, "the call that is gone", a.acquire("2", 0, start), 250)
	a.release("1", nil, 0, start)
	expect(t, "the next, while the ticket holds", a.acquire("3", 0, start+2_249), 500)
	expect(t, "the next, after it", a.acquire("3", 0, start+2_250), 0)
}

func TestAReleaseEndsTheWaitOfACall(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 1})
	a.acquire("1", 0, start)
	a.acquire("2", 0, start)
	a.release("2", nil, 0, start)
	a.release("1", nil, 0, start)
	expect(t, "the next", a.acquire("3", 0, start), 0)
}

func TestAPauseDelaysAllCallsAndIsBounded(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 5})
	a.release("unknown", nil, 60_000, start)
	expect(t, "after the pause of an unknown lease", a.acquire("1", 0, start), 0)
	a.release("1", nil, 1_000_000_000, start)
	expect(t, "in the pause", a.acquire("2", 0, start+299_000), 1_000)
	expect(t, "after the longest pause", a.acquire("2", 0, start+300_000), 0)
}

func TestACallThatWaitsForItsModelTakesNoRoomOfTheProvider(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Concurrency: 2}, governor.Limits{Concurrency: 1})
	a.acquire("1", 0, start)
	expect(t, "second of the model", a.acquire("2", 0, start), 250)
	other := &account{limits: a.limits[:1], governors: a.governors[:1], leases: a.leases[:1]}
	expect(t, "another model", other.acquire("3", 0, start), 0)
	a.release("1", nil, 0, start)
	expect(t, "second of the model, at its turn", a.acquire("2", 0, start+250), 0)
}

func TestTheClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Requests: 1})
	a.acquire("1", 0, start)
	expect(t, "behind", a.acquire("2", 0, start-50_000), 5_000)
	expect(t, "again", a.acquire("2", 0, start+62_000), 0)
}

// simulation is callers of one governor who ask, wait, end, vanish and time out.
type simulation struct {
	*rapid.T
	account *account
	limits  governor.Limits
	now     governor.Millis
	order   []string                   // of the first asks
	tokens  map[string]int64           // estimates
	waiting map[string]governor.Millis // the next ask
	running map[string]governor.Millis // the end
	begun   []begin
}

type begin struct {
	at     governor.Millis
	tokens int64
}

func (s *simulation) draw(name string, low, high int64) int64 {
	return rapid.Int64Range(low, high).Draw(s.T, name)
}

func (s *simulation) arrive() {
	id := fmt.Sprint("c", len(s.order))
	s.order = append(s.order, id)
	s.tokens[id], s.waiting[id] = s.draw("estimate", 0, 120), s.now
}

// endCalls ends the calls whose time has come.
func (s *simulation) endCalls() {
	for id, end := range s.running {
		if end <= s.now {
			delete(s.running, id)
			s.account.release(id, nil, 0, s.now)
		}
	}
}

// ask asks for each call that is due.
func (s *simulation) ask(vanish bool) {
	for _, id := range s.order {
		if at, ok := s.waiting[id]; !ok || at > s.now {
			continue
		}
		if vanish && s.draw("vanishes", 0, 15) == 0 {
			delete(s.waiting, id)
			continue
		}
		wait := s.account.acquire(id, s.tokens[id], s.now)
		if wait < 0 || wait > 5_000 {
			s.Fatalf("wait = %d ms, want at most 5000", wait)
		}
		if wait > 0 {
			s.waiting[id] = s.now + wait
			continue
		}
		delete(s.waiting, id)
		s.running[id] = s.now + governor.Millis(s.draw("lasts", 1, 20_000))
		s.begun = append(s.begun, begin{s.now, min(s.tokens[id], s.limits.Tokens)})
		if int64(len(s.running)) > s.limits.Concurrency {
			s.Fatalf("%d calls run, want at most %d", len(s.running), s.limits.Concurrency)
		}
	}
}

// checkMinutes checks each minute that ends with the begin of a call.
func (s *simulation) checkMinutes() {
	for i, last := range s.begun {
		var requests, tokens int64
		for _, b := range s.begun[:i+1] {
			if b.at > last.at-60_000 {
				requests++
				tokens += b.tokens
			}
		}
		if requests > s.limits.Requests || tokens > s.limits.Tokens {
			s.Fatalf("a minute has %d requests and %d tokens, want at most %+v", requests, tokens, s.limits)
		}
	}
}

func TestNoMinuteExceedsTheLimitsAndNoCallStarves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &simulation{T: t, now: start, tokens: map[string]int64{}, waiting: map[string]governor.Millis{}, running: map[string]governor.Millis{}}
		s.limits = governor.Limits{Requests: s.draw("requests", 1, 8), Tokens: s.draw("tokens", 10, 100), Concurrency: s.draw("concurrency", 1, 4)}
		s.account = newAccount(s.limits)
		for range s.draw("events", 30, 100) {
			if s.draw("arrives", 0, 2) == 0 {
				s.arrive()
			}
			s.now += governor.Millis(s.draw("passes", 1, 4_000))
			s.endCalls()
			s.ask(true)
		}
		// Each call that waits now begins in at most its share of minutes.
		for last := s.now + governor.Millis(len(s.waiting)+2)*90_000; len(s.waiting) > 0; s.now += 500 {
			if s.now > last {
				t.Fatalf("%d calls still wait", len(s.waiting))
			}
			s.endCalls()
			s.ask(false)
		}
		s.checkMinutes()
	})
}

// TestLaterCallsDoNotOvertake asks with small calls behind a large one.
func TestLaterCallsDoNotOvertake(t *testing.T) {
	t.Parallel()
	a := newAccount(governor.Limits{Tokens: 100, Concurrency: 10})
	a.acquire("first", 50, start)
	expect(t, "large", a.acquire("large", 100, start), 5_000)
	for now := start; now < start+62_000; now += 1_000 {
		if wait := a.acquire("large", 100, now); wait == 0 {
			t.Fatal("the large call begins in a window with tokens")
		}
		if wait := a.acquire("small", 1, now); wait == 0 {
			t.Fatalf("the small call has overtaken the large one after %d ms", now-start)
		}
	}
	expect(t, "large, in an empty window", a.acquire("large", 100, start+62_000), 0)
}
