package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

const (
	// zombieCall bounds one call of a zombie, zombiePause lies between two.
	zombieCall  = 2 * time.Second
	zombiePause = 15 * time.Millisecond
	// wrongNumber is no number that a writer comes to here.
	wrongNumber = 1_000_000
)

// zombies are writers whose time is over, and which do not know it: they go on
// writing to sessions that belong to others.
type zombies struct {
	t       *testing.T
	clients []streamv1.StreamServiceClient
	wg      sync.WaitGroup

	mu sync.Mutex
	// refused counts by reason what was refused, and unanswered what got no
	// answer, which is no acceptance.
	refused    map[string]int
	unanswered int
	// takeovers are the sessions whose writer was seen to change in the middle of
	// the tale.
	takeovers map[string]bool
}

func newZombies(t *testing.T, streams []*harness.Process) *zombies {
	t.Helper()
	z := &zombies{t: t, refused: map[string]int{}, takeovers: map[string]bool{}}
	for _, p := range streams {
		z.clients = append(z.clients, streamv1.NewStreamServiceClient(harness.DialInternal(t, p.Address)))
	}
	return z
}

// begin starts a zombie of the session. It ends with ctx.
func (z *zombies) begin(ctx context.Context, s *session) {
	z.wg.Go(func() {
		var first int64
		for ctx.Err() == nil {
			client := z.clients[rand.IntN(len(z.clients))]
			epoch := z.attack(ctx, client, s.id, first)
			switch {
			case epoch < int64(len(s.turns)): // not known, or that of the turn before the tale
			case first == 0:
				first = epoch
			case epoch > first:
				z.note(func() { z.takeovers[s.id] = true })
			}
			time.Sleep(rand.N(2 * zombiePause)) // writers come when they come
		}
	})
}

// attack looks who writes the session and tries everything that only that one
// may do. first is the epoch that was seen first, 0 for none. It returns the
// epoch, 0 when that is not known.
func (z *zombies) attack(ctx context.Context, client streamv1.StreamServiceClient, id string, first int64) int64 {
	ref := &streamv1.StreamRef{Tenant: tenant, RootSessionId: id, SessionId: id}
	asking, cancel := context.WithTimeout(ctx, zombieCall)
	defer cancel()
	info, err := client.GetInfo(asking, &streamv1.GetInfoRequest{Stream: ref})
	if err != nil {
		z.note(func() { z.unanswered++ })
		if kind := fault.KindOf(err); kind != fault.Unavailable && kind != fault.NotFound {
			z.t.Errorf("where session %s stands: %v", id, err)
		}
		return 0
	}
	epoch, last := info.GetEpoch(), info.GetLatestSequence()
	z.write(ctx, client, ref, epoch, wrongNumber, last)
	for _, old := range []int64{epoch - 1, first} {
		if old < 1 || old >= epoch {
			continue
		}
		for _, number := range []int64{1, 2, wrongNumber} {
			z.write(ctx, client, ref, old, number, last)
		}
		z.rewind(ctx, client, ref, old)
	}
	return epoch
}

func (z *zombies) write(ctx context.Context, client streamv1.StreamServiceClient, ref *streamv1.StreamRef, epoch, number, last int64) {
	ctx, cancel := context.WithTimeout(ctx, zombieCall)
	defer cancel()
	answer, err := client.Append(ctx, &streamv1.AppendRequest{
		Stream: ref, Epoch: epoch, Number: number, ExpectedLastSequence: last,
		Record: &streamv1.AppendRequest_Chunk{Chunk: &eventv1.Chunk{
			AgentId: "zombie", AgentType: agentType, Step: 1,
			Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "Brains. "}},
		}},
	})
	z.judge(err, ref, epoch, number, answer.GetSequence())
}

func (z *zombies) rewind(ctx context.Context, client streamv1.StreamServiceClient, ref *streamv1.StreamRef, epoch int64) {
	ctx, cancel := context.WithTimeout(ctx, zombieCall)
	defer cancel()
	answer, err := client.Rewind(ctx, &streamv1.RewindRequest{Stream: ref, Epoch: epoch, Number: wrongNumber, RunId: "zombie", Reason: "executor_lost"})
	z.judge(err, ref, epoch, wrongNumber, answer.GetSequence())
}

func (z *zombies) judge(err error, ref *streamv1.StreamRef, epoch, number, sequence int64) {
	reason := fault.ReasonOf(err)
	switch {
	case err == nil:
		z.t.Errorf("session %s: number %d of the old epoch %d was taken, as %d", ref.GetSessionId(), number, epoch, sequence)
	case errors.Is(err, fault.Stale) && (reason == "WRITER_FENCED" || reason == "APPEND_OUT_OF_ORDER"):
		z.note(func() { z.refused[reason]++ })
	case fault.KindOf(err) == fault.Unavailable:
		z.note(func() { z.unanswered++ })
	default:
		z.t.Errorf("session %s: number %d of the old epoch %d: %v (%s), want that it is refused as stale", ref.GetSessionId(), number, epoch, err, reason)
	}
}

// counts is how often the zombies have met what they are there for.
func (z *zombies) counts() map[string]int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return map[string]int{
		"sessions taken over": len(z.takeovers),
		"old writers fenced":  z.refused["WRITER_FENCED"],
		"numbers refused":     z.refused["APPEND_OUT_OF_ORDER"],
	}
}

// lastAttacks is how long the zombies may go on behind the faults: until those to whom runs
// were given have come to write.
const lastAttacks = time.Minute

// waitForAll waits until the zombies have met everything.
func (z *zombies) waitForAll() {
	z.t.Helper()
	harness.WaitFor(z.t, lastAttacks, "the zombies to meet everything", func() (bool, string) {
		counts := z.counts()
		return !slices.Contains(slices.Collect(maps.Values(counts)), 0), fmt.Sprint(counts)
	})
}

func (z *zombies) note(change func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	change()
}
