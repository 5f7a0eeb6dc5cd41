package faults_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	each       = 4 // sessions of each kind
	powerLimit = 5 * time.Minute
)

// cutScript is the script of tales interrupted by the power cut.
var cutScript = script{steps: 5, chunks: shortStep}

// power locates the log and can reset it to an older copy.
type power struct {
	system *harness.System
	// snapshot copies the log's folder. cut kills the owner of the log, restores the copy, and restarts the
	// owner.
	snapshot func() (copied string)
	cut      func(copied string)
}

// More partitions than live runs: only a reader can notice the loss of a partition without writers.
var cutEnv = []string{"HOLDFAST_STREAM_PARTITIONS=8"}

func TestAPowerCutOfANATSServerCostsOneRepetitionOfTheStepInFlight(t *testing.T) {
	t.Parallel()
	testPowerCut(t, natsPower(t))
}

func TestAPowerCutOfTheEmbeddedLogCostsOneRepetitionOfTheStepInFlight(t *testing.T) {
	t.Parallel()
	testPowerCut(t, embeddedPower(t))
}

// The copy is an empty disk: even the partitions are gone.
func TestAPowerCutThatEmptiesTheLogCostsOneRepetitionOfTheStepInFlight(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) power{"a NATS server": natsPower, "the embedded log": embeddedPower} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			p.snapshot = t.TempDir
			testPowerCut(t, p)
		})
	}
}

func natsPower(t *testing.T) power {
	t.Helper()
	nats := harness.StartNATS(t, 1)
	return power{
		system:   harness.Start(t, harness.Options{Agents: cutScript.agents(), NATS: nats, StreamEnv: cutEnv, LogLevel: "info"}),
		snapshot: func() string { return nats.Snapshot(0) },
		cut: func(copied string) {
			nats.Kill(0)
			nats.Restore(0, copied)
			nats.Start(0)
			nats.WaitReady()
		},
	}
}

func embeddedPower(t *testing.T) power {
	t.Helper()
	s := harness.Start(t, harness.Options{Agents: cutScript.agents(), StreamEnv: cutEnv, LogLevel: "info"})
	return power{
		system:   s,
		snapshot: func() string { return harness.Snapshot(t, s.Stream, s.StreamDir) },
		cut: func(copied string) {
			s.Stream.Kill()
			harness.PutBack(t, copied, s.StreamDir)
			s.Stream.Start()
		},
	}
}

// The sessions of a power cut, by the part of them in the copy.
type cutSessions struct {
	kept  []*session // ended before the copy: complete
	torn  []*session // one turn before the copy, one after
	lost  []*session // begun after the copy: missing
	going []*session // a tale begun before the copy and interrupted
	young []*session // a tale begun after the copy and interrupted
}

func newCutSessions() *cutSessions {
	var c cutSessions
	for kind, list := range map[string]*[]*session{"kept": &c.kept, "torn": &c.torn, "lost": &c.lost} {
		for i := range each {
			name := fmt.Sprintf("%s%d", kind, i)
			*list = append(*list, &session{"cut/" + name, []turn{greeting(name)}})
		}
	}
	for kind, list := range map[string]*[]*session{"going": &c.going, "young": &c.young} {
		for i := range each {
			name := fmt.Sprintf("%s%d", kind, i)
			*list = append(*list, &session{"cut/" + name, []turn{cutScript.tale(name)}})
		}
	}
	return &c
}

func testPowerCut(t *testing.T, p power) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), powerLimit)
	defer cancel()
	begun := time.Now()
	phase := func(what string) { t.Logf("%s after %v", what, time.Since(begun).Round(100*time.Millisecond)) }
	client, all, readers := p.system.Client, newCutSessions(), newReadings(t)
	over, live := slices.Concat(all.kept, all.torn, all.lost), slices.Concat(all.going, all.young)

	// Before and after the copy.
	begin(ctx, t, client, slices.Concat(all.kept, all.torn))
	begin(ctx, t, client, all.going)
	there := readers.follow(ctx, client, "who was there", all.going)
	waitUntilOver(t, client, slices.Concat(all.kept, all.torn))
	waitForWords(t, client, all.going, cutScript)
	copied := p.snapshot()
	talk(ctx, t, client, all.torn, greeting("again"))
	begin(ctx, t, client, slices.Concat(all.lost, all.young))
	there = append(there, readers.follow(ctx, client, "who was there", all.young)...)
	waitUntilOver(t, client, all.lost)
	seen := readers.follow(ctx, client, "who had seen the end", over)
	wait(seen)
	waitForWords(t, client, all.young, cutScript)
	for _, s := range live {
		if !client.Status(t, s.id).IsExecuting {
			t.Errorf("the run of %s has ended before the power was cut", s.id)
		}
	}

	phase("the power goes")
	p.cut(copied)
	phase("the log is back")

	// During the runs: returning readers and new ones.
	for i, s := range over {
		seen[i].begin(ctx, s.text())
	}
	late := readers.follow(ctx, client, "who came behind the cut", live)
	fresh := &readings{t: t, seen: readers.seen}
	fresh.follow(ctx, client, "who came behind the cut", over)
	fresh.check()
	// When the conversations continue.
	wait(seen)
	phase("who came to runs that were over has ended")
	talk(ctx, t, client, over, greeting("afterwards"))
	for i, s := range over {
		seen[i].begin(ctx, s.text())
	}
	phase("the conversations have gone on")
	readers.check()
	phase("all readers have ended")
	for _, s := range slices.Concat(over, live) {
		checkStored(t, client, s)
	}
	for who, group := range map[string][]*reading{
		"who was there": there, "who had seen the end": seen, "who came to live runs": late, "who came to runs that were over": fresh.all,
	} {
		t.Logf("%d %s: %d times told rewound, %d reloads", len(group), who, count(group, countFrames("rewound")), count(group, reloads))
	}
	if count(there, countFrames("rewound")) == 0 {
		t.Error("no reader of a live run was told that something is void")
	}
	if n := count(seen, countFrames("rewound")); n > 0 {
		t.Errorf("readers of finished runs were told %d times that something is void: the database has it", n)
	}
}

// waitUntilOver waits until no session has a run.
func waitUntilOver(t *testing.T, c harness.Client, sessions []*session) {
	t.Helper()
	for _, s := range sessions {
		c.WaitStatus(t, s.id, "completed")
	}
}

// waitForWords waits until readers have received half of a step's words of each session.
func waitForWords(t *testing.T, c harness.Client, sessions []*session, tales script) {
	t.Helper()
	for _, s := range sessions {
		stream := c.Native(t, s.id, 0)
		stream.Until("half a step is told", func(n *harness.NativeStream) bool { return len(n.Text()) > len(s.text())/tales.steps/2 })
		stream.Close()
	}
}
