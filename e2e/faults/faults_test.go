package faults_test

import (
	"context"
	"maps"
	"testing"
	"time"
)

func TestUnderFaultsNothingIsLostDoubledOrOutOfOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*(*window)+settleWithin)
	defer cancel()
	// A tale begins before the window and outlasts it, also when a round of faults takes longer on a slow
	// machine.
	l := startLoad(ctx, t, lasting(*window+32*time.Second, shortStep))
	during, over := context.WithCancel(ctx)
	defer over()
	l.read(ctx, during)
	undead := newZombies(t, l.system)
	for i := 0; i < len(l.sessions); i += zombieEvery {
		undead.begin(during, l.sessions[i])
	}
	b := newBreaker(t, l.nats, l.system)
	b.run(*window)
	l.phase("the window closes")
	l.checkThatRunsLive()
	b.awaitReady()
	l.phase("everything runs again")
	undead.waitForAll()
	l.readLate(ctx)
	over()
	undead.wg.Wait()
	l.check()
	t.Logf("%d leaders and %d stream services killed (%d times the others took over), %d NATS servers and %d executors frozen",
		b.leadersKilled, b.streamsKilled, b.switches, b.nodesFrozen, b.executorsFrozen)
	t.Logf("zombies: %v refused, %d not answered, %d sessions were taken over under them", undead.refused, undead.unanswered, len(undead.takeovers))
	counts := map[string]int{
		"leaders killed": b.leadersKilled, "NATS servers frozen": b.nodesFrozen, "stream services killed": b.streamsKilled,
		"executors frozen": b.executorsFrozen,
	}
	maps.Copy(counts, undead.counts())
	l.checkThatMuchHappened(counts)
}
