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
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

const (
	// zombieCall bounds one call of a zombie, and zombiePause separates two calls.
	zombieCall  = 2 * time.Second
	zombiePause = 15 * time.Millisecond
)

// zombies are stale writers: they keep writing to sessions that belong to others.
type zombies struct {
	t       *testing.T
	clients []streamv2.StreamServiceClient
	state   statev1.SessionServiceClient
	wg      sync.WaitGroup

	mu sync.Mutex
	// refused counts refusals by reason. unanswered counts calls without an answer.
	refused    map[string]int
	unanswered int
	// takeovers are the sessions whose owner changed in the middle of the tale.
	takeovers map[string]bool
}

func newZombies(t *testing.T, s *harness.System) *zombies {
	t.Helper()
	z := &zombies{t: t, refused: map[string]int{}, takeovers: map[string]bool{}}
	for _, p := range s.Streams {
		z.clients = append(z.clients, streamv2.NewStreamServiceClient(harness.DialInternal(t, p.Address)))
	}
	z.state = statev1.NewSessionServiceClient(harness.DialInternal(t, s.State.Address))
	return z
}

// begin starts a zombie of the session. It ends with ctx.
func (z *zombies) begin(ctx context.Context, s *session) {
	z.wg.Go(func() {
		var first int64
		for ctx.Err() == nil {
			epoch := z.attack(ctx, s.id)
			switch {
			case epoch < int64(len(s.turns)): // unknown, or the epoch of the turn before the tale
			case first == 0:
				first = epoch
			case epoch > first:
				z.note(func() { z.takeovers[s.id] = true })
			}
			time.Sleep(rand.N(2 * zombiePause)) // zombies write at random moments
		}
	})
}

// attack writes records that only the owner of the tale may write, after the owner has written. It returns the
// session's epoch, or 0 if unknown.
func (z *zombies) attack(ctx context.Context, id string) int64 {
	asking, cancel := context.WithTimeout(ctx, zombieCall)
	defer cancel()
	got, err := z.state.GetSession(asking, &statev1.GetSessionRequest{Tenant: tenant, SessionId: id})
	if err != nil {
		z.note(func() { z.unanswered++ })
		return 0
	}
	epoch := got.GetSession().GetEpoch()
	client := z.clients[rand.IntN(len(z.clients))]
	ref := &streamv2.StreamRef{Tenant: tenant, RootSessionId: id, SessionId: id}
	written := z.written(asking, client, ref)
	if written == 0 {
		return epoch
	}
	// The turn before the tale had epoch 1. It has ended, because a record follows its step.
	last := position.Of(written)
	for _, attempt := range []int32{last.Attempt, last.Attempt + 1} {
		begins := position.Position{Step: last.Step, Attempt: attempt, N: 1}.Sequence()
		z.write(ctx, client, ref, 1, &streamv2.AppendRequest{Records: []*streamv2.Record{{
			Sequence: begins, Attempt: &streamv2.Attempt{Stands: position.Ended(1), RunId: "zombie"}, Chunks: brains(last.Step),
		}}})
	}
	z.write(ctx, client, ref, 1, &streamv2.AppendRequest{After: written, Records: []*streamv2.Record{{Sequence: written + 1, Chunks: brains(last.Step)}}})
	// A writer whose records are missing in the log.
	far := position.Position{Step: last.Step, Attempt: position.Stored - 1, N: 7}.Sequence()
	z.write(ctx, client, ref, epoch, &streamv2.AppendRequest{After: far - 1, Records: []*streamv2.Record{{Sequence: far, Chunks: brains(last.Step)}}})
	return epoch
}

// written returns the sequence of the tale's last chunk in the log, or 0.
func (z *zombies) written(ctx context.Context, client streamv2.StreamServiceClient, ref *streamv2.StreamRef) int64 {
	call, err := client.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: position.Start(2), StoredOnly: true})
	var last int64
	for err == nil {
		var answer *streamv2.ReadResponse
		if answer, err = call.Recv(); err != nil || answer.GetCaughtUp() != nil {
			break
		}
		for _, r := range answer.GetRecords().GetRecords() {
			if r.GetBoundary() == nil {
				last = r.GetSequence() + int64(max(0, len(r.GetChunks())-1))
			}
		}
	}
	if err != nil {
		z.note(func() { z.unanswered++ })
		return 0
	}
	return last
}

func brains(step int32) []*eventv1.Chunk {
	return []*eventv1.Chunk{{
		AgentId: "zombie", AgentType: agentType, Step: step,
		Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "Brains. "}},
	}}
}

func (z *zombies) write(ctx context.Context, client streamv2.StreamServiceClient, ref *streamv2.StreamRef, epoch int64, r *streamv2.AppendRequest) {
	ctx, cancel := context.WithTimeout(ctx, zombieCall)
	defer cancel()
	r.Stream, r.Epoch = ref, epoch
	_, err := client.Append(ctx, r)
	reason := fault.ReasonOf(err)
	switch {
	case err == nil:
		z.t.Errorf("session %s: record %v of epoch %d was taken", ref.GetSessionId(), position.Of(r.GetRecords()[0].GetSequence()), epoch)
	case errors.Is(err, fault.Stale) && (reason == "WRITER_FENCED" || reason == "RECORDS_LOST"):
		z.note(func() { z.refused[reason]++ })
	case fault.KindOf(err) == fault.Unavailable:
		z.note(func() { z.unanswered++ })
	default:
		z.t.Errorf("session %s: record %v of epoch %d: %v (%s), want that it is refused as stale",
			ref.GetSessionId(), position.Of(r.GetRecords()[0].GetSequence()), epoch, err, reason)
	}
}

// counts returns how often the zombies have met each expected case.
func (z *zombies) counts() map[string]int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return map[string]int{
		"sessions taken over": len(z.takeovers),
		"old writers fenced":  z.refused["WRITER_FENCED"],
		"strangers refused":   z.refused["RECORDS_LOST"],
	}
}

// lastAttacks is how long the zombies may continue after the faults, until the new owners have written.
const lastAttacks = time.Minute

// waitForAll waits until the zombies have met every case.
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
