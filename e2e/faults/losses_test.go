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
	// bootTime is the longest time NATS servers get to boot before they are killed again.
	bootTime = time.Second
	// liveSample is the number of sessions that must have new words before the next fault. liveWithin bounds
	// this wait, and livePause separates two attempts to read a session.
	liveSample = 20
	liveWithin = 2 * time.Minute
	livePause  = 100 * time.Millisecond
)

func TestUnderLossesOfTheLogNothingIsLostDoubledOrOutOfOrder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*(*copyAge)+settleWithin)
	defer cancel()
	// Runs do not wait for the log. A tale therefore outlasts all faults together, and a step outlasts one
	// outage; otherwise no step would lose a part and continue. On a slow machine a loss can take half a minute.
	l := startLoad(ctx, t, lasting(*copyAge+2*time.Minute, longStep))
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
	repeated := repeatedSteps(l.readers.all)
	t.Logf("%d times a step in flight was repeated", repeated)
	l.checkThatMuchHappened(map[string]int{
		"kills of all servers": f.killed, "servers replaced": f.replaced,
		"logs emptied": f.emptied, "copies put back": f.restored,
		"steps repeated": repeated,
	})
}

// losses destroys the log under load, on one goroutine.
type losses struct {
	*load

	// Counters of injected losses.
	killed, replaced, emptied, restored int
}

// run loses the log in every way. Each loss begins at least a third of the copies' age after the previous one,
// and when the log is ready with new words.
func (f *losses) run(ctx context.Context) {
	f.t.Helper()
	copies := f.nats.SnapshotAll()
	copied := time.Now()
	ways := []struct {
		name string
		lose func()
	}{
		{"all servers killed twice", f.killTwice},
		{"one server replaced", f.replaceOne},
		{"the log emptied", f.empty},
		{"the copies put back", func() { f.putBack(copies) }},
	}
	for i, way := range ways {
		// The copies have to age, so there is no event to wait for.
		time.Sleep(time.Until(copied.Add(*copyAge * time.Duration(i) / time.Duration(len(ways)-1))))
		age := time.Since(copied)
		way.lose()
		f.nats.WaitReady()
		ready := time.Since(copied)
		f.waitForLiveWords(ctx)
		f.phase("%s, %v after the copies were made: NATS is ready after %v, new words come after %v more; all this", way.name,
			age.Round(time.Second), (ready - age).Round(time.Second), (time.Since(copied) - ready).Round(time.Second))
	}
}

// killTwice kills all servers, and kills them again during their boot.
func (f *losses) killTwice() {
	f.killAll()
	f.startAll()
	// The moment is arbitrary on purpose, so there is no event to wait for.
	time.Sleep(rand.N(bootTime))
	f.killAll()
	f.startAll()
	f.killed++
}

// replaceOne replaces a server by one with the same name and an empty disk.
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

// putBack restores the disks of all servers from the copies.
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

// repeatedSteps counts repetitions of a step in flight after the log lost a part of it. Such a step has an
// attempt other than the first of its claim.
func repeatedSteps(readers []*reading) int {
	attempts := map[place]bool{}
	for _, one := range readers {
		for _, e := range one.Frames {
			at := positionOf(e)
			if e.Name == "chunk" && at.Attempt != position.Stored && (at.Attempt-1)%position.PerClaim > 0 {
				at.N = 1
				attempts[place{one.Session, fmt.Sprint(at)}] = true
			}
		}
	}
	return len(attempts)
}

// waitForLiveWords waits until the log delivers new words of liveSample sessions across all partitions.
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
			if err == nil || errors.Is(err, errRunOver) {
				return err
			}
			select {
			case <-time.After(livePause):
			case <-ctx.Done():
				return fmt.Errorf("the log brings no new word: %w", err)
			}
		}
	})
}

// errRunOver means that no more words can arrive.
var errRunOver = errors.New("the run is over")

// waitForLiveWord waits until the log delivers a word missing in the session's snapshot.
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
			return fmt.Errorf("%w: %s", errRunOver, e.Data)
		case e.Name == "chunk" && isLiveWord(e):
			return nil
		}
	}
}

// isLiveWord reports whether the chunk is text of the step in flight. Text of a stored step has other positions.
func isLiveWord(e harness.Event) bool {
	var frame struct {
		Chunk struct {
			Type string `json:"type"`
		} `json:"chunk"`
	}
	return json.Unmarshal([]byte(e.Data), &frame) == nil &&
		frame.Chunk.Type == "text_delta" && positionOf(e).Attempt != position.Stored
}

// positionOf returns the reader's position after an event; the beginning if the event has none.
func positionOf(e harness.Event) position.Position {
	sequence, _ := strconv.ParseInt(e.ID, 10, 64) // 0 without an id
	return position.Of(sequence)
}
