package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// Every chatEvery-th session also has a reader on the chat stream, and every socketEvery-th one on a
	// WebSocket. Every zombieEvery-th has a zombie, and a turn before the tale so that the zombie has an old
	// epoch.
	chatEvery   = 10
	socketEvery = 8
	zombieEvery = 8

	// cutEvery is the mean time between two cuts, and cutShare the share of reader connections per cut.
	cutEvery = 300 * time.Millisecond
	cutShare = 0.08

	// settleWithin bounds the end of all runs after the window, and then the checks. Delays by faults come on
	// top.
	settleWithin = 5 * time.Minute
)

// load consists of live runs on a system with three NATS servers, and of their readers with cut connections.
type load struct {
	t        *testing.T
	start    time.Time
	nats     *harness.NATS
	system   *harness.System
	sessions []*session

	front   *harness.Proxy // between the readers and the gateway
	readers *readings
	chats   *chats
	cutting sync.WaitGroup
}

// startLoad starts a system and its runs. One half of the runs is half a step ahead of the others, so a fault
// always hits runs inside a step.
func startLoad(ctx context.Context, t *testing.T, tales script) *load {
	t.Helper()
	l := &load{t: t, start: time.Now(), readers: newReadings(t), chats: newChats(t)}
	l.nats = harness.StartNATS(t, 3)
	l.phase("NATS is ready")
	l.system = harness.Start(t, harness.Options{
		Agents: tales.agents(), Executors: 2, Streams: 2, NATS: l.nats, LogLevel: "info",
		StreamEnv: []string{"HOLDFAST_STREAM_PARTITIONS=4"},
		// An election takes up to nine seconds; runs wait for their readers.
		ExecutorEnv: []string{"HOLDFAST_EXECUTOR_STREAM_PATIENCE=60s"},
	})
	l.front = harness.StartProxy(t, l.system.Gateway.Address)
	l.phase("the system is ready")
	for i := range *liveSessions {
		name := fmt.Sprintf("t%03d", i)
		one := &session{"faults." + name, []turn{tales.tale(name)}}
		if i%zombieEvery == 0 {
			one.turns = []turn{greeting(name), tales.tale(name)}
		}
		l.sessions = append(l.sessions, one)
	}
	half := len(l.sessions) / 2
	begin(ctx, t, l.system.Client, l.sessions[:half])
	waitForWords(t, l.system.Client, l.sessions[half-1:half], tales)
	begin(ctx, t, l.system.Client, l.sessions[half:])
	l.phase("%d runs are live", len(l.sessions))
	return l
}

// phase logs an event with the time since the start.
func (l *load) phase(format string, args ...any) {
	l.t.Helper()
	l.t.Logf("%s after %v", fmt.Sprintf(format, args...), time.Since(l.start).Round(time.Second))
}

// read starts readers that read to the end of their sessions. Their connections are cut until during ends.
func (l *load) read(ctx, during context.Context) {
	client := harness.Client{URL: l.front.URL, Key: harness.Key}
	for i, one := range l.sessions {
		l.readers.begin(ctx, "the reader", &harness.Reader{Client: client, Session: one.id}, one.text())
		if i%socketEvery == 1 {
			l.readers.begin(ctx, "the reader with a socket", &harness.Reader{Client: client, Session: one.id, Wire: harness.WebSocket}, one.text())
		}
		if i%chatEvery == 1 {
			l.chats.begin(ctx, client, one)
		}
	}
	l.cutting.Go(func() { l.cut(during) })
}

// readLate starts readers after the faults.
func (l *load) readLate(ctx context.Context) {
	client := harness.Client{URL: l.front.URL, Key: harness.Key}
	for i := 0; i < len(l.sessions); i += chatEvery {
		one := l.sessions[i]
		l.readers.begin(ctx, "the late reader", &harness.Reader{Client: client, Session: one.id}, one.text())
	}
}

// cut resets connections of readers at random moments.
func (l *load) cut(ctx context.Context) {
	for ctx.Err() == nil {
		l.front.CutSome(cutShare)
		select {
		case <-time.After(rand.N(2 * cutEvery)):
		case <-ctx.Done():
		}
	}
}

// check waits for all readers. It compares their content, the stored conversation, and a late reader's content
// with the expected answers.
func (l *load) check() {
	l.t.Helper()
	l.cutting.Wait()
	l.chats.check()
	l.readers.check()
	l.phase("all readers have ended")
	after := newReadings(l.t)
	ctx, cancel := context.WithTimeout(l.t.Context(), settleWithin)
	defer cancel()
	for _, one := range l.sessions {
		checkStored(l.t, l.system.Client, one)
		after.begin(ctx, "who came afterwards", &harness.Reader{Client: l.system.Client, Session: one.id}, one.text())
	}
	after.check()
	l.phase("all conversations have been read again")
}

// checkThatRunsLive verifies that the runs lasted longer than the faults.
func (l *load) checkThatRunsLive() {
	l.t.Helper()
	const asked = 20
	live := 0
	for i := range asked {
		if l.system.Status(l.t, l.sessions[i*len(l.sessions)/asked].id).IsExecuting {
			live++
		}
	}
	if live < asked/2 {
		l.t.Errorf("of %d runs %d are live when the window closes: they have not met all faults", asked, live)
	}
}

// checkThatMuchHappened fails the test if a count is zero: then the test proved nothing.
func (l *load) checkThatMuchHappened(counts map[string]int) {
	l.t.Helper()
	all := l.readers.all
	drops := count(all, func(one *reading) int { return one.Drops })
	resumes := count(all, func(one *reading) int { return one.Connections - 1 })
	rewound := count(all, countFrames("rewound"))
	l.t.Logf("%d readers: %d drops, %d resumes, %d times told rewound, %d reloads", len(all), drops, resumes, rewound, count(all, reloads))
	counts["frames rewound"] = rewound
	for what, n := range counts {
		if n == 0 {
			l.t.Errorf("there were no %s; the test has proved little", what)
		}
	}
	if drops < len(all)/2 || resumes < len(all)/2 {
		l.t.Errorf("%d readers were dropped %d times and resumed %d times; the test has proved little", len(all), drops, resumes)
	}
}
