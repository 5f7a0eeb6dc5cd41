package crashmatrix_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	// mortals is the number of executors that die repeatedly, and talkers the number of concurrent sessions.
	mortals = 4
	talkers = 16
	// passings bounds the number of points that an executor passes before it dies. Every other executor dies up
	// to lateness after the point.
	passings = 150
	lateness = 20 * time.Millisecond
	// fewestKills is the least number of kills, regardless of time.
	fewestKills = 20
	// killLimit bounds the time to the next kill, and thus the whole test.
	killLimit = 20 * time.Second
	// ledgerAgent is the agent of all executors in this test.
	ledgerAgent = "ledger@all"
)

// TestTheOutsideWorldSeesEachEffectOnceHoweverManyExecutorsDie kills executors at random points: -ledger.kills
// times, or as often as -ledger.window permits, but at least fewestKills times. make torture lifts the window and
// kills 400 times; the default covers fewer combinations of points.
func TestTheOutsideWorldSeesEachEffectOnceHoweverManyExecutorsDie(t *testing.T) {
	t.Parallel()
	l := &ledgerRun{T: t, agent: ledgerAgent}
	l.converse = l.converseUntilCompleted
	l.kill(talkers, l.report)
}

// kill lets sessions converse while it kills executors, then checks what is left.
func (l *ledgerRun) kill(talkers int, check func()) {
	l.Helper()
	t := l.T
	seed := cmp.Or(*ledgerSeed, uint64(time.Now().UnixNano()))
	t.Logf("the seed is %d: -ledger.seed=%[1]d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	w := newWorld(t, func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.IntN(30)) * time.Millisecond
	}, []string{"HOLDFAST_STATE_SILENT_AFTER=1500ms"}, "HOLDFAST_EXECUTOR_MAX_LOSSES=1000000")
	limit := time.Duration(*ledgerKills) * killLimit / mortals
	if *ledgerWindow > 0 {
		limit = *ledgerWindow
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+caseLimit)
	defer cancel()

	window, closeWindow := context.WithTimeout(ctx, limit)
	defer closeWindow()

	l.world, l.ctx, l.seed, l.window = w, ctx, seed, window
	var dying, talking sync.WaitGroup
	for i := range mortals {
		dying.Go(func() { l.die(i) })
	}
	for i := range talkers {
		talking.Go(func() { l.talk(i) })
	}
	dying.Wait()
	l.over.Store(true)
	if err := w.rescue(ctx, l.agent); err != nil {
		t.Errorf("the executor that does the rest: %v", err)
	}
	talking.Wait()
	check()
	want := int64(*ledgerKills)
	if *ledgerWindow > 0 {
		want = min(want, fewestKills)
	}
	if l.kills.Load() < want {
		t.Errorf("%d executors were killed within %v, want %d", l.kills.Load(), limit, want)
	}
}

// ledgerRun is one execution of the test.
type ledgerRun struct {
	*testing.T
	*world
	agent    string
	converse func(session string) error // one session, to its end
	ctx      context.Context            //nolint:containedctx // a run of the test ends when everything has to be over
	seed     uint64
	begun    atomic.Int64 // executors with a planned death
	over     atomic.Bool  // no new session begins
	kills    atomic.Int64 // completed kills
	// window is the time for the dying.
	window context.Context //nolint:containedctx // as ctx

	mu       sync.Mutex
	sessions []string
}

// die repeatedly starts an executor that kills itself.
func (l *ledgerRun) die(i int) {
	for generation := 0; l.begun.Add(1) <= int64(*ledgerKills); generation++ {
		env := []string{
			"FAULT_AGENT=" + l.agent, "FAULT_RANDOM=" + strconv.Itoa(passings),
			fmt.Sprintf("FAULT_SEED=%d", l.seed+uint64(i)<<32+uint64(generation)),
		}
		if generation%2 == 1 {
			env = append(env, "FAULT_LATE="+lateness.String())
		}
		p := l.executor(l.T, fmt.Sprintf("mortal-%d-%d", i, generation), env...)
		p.StartOnly()
		p.AllowExit()
		if !l.awaitEnd(p) {
			p.Kill()
			return
		}
		l.kills.Add(1)
	}
}

// awaitEnd waits until the executor has killed itself. It reports false once the window is over and enough
// executors have died.
func (l *ledgerRun) awaitEnd(p *harness.Process) (ended bool) {
	select {
	case <-p.Ended():
		return true
	case <-l.window.Done():
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for l.kills.Load() < fewestKills {
		select {
		case <-p.Ended():
			return true
		case <-l.ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return false
}

// talk starts one session after the other and waits for each.
func (l *ledgerRun) talk(i int) {
	for n := 0; !l.over.Load() && l.ctx.Err() == nil; n++ {
		session := fmt.Sprintf("%d/%d", i, n)
		if err := l.converse(session); err != nil {
			l.Errorf("session %s: %v", session, err)
			return
		}
		l.mu.Lock()
		l.sessions = append(l.sessions, session)
		l.mu.Unlock()
	}
}

// ask sends the message. The agent is unknown until the first executor announces it.
func (l *ledgerRun) ask(session string) error {
	for {
		err := l.Ask(l.ctx, session, l.agent, session)
		if status, _, ok := harness.Refusal(err); !ok || status != 404 || l.ctx.Err() != nil {
			return err
		}
	}
}

func (l *ledgerRun) converseUntilCompleted(session string) error {
	if err := l.ask(session); err != nil {
		return err
	}
	sessions := statev1.NewSessionServiceClient(l.conn)
	for {
		got, err := sessions.GetSession(l.ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: session})
		switch {
		case err != nil:
			return err
		case got.GetSession().GetStatus() == completed:
			return nil
		case got.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_ACTIVE && got.GetSession().GetStatus() != completed:
			return fmt.Errorf("it is %v: %v", got.GetSession().GetStatus(), got.GetSession().GetFailure())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-l.ctx.Done():
			return fmt.Errorf("it does not end: %v", got.GetCurrentRun())
		}
	}
}

// report compares every conversation with the ledger and prints totals.
func (l *ledgerRun) report() {
	var calls, uncertain, without, repeats, lookUps, problems int
	for _, session := range l.sessions {
		p := &talk{T: l.T, world: l.world, ctx: l.ctx, session: session}
		effects := recorded(p.messages())
		if len(effects) != 7 {
			l.Errorf("session %s has %d calls, want 7", session, len(effects))
		}
		for _, e := range effects {
			there := l.ledger.Entry(e.label)
			calls++
			if e.looksUp() {
				lookUps += there.Posts
			} else {
				repeats += max(there.Posts-1, 0)
			}
			if e.uncertain {
				uncertain++
			}
			if e.uncertain && there.Posts == 0 {
				without++
			}
			if problem := e.problem(there, false); problem != "" {
				problems++
				l.Errorf("session %s: %s %q: %s", session, e.tool, e.label, problem)
			}
		}
	}
	l.Logf("%d kills, %d runs, %d calls: %d told to be uncertain (%d of them had no effect), %d posts again under the same key, %d look-ups, %d wrong",
		l.kills.Load(), len(l.sessions), calls, uncertain, without, repeats, lookUps, problems)
}
