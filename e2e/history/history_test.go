package history_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	replicas    = 2
	connsEach   = 6 // connections per replica: a cut hits some requests only
	perKind     = 8 // starters, submitters, executors; half as many hosts and readers
	deathPause  = 1000 * time.Millisecond
	cutPause    = 400 * time.Millisecond
	burst       = 4 // faults before a pause, long enough to detect dead executors
	calm        = 1500 * time.Millisecond
	quietWithin = 4 * time.Minute
	// enough is how often every tested event must happen. The window stays open until then, but not beyond
	// longest.
	enough  = 5
	longest = 2 * time.Minute
)

// The kinds of faults.
const (
	killReplica = iota
	cutClients
	cutDatabase
)

func TestNothingThatWasToldIsLost(t *testing.T) {
	url := pgtest.URL(t)
	states := harness.StartStates(t, replicas,
		"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+url,
		"HOLDFAST_STATE_SILENT_AFTER=700ms", "HOLDFAST_STATE_SWEEP_EVERY=100ms", "HOLDFAST_STATE_EXPIRE_EVERY=200ms",
		"HOLDFAST_STATE_CLAIM_FRESH=500ms", "HOLDFAST_STATE_CLAIM_POLL=50ms")
	ctx, cancel := context.WithTimeout(t.Context(), max(*window, longest)+2*quietWithin)
	defer cancel()
	w := &world{T: t, ctx: ctx, history: history{versions: map[string]map[int64]string{}, acked: map[string]int64{}, faults: map[string]int{}}}
	for _, p := range states {
		proxy := harness.StartProxy(t, p.Address)
		w.proxies = append(w.proxies, proxy)
		var conns []*grpc.ClientConn
		for range connsEach {
			conns = append(conns, harness.DialInternal(t, proxy.Address))
		}
		w.conns = append(w.conns, conns)
	}

	done := make(chan struct{})
	var clients, executors sync.WaitGroup
	for i := range perKind {
		clients.Go(w.starter)
		clients.Go(w.submitter)
		executors.Go(func() { w.executor(done) })
		if i%2 == 0 {
			clients.Go(w.host)
			clients.Go(w.reader)
		}
	}
	w.breakThings(states, url)
	w.closing.Store(true)
	clients.Wait()
	harness.WaitFor(t, quietWithin, "all runs to end", w.quiet)
	close(done)
	cancelled := make(chan struct{})
	go func() {
		executors.Wait()
		w.zombies.Wait()
		close(cancelled)
	}()
	select {
	case <-cancelled:
	case <-time.After(quietWithin):
		t.Fatal("an executor does not end")
	}
	w.check()
	w.checkThatMuchHappened()
}

// breakThings kills, cuts and terminates until the window has closed and enough has happened. Each kind of fault
// happens in every round, so also in a short window.
func (w *world) breakThings(states []*harness.Process, url string) {
	seed := uint64(time.Now().UnixNano())
	w.Logf("the seed of the faults is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	begun := time.Now()
	open := func() bool {
		since := time.Since(begun)
		return since < *window || since < longest && len(w.tooFew()) > 0
	}
	faults := []int{killReplica, cutDatabase, cutClients, cutClients}
	for n := 0; n%len(faults) > 0 || open(); n++ {
		if n%len(faults) == 0 {
			random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		// The moment is arbitrary on purpose, so there is no event to wait for.
		if n%burst == burst-1 {
			time.Sleep(calm)
		}
		switch faults[n%len(faults)] {
		case killReplica:
			time.Sleep(time.Duration(random.Int64N(int64(deathPause))))
			states[random.IntN(len(states))].Restart()
		case cutDatabase:
			time.Sleep(time.Duration(random.Int64N(int64(cutPause))))
			cutSessions(w.T, url)
		default:
			time.Sleep(time.Duration(random.Int64N(int64(cutPause))))
			w.proxies[random.IntN(len(w.proxies))].CutAll()
		}
	}
}

// cutSessions closes the replicas' connections to their database.
func cutSessions(t *testing.T, url string) {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
}

// happened counts the tested events.
func (h *history) happened() map[string]int {
	n := map[string]int{"starts": 0, "steps": 0, "answers accepted": 0, "answers consumed": 0}
	for _, s := range h.starts {
		if s.fate == acked {
			n["starts"]++
		}
	}
	for _, c := range h.commits {
		if c.fate == acked && c.step > 0 {
			n["steps"]++
			n["answers consumed"] += len(c.consumed)
		}
	}
	for _, s := range h.submits {
		if s.outcome == statev1.SubmitCallResponse_OUTCOME_ACCEPTED {
			n["answers accepted"]++
		}
	}
	return n
}

// tooFew returns the events that have not happened often enough.
func (w *world) tooFew() map[string]int {
	var n map[string]int
	w.observe(func(h *history) { n = h.happened() })
	maps.DeleteFunc(n, func(_ string, times int) bool { return times >= enough })
	return n
}

// checkThatMuchHappened fails the test if too few events happened.
func (w *world) checkThatMuchHappened() {
	h := &w.history
	w.Logf("told: %v, claims: %d, reads: %d, refused: %v", h.happened(), len(h.claims), h.reads, h.faults)
	for what, n := range w.tooFew() {
		w.Errorf("there were only %d %s; the test has proved little", n, what)
	}
}

func text(id string, role eventv1.Role) *eventv1.Message {
	return &eventv1.Message{Id: id, Role: role, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "text of " + id}}}}}
}

func appendTo(key, item string) *statev1.StateOp {
	return &statev1.StateOp{Key: key, Op: &statev1.StateOp_Append{Append: fmt.Sprintf("[%q]", item)}}
}

func rootOf(session string) (root string, isChild bool) { return strings.CutSuffix(session, "/child") }

// twice calls f twice concurrently.
func twice(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Go(f)
	wg.Wait()
}

// pause spreads requests randomly over time, up to d apart.
func pause(d time.Duration) { time.Sleep(rand.N(d)) }

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
