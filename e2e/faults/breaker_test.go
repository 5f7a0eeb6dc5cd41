package faults_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// round is the duration of one round of faults.
	round = 20 * time.Second
	// frozenFor is the least time an executor is frozen: long enough to lose its runs.
	frozenFor = 5 * time.Second
)

// breaker injects faults on one goroutine. Every event has a time, so events overlap: a server may still be down
// when the next one is frozen.
type breaker struct {
	t      *testing.T
	nats   *harness.NATS
	system *harness.System
	random *rand.Rand
	since  time.Time // start of the executor's freeze

	// Counters of injected faults.
	leadersKilled, nodesFrozen, streamsKilled, executorsFrozen, switches int
}

type event struct {
	at time.Duration // since the start of the round
	do func()
}

func newBreaker(t *testing.T, nats *harness.NATS, system *harness.System) *breaker {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed of the faults is %d", seed)
	return &breaker{t: t, nats: nats, system: system, random: rand.New(rand.NewPCG(seed, 0))}
}

// run injects faults in rounds until the window closes. Afterwards every process has been started but may not be
// ready: see mend.
func (b *breaker) run(window time.Duration) {
	b.t.Helper()
	for end := time.Now().Add(window); time.Now().Before(end); {
		b.awaitReady()
		began := time.Now()
		for _, e := range b.plan() {
			// The moment is arbitrary on purpose, so there is no event to wait for.
			time.Sleep(time.Until(began.Add(e.at)))
			e.do()
		}
	}
}

// awaitReady waits until every process is ready again.
func (b *breaker) awaitReady() {
	b.t.Helper()
	for _, p := range b.system.Streams {
		p.WaitReady()
	}
	b.nats.WaitReady()
}

// plan is one round. A leader dies. The stream service dies without a leader, or while a server is frozen. An
// executor is frozen until its runs are given to others, and wakes up as a stale owner. A second leader dies
// under the new owner.
func (b *breaker) plan() []event {
	var events []event
	add := func(at, jitter time.Duration, do func()) {
		events = append(events, event{at + time.Duration(b.random.Int64N(int64(jitter))), do})
	}
	var dead, frozen int
	add(500*time.Millisecond, time.Second, func() { dead = b.killLeader() })
	add(3*time.Second, time.Second, func() { b.nats.Start(dead) })
	add(4*time.Second, 2*time.Second, func() { b.killStream(0); b.switchTo(1) })
	add(7*time.Second, time.Second, func() { b.system.Streams[0].StartOnly() })
	add(8*time.Second, time.Second, func() { frozen = b.freezeNode() })
	add(9*time.Second, 2*time.Second, func() { b.killStream(1) }) // no replica takes over: all readers wait
	add(11500*time.Millisecond, time.Second, func() { b.system.Streams[1].StartOnly() })
	add(13*time.Second, time.Second, func() { b.nats.Thaw(frozen) })
	victim := b.system.Executors[b.random.IntN(len(b.system.Executors))]
	add(14*time.Second, time.Second, func() { b.freezeExecutor(victim) })
	add(15*time.Second, time.Second, func() { dead = b.killLeader() })
	add(18500*time.Millisecond, time.Second, func() { b.thawExecutor(victim) })
	add(18500*time.Millisecond, time.Second, func() { b.nats.Start(dead) })
	add(round, 1, func() {})
	slices.SortStableFunc(events, func(x, y event) int { return cmp.Compare(x.at, y.at) })
	return events
}

func (b *breaker) killLeader() int {
	leader := b.leader()
	b.nats.Kill(leader)
	b.leadersKilled++
	return leader
}

// freezeNode freezes the leader of a partition.
func (b *breaker) freezeNode() int {
	leader := b.leader()
	b.nats.Freeze(leader)
	b.nodesFrozen++
	return leader
}

// leader finds the leader of a partition.
func (b *breaker) leader() int {
	streams := b.nats.Streams()
	stream := streams[b.random.IntN(len(streams))]
	leader := b.nats.Leader(stream)
	b.t.Logf("server %d leads %s", leader, stream)
	return leader
}

func (b *breaker) killStream(i int) {
	b.system.Streams[i].Kill()
	b.streamsKilled++
}

// switchTo routes all traffic to one replica of the stream service.
func (b *breaker) switchTo(i int) {
	b.system.GatewayFront.Switch(b.system.Streams[i].Address)
	b.system.ExecutorFront.Switch(b.system.Streams[i].Address)
	b.switches++
}

func (b *breaker) freezeExecutor(p *harness.Process) {
	p.Freeze()
	b.since = time.Now()
	b.executorsFrozen++
}

// thawExecutor waits until the executor has been frozen for frozenFor, and thaws it.
func (b *breaker) thawExecutor(p *harness.Process) {
	time.Sleep(time.Until(b.since.Add(frozenFor)))
	p.Thaw()
}
