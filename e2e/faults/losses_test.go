package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/position"
)

const (
	// bootTime is the most that NATS servers get to boot before they are killed again.
	bootTime = time.Second
	// liveSample is of how many sessions words have to come before the next fault, and
	// liveWithin the longest that this may take.
	liveSample = 20
	liveWithin = 2 * time.Minute
)

func TestUnderLossesOfTheLogNothingIsLostDoubledOrOutOfOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*(*copyAge)+settleWithin)
	defer cancel()
	// Tales last longer than the copies are kept and the log is away, steps longer than it
	// is away at once: runs do not wait for the log.
	l := startLoad(ctx, t, lasting(*copyAge+45*time.Second, longStep))
	during, over := context.WithCancel(ctx)
	defer over()
	l.read(ctx, during)
	f := losses{load: l}
	f.waitForLiveWords(ctx)
	f.run(ctx)
	l.phase("the window closes")
	l.checkThatRunsLive()
	l.readLate(ctx)
	over()
	l.check()
	l.checkThatMuchHappened(map[string]int{
		"kills of all servers": f.killed, "servers replaced": f.replaced,
		"logs emptied": f.emptied, "copies put back": f.restored,
		"steps shown again": shownAgain(l.readers.all),
	})
}

// losses takes the log from a load, on one goroutine.
type losses struct {
	*load

	// What was done.
	killed, replaced, emptied, restored int
}

// run loses the log in every way, each of which begins a third of the copies' age after
// the last one, or later. After each the log is ready again and has new words.
func (f *losses) run(ctx context.Context) {
	f.t.Helper()
	copies := f.nats.SnapshotAll()
	copied := time.Now()
	faults := []struct {
		name string
		do   func()
	}{
		{"all servers killed twice", f.killTwice},
		{"one server replaced", f.replaceOne},
		{"the log emptied", f.empty},
		{"the copies put back", func() { f.putBack(copies) }},
	}
	for i, fault := range faults {
		// No event to wait for: the copies have to become old.
		time.Sleep(time.Until(copied.Add(*copyAge * time.Duration(i) / time.Duration(len(faults)-1))))
		age := time.Since(copied)
		fault.do()
		f.nats.WaitReady()
		ready := time.Since(copied)
		f.waitForLiveWords(ctx)
		f.phase("%s: %v behind the copies, ready after %v, new words after %v more:", fault.name,
			age.Round(time.Second), (ready - age).Round(time.Second), (time.Since(copied) - ready).Round(time.Second))
	}
}

// killTwice kills all servers, and again while they boot.
func (f *losses) killTwice() {
	f.killAll()
	f.startAll()
	// No event to wait for: that the moment is arbitrary is the point.
	time.Sleep(rand.N(bootTime))
	f.killAll()
	f.startAll()
	f.killed++
}

// replaceOne replaces one server with another one of the same name that has an empty disk.
func (f *losses) replaceOne() {
	lost := rand.N(f.nats.Nodes())
	f.nats.Kill(lost)
	f.nats.Restore(lost, f.t.TempDir())
	f.nats.Start(lost)
	f.replaced++
}

// empty empties the disks of all servers.
func (f *losses) empty() {
	f.killAll()
	for i := range f.nats.Nodes() {
		f.nats.Restore(i, f.t.TempDir())
	}
	f.startAll()
	f.emptied++
}

// putBack gives all servers the disks of the copies.
func (f *losses) putBack(copies []string) {
	f.killAll()
	for i, copied := range copies {
		f.nats.Restore(i, copied)
	}
	f.startAll()
	f.restored++
}

func (f *losses) killAll() {
	for i := range f.nats.Nodes() {
		f.nats.Kill(i)
	}
}

func (f *losses) startAll() {
	for i := range f.nats.Nodes() {
		f.nats.Start(i)
	}
}

// shownAgain counts the steps in flight that were shown again, because the log had lost
// them: the attempts of a claim that are not its first.
func shownAgain(readers []*reading) int {
	again := map[place]bool{}
	for _, one := range readers {
		for _, e := range one.Frames {
			at := positionOf(e)
			if e.Name == "chunk" && at.Attempt != position.Stored && (at.Attempt-1)%position.PerClaim > 0 {
				at.N = 1
				again[place{one.Session, fmt.Sprint(at)}] = true
			}
		}
	}
	return len(again)
}

// waitForLiveWords waits until the log has new words of some sessions, in all partitions.
func (f *losses) waitForLiveWords(ctx context.Context) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, liveWithin)
	defer cancel()
	var sample []*session
	for i := range liveSample {
		sample = append(sample, f.sessions[i*len(f.sessions)/liveSample])
	}
	atOnce(f.t, sample, func(s *session) error {
		for {
			err := waitForLiveWord(ctx, f.system.Client, s)
			if err == nil {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("the log has no new word: %w", err)
			}
		}
	})
}

// waitForLiveWord waits until a word comes that is not in the snapshot of the session,
// and that comes from the log.
func waitForLiveWord(ctx context.Context, c harness.Client, s *session) error {
	snapshot, err := c.Snapshot(ctx, s.id)
	if err != nil {
		return err
	}
	events, err := c.Listen(ctx, s.id, harness.SSE, snapshot.StreamSequence)
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		e, err := events.Next()
		switch {
		case err != nil:
			return err
		case e.Name == "end" || e.Name == "fail":
			return errors.New("the run has ended: " + e.Data)
		case e.Name == "chunk" && isLiveWord(e):
			return nil
		}
	}
}

// isLiveWord reports whether the chunk is text of the step in flight: a stored step has
// an attempt of its own.
func isLiveWord(e harness.Event) bool {
	var frame struct {
		Chunk struct {
			Type string `json:"type"`
		} `json:"chunk"`
	}
	return json.Unmarshal([]byte(e.Data), &frame) == nil &&
		frame.Chunk.Type == "text_delta" && positionOf(e).Attempt != position.Stored
}

// positionOf is where an event leaves its reader; the beginning where it names no position.
func positionOf(e harness.Event) position.Position {
	sequence, _ := strconv.ParseInt(e.ID, 10, 64) // 0 when it has no id
	return position.Of(sequence)
}
