package stream_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// live is a client of the live log.
func (h *house) live() streamv2.StreamServiceClient { return streamv2.NewStreamServiceClient(h.conn) }

var liveRef = &streamv2.StreamRef{Tenant: "t", RootSessionId: "live", SessionId: "live"}

// liveRecord makes a record of one chunk; the first of an attempt begins it.
func liveRecord(attempt, n int32) *streamv2.AppendRequest {
	sequence := position.Position{Step: 1, Attempt: attempt, N: n}.Sequence()
	r := &streamv2.AppendRequest{Stream: liveRef, Epoch: 1, After: sequence - 1, Record: &streamv2.Record{
		Sequence: sequence,
		Chunks:   []*eventv1.Chunk{{AgentId: "run", Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: "x"}}}},
	}}
	if n == 1 {
		r.After, r.Record.Attempt = 0, &streamv2.Attempt{RunId: "run"}
	}
	return r
}

// liveSequences reads the sequences that are stored.
func (h *house) liveSequences(t *testing.T) (sequences []position.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := h.live().Read(ctx, &streamv2.ReadRequest{Stream: liveRef, StoredOnly: true})
	for err == nil {
		var f *streamv2.ReadResponse
		if f, err = stream.Recv(); err == nil && f.GetRecord() != nil {
			sequences = append(sequences, position.Of(f.GetRecord().GetRecord().GetSequence()))
		}
	}
	if _, isFault := fault.From(err); isFault {
		t.Fatal(err)
	}
	return sequences
}

func TestTheLiveLogServesReadersOnEachBus(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stream, err := h.live().Read(ctx, &streamv2.ReadRequest{Stream: liveRef})
		if err != nil {
			t.Fatal(err)
		}
		if f, err := stream.Recv(); err != nil || f.GetCaughtUp() == nil {
			t.Fatalf("got %v, %v; want caught up", f, err)
		}
		for n := int32(1); n <= 3; n++ {
			if _, err := h.live().Append(ctx, liveRecord(1, n)); err != nil {
				t.Fatal(err)
			}
			if f, err := stream.Recv(); err != nil || position.Of(f.GetRecord().GetRecord().GetSequence()).N != n {
				t.Fatalf("got %v, %v; want chunk %d", f, err, n)
			}
		}
		h.stop()
		if _, err := stream.Recv(); !errors.Is(err, fault.Unavailable) {
			t.Errorf("got %v at the end of the service, want unavailable", err)
		}
	})
}

// The embedded log survives a restart, and its loss or an older copy costs one new attempt.
func TestAnEmbeddedLiveLogMayVanishBetweenTwoStarts(t *testing.T) {
	t.Parallel()
	c := onJetStream(t)
	older := t.TempDir()
	h := start(t, c)
	send := func(r *streamv2.AppendRequest, reason string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := h.live().Append(ctx, r, grpc.WaitForReady(true)); fault.ReasonOf(err) != reason {
			t.Fatalf("got %v, want %q", err, reason)
		}
	}
	send(liveRecord(1, 1), "")
	send(liveRecord(1, 2), "")
	h.stop()
	if err := os.CopyFS(older, os.DirFS(c.DataDir)); err != nil {
		t.Fatal(err)
	}
	h = start(t, c)
	send(liveRecord(1, 3), "")
	if got := len(h.liveSequences(t)); got != 3 {
		t.Errorf("got %d records after a restart, want 3", got)
	}
	h.stop()

	c.DataDir = older
	h = start(t, c)
	send(liveRecord(1, 4), "RECORDS_LOST")
	send(liveRecord(2, 1), "")
	send(liveRecord(2, 2), "")
	if got := h.liveSequences(t); len(got) != 2 || got[0].Attempt != 2 {
		t.Errorf("got %+v, want the second attempt", got)
	}
	h.stop()

	c.DataDir = t.TempDir()
	h = start(t, c)
	send(liveRecord(2, 3), "RECORDS_LOST")
	send(liveRecord(3, 1), "")
	if got := h.liveSequences(t); len(got) != 1 {
		t.Errorf("got %+v, want the third attempt", got)
	}
}
