package faults_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	liveSessions = 200
	// Of the sessions every chatEvery-th is read over the chat stream too, every
	// socketEvery-th over a WebSocket, and every zombieEvery-th has a zombie, and
	// a turn before the tale, whose writer's epoch is old.
	chatEvery   = 10
	socketEvery = 8
	zombieEvery = 8

	// cutEvery is the mean time between two cuts of readers, cutShare the part of
	// their connections that one cut meets.
	cutEvery = 300 * time.Millisecond
	cutShare = 0.08

	// settleWithin is how long the end of all runs behind the window may take, and a
	// look at all of them then; what the faults delay comes on top.
	settleWithin = 5 * time.Minute
)

func TestUnderFaultsNothingIsLostDoubledOrOutOfOrder(t *testing.T) {
	t.Parallel()
	start := time.Now()
	// Tales last longer than the window, and are begun before it; on a slow machine a
	// round of faults takes longer than it should.
	steps := int(*window/stepTime) + 8
	nats := harness.StartNATS(t, 3)
	t.Logf("NATS is ready after %v", time.Since(start).Round(time.Second))
	s := harness.Start(t, harness.Options{
		Agents: agents(steps), Executors: 2, Streams: 2, NATS: nats, LogLevel: "info",
		StreamEnv: []string{"HOLDFAST_STREAM_PARTITIONS=4"},
		// Elections take up to nine seconds each; runs wait for their readers.
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_STREAM_PATIENCE=60s"},
	})
	t.Logf("the system is ready after %v", time.Since(start).Round(time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 2*(*window)+settleWithin)
	defer cancel()
	front := harness.StartProxy(t, s.Gateway.Address)
	client := harness.Client{URL: front.URL, Key: harness.Key}

	sessions := make([]*session, liveSessions)
	for i := range sessions {
		name := fmt.Sprintf("t%03d", i)
		sessions[i] = &session{"faults." + name, []turn{tale(name, steps)}}
		if i%zombieEvery == 0 {
			sessions[i].turns = []turn{greeting(name), tale(name, steps)}
		}
	}
	begin(ctx, t, s.Client, sessions)
	t.Logf("%d runs live %v after the start", len(sessions), time.Since(start).Round(time.Second))

	readers, chats := newReadings(t), newChats(t)
	undead := newZombies(t, s)
	during, over := context.WithCancel(ctx)
	defer over()
	for i, one := range sessions {
		readers.begin(ctx, "the reader", &harness.Reader{Client: client, Session: one.id}, one.text())
		if i%socketEvery == 1 {
			readers.begin(ctx, "the reader with a socket", &harness.Reader{Client: client, Session: one.id, Wire: harness.WebSocket}, one.text())
		}
		if i%chatEvery == 1 {
			chats.begin(ctx, client, one)
		}
		if i%zombieEvery == 0 {
			undead.begin(during, one)
		}
	}
	var cutting sync.WaitGroup
	cutting.Go(func() { cut(during, front) })
	b := newBreaker(t, nats, s)
	b.run(*window)
	t.Logf("the window closes after %v", time.Since(start).Round(time.Second))
	checkThatRunsLive(t, s.Client, sessions)
	b.mend()
	t.Logf("everything runs again after %v", time.Since(start).Round(time.Second))
	undead.waitForAll()
	for i := 0; i < len(sessions); i += chatEvery {
		readers.begin(ctx, "the late reader", &harness.Reader{Client: client, Session: sessions[i].id}, sessions[i].text())
	}
	over()
	cutting.Wait()
	undead.wg.Wait()
	chats.check()
	readers.check()
	t.Logf("all readers have ended after %v", time.Since(start).Round(time.Second))
	after := newReadings(t)
	ctx, cancel = context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	for _, one := range sessions {
		checkStored(t, s.Client, one)
		after.begin(ctx, "who came afterwards", &harness.Reader{Client: s.Client, Session: one.id}, one.text())
	}
	after.check()
	checkThatMuchHappened(t, b, undead, readers)
}

// cut resets connections of readers at random moments.
func cut(ctx context.Context, front *harness.Proxy) {
	for ctx.Err() == nil {
		front.CutSome(cutShare)
		select {
		case <-time.After(rand.N(2 * cutEvery)):
		case <-ctx.Done():
		}
	}
}

// checkThatRunsLive looks whether the runs have lasted longer than the faults.
func checkThatRunsLive(t *testing.T, c harness.Client, sessions []*session) {
	t.Helper()
	const asked = 20
	live := 0
	for i := range asked {
		if c.Status(t, sessions[i*len(sessions)/asked].id).IsExecuting {
			live++
		}
	}
	if live < asked/2 {
		t.Errorf("of %d runs %d are live when the window closes: they have not met all faults", asked, live)
	}
}

// checkThatMuchHappened keeps the test from passing because nothing was done.
func checkThatMuchHappened(t *testing.T, b *breaker, z *zombies, r *readings) {
	t.Helper()
	drops := count(r.all, func(one *reading) int { return one.Drops })
	resumes := count(r.all, func(one *reading) int { return one.Connections - 1 })
	rewound := count(r.all, told("rewound"))
	t.Logf("%d leaders and %d stream services killed (%d times the others took over), %d NATS servers and %d executors frozen",
		b.leadersKilled, b.streamsKilled, b.switches, b.nodesFrozen, b.executorsFrozen)
	t.Logf("%d readers: %d drops, %d resumes, %d times told rewound, %d reloads", len(r.all), drops, resumes, rewound, count(r.all, reloads))
	t.Logf("zombies: %v refused, %d not answered, %d sessions were taken over under them", z.refused, z.unanswered, len(z.takeovers))
	counts := map[string]int{
		"leaders killed": b.leadersKilled, "NATS servers frozen": b.nodesFrozen, "stream services killed": b.streamsKilled,
		"executors frozen": b.executorsFrozen, "frames rewound": rewound,
	}
	maps.Copy(counts, z.counts())
	for what, n := range counts {
		if n == 0 {
			t.Errorf("there were no %s; the test has proved little", what)
		}
	}
	if drops < len(r.all)/2 || resumes < len(r.all)/2 {
		t.Errorf("%d readers were dropped %d times and resumed %d times; the test has proved little", len(r.all), drops, resumes)
	}
}
