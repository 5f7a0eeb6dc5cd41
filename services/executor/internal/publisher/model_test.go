package publisher_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// outcome is the outcome of a request.
type outcome struct {
	Before, After bool // it fails before or after its effect
	Slow          int  // milliseconds
}

// op is the next event.
type op struct {
	Kind  string
	Bytes int
	Wait  int // milliseconds before it
}

// play is a run with its publisher and the expected content for readers.
type play struct {
	log       *publishertest.Log
	publisher *publisher.Publisher
	step      int32
	shown     string           // in the step in flight
	committed map[int32]string // text by step
	pieces    int
}

func openPlay(t *testing.T, fates []outcome, maxAppend int) *play {
	p := &play{log: &publishertest.Log{MaxAppend: maxAppend}, step: 1, committed: map[int32]string{}}
	p.publisher = openPlayWith(t, p.log, fates)
	return p
}

// openPlayWith starts a publisher with the given outcomes of its requests.
func openPlayWith(t *testing.T, log *publishertest.Log, fates []outcome) *publisher.Publisher {
	log.Gate = func(ctx context.Context, r *streamv2.AppendRequest) error {
		if len(fates) == 0 {
			return nil
		}
		now := fates[0]
		fates = fates[1:]
		time.Sleep(time.Duration(now.Slow) * time.Millisecond)
		if now.After {
			gate := log.Gate
			log.Gate = nil
			_, _ = log.Append(ctx, r)
			log.Gate = gate
		}
		if now.Before || now.After {
			return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no answer")
		}
		return nil
	}
	return start(t, log, claim())
}

func (p *play) perform(ctx context.Context, o op) {
	time.Sleep(time.Duration(o.Wait) * time.Millisecond)
	switch o.Kind {
	case "show":
		p.pieces++
		piece := fmt.Sprintf("<%d%s>", p.pieces, strings.Repeat("x", o.Bytes))
		p.shown += piece
		_ = p.publisher.Show(ctx, text(p.step, piece))
	case "retry":
		p.shown = ""
		p.publisher.Retry(publisher.ReasonStepRetried)
	case "commit":
		p.committed[p.step] = p.shown
		p.publisher.Commit(committed(p.step), nil)
		p.step, p.shown = p.step+1, ""
	case "lose":
		p.log.Lose()
	case "lose tail":
		p.log.LoseTail(1)
	case "down":
		p.log.Down.Store(true)
	case "up":
		p.log.Down.Store(false)
	}
}

// verify compares a reader's content with the expected content.
func (p *play) verify() error {
	if faults := p.log.Faults(); len(faults) > 0 {
		return fmt.Errorf("the publisher broke the rules: %v", faults)
	}
	var reader publishertest.Reader
	reader.Read(p.log.History("s")...)
	seen := map[int32]string{}
	for _, chunk := range reader.Chunks {
		seen[chunk.GetStep()] += chunk.GetTextDelta().GetDelta()
	}
	asked := func(step int32) bool {
		for _, s := range reader.ReadStored {
			if s.After < position.Committed(step) && s.UpTo >= position.Committed(step) {
				return true
			}
		}
		return false
	}
	for step, want := range p.committed {
		if got := seen[step]; got != want && !asked(step) {
			return fmt.Errorf("the reader has %q of step %d, and was not told to ask; want %q", got, step, want)
		}
	}
	if got := seen[p.step]; got != p.shown {
		return fmt.Errorf("the reader has %q of the step in flight, want %q", got, p.shown)
	}
	if got, want := reader.Cursor, position.Committed(p.step-1); p.step > 1 && p.shown == "" && got < want {
		return fmt.Errorf("the reader stands at %v, want %v", position.Of(got), position.Of(want))
	}
	return nil
}

// TestAReaderThatFollowsPositionsEndsWithWhatStands performs any sequence of shows, retries, commits, losses of
// the log and outages, with a log that accepts appends of any size or only small ones.
func TestAReaderThatFollowsPositionsEndsWithWhatStands(t *testing.T) {
	t.Parallel()
	kinds := []string{"show", "show", "show", "show", "show", "show", "retry", "commit", "commit", "lose", "lose tail", "down", "up", "up"}
	ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{
			Kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
			Bytes: rapid.SampledFrom([]int{0, 0, 80, 700, 5000}).Draw(t, "bytes"),
			Wait:  rapid.SampledFrom([]int{0, 0, 0, 1, 30, 300, 3000, 12000}).Draw(t, "wait"),
		}
	}), 1, 30)
	fates := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) outcome {
		return outcome{
			Before: rapid.IntRange(0, 5).Draw(t, "before") == 0, After: rapid.IntRange(0, 3).Draw(t, "after") == 0,
			Slow: rapid.SampledFrom([]int{0, 0, 1, 20, 2500}).Draw(t, "slow"),
		}
	}), 0, 40)
	rapid.Check(t, func(rt *rapid.T) {
		what, how := ops.Draw(rt, "ops"), fates.Draw(rt, "fates")
		maxAppend := rapid.SampledFrom([]int{0, 0, 1500, 400}).Draw(rt, "max append")
		var err error
		synctest.Test(t, func(t *testing.T) { // rapid must not draw or fail inside the bubble
			p := openPlay(t, how, maxAppend)
			for _, o := range what {
				p.perform(t.Context(), o)
			}
			p.log.Down.Store(false)
			time.Sleep(5 * time.Minute) // the checks find lost records
			err = p.verify()
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func claim() publisher.Claim {
	return publisher.Claim{Stream: &streamv2.StreamRef{Tenant: "acme", RootSessionId: "s", SessionId: "s"}, Epoch: 1, RunID: "run", Step: 1, Claims: 1}
}

// start opens a publisher and stops it at the end of the test.
func start(t *testing.T, log *publishertest.Log, c publisher.Claim) *publisher.Publisher {
	t.Helper()
	return startWith(t, log, c, publisher.Config{MaxDeltaBytes: 1000, MaxQueuedBytes: 4000, Patience: 10 * time.Second, CallTimeout: time.Second})
}

func text(step int32, delta string) *eventv1.Chunk {
	return &eventv1.Chunk{AgentId: "run", Step: step, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

func committed(step int32) *eventv1.Chunk {
	return &eventv1.Chunk{AgentId: "run", Step: step, Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{}}}
}
