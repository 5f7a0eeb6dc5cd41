package server_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// openReplica opens a replica of the service on the server.
func openReplica(t *testing.T, url string) replica {
	t.Helper()
	l, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: url}, jetstream.Options{
		Partitions: 2, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 64 << 20,
		MessageBytes: recordBytes, Check: 5 * time.Second, Boot: patience, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = l.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
		_ = l.Close()
	})
	return open(t, l)
}

// readWhenAvailable reads until the log is available, and expects these frames.
func (h replica) readWhenAvailable(t *testing.T, r *streamv2.ReadRequest, want ...string) *reader {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		stream, err := h.Read(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		first, err := stream.Recv()
		if err == nil {
			r := &reader{stream: stream, waiting: describe(first)}
			r.expect(t, want...)
			return r
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("read: %v", err)
		}
	}
}

// follow reads count records after the sequence and reads again whenever the log breaks off.
func (h replica) follow(t *testing.T, ref *streamv2.StreamRef, from int64, count int) (frames []string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		stream, err := h.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: from})
		for err == nil {
			if len(frames) == count {
				return frames
			}
			var f *streamv2.ReadResponse
			if f, err = stream.Recv(); err == nil && f.GetRecords() != nil {
				frames = append(frames, describe(f)...)
				from = lastOf(requestOf(f))
			}
		}
		if fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
			t.Errorf("got %q and then %v", frames, err)
			return frames
		}
	}
}

func TestReadersOfAnotherReplicaSeeEverything(t *testing.T) {
	t.Parallel()
	solo := natstest.StartSolo(t, t.TempDir())
	one, two := openReplica(t, solo.URL()), openReplica(t, solo.URL())
	w := &writer{replica: one, ref: refOf("s"), epoch: 1}
	early := two.read(t, &streamv2.ReadRequest{Stream: w.ref})
	early.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	w.mustSend(t, w.continueWith("b"))
	early.expect(t, "s 1.1.1 a", "s 1.1.2 b")
	two.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(1, 1, 1)}).expect(t, "s 1.1.2 b", "caught up")
	w.replica = two // the writer reconnects to another replica
	w.mustSend(t, w.continueWith("c"))
	w.replica = one
	w.mustSend(t, w.continueWith("d"))
	early.expect(t, "s 1.1.3 c", "s 1.1.4 d")
	heir := &writer{replica: two, ref: w.ref, epoch: 2}
	heir.mustSend(t, heir.begin(1, 33, "e"))
	w.mustBeRefused(t, w.continueWith("x"), "WRITER_FENCED")
	early.expect(t, "s 1.33.1 e")
}

func TestRecordsThatAreRefusedAreHeardByNobody(t *testing.T) {
	t.Parallel()
	solo := natstest.StartSolo(t, t.TempDir())
	one, two := openReplica(t, solo.URL()), openReplica(t, solo.URL())
	old, heir := &writer{replica: one, ref: refOf("s"), epoch: 1}, &writer{replica: two, ref: refOf("s"), epoch: 2}
	old.mustSend(t, old.begin(1, 1, "a"))
	live := one.read(t, &streamv2.ReadRequest{Stream: old.ref})
	live.expect(t, "s 1.1.1 a", "caught up")
	heir.mustSend(t, heir.begin(1, 33, "b"))
	old.mustBeRefused(t, old.continueWith("x"), "WRITER_FENCED") // its replica expects the previous tail
	heir.mustSend(t, heir.continueWith("c"))
	live.expect(t, "s 1.33.1 b", "s 1.33.2 c")
}

// The content of the log vanishes or is replaced by an older copy, under two replicas, a writer and readers.
// Only the writer's next append notices it, and a new attempt restores everything.
func TestALogThatLosesRecordsCostsOneNewAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		copied bool
		stored []string // the remaining records of the first attempt
	}{
		"it is emptied":                 {false, nil},
		"it is put back to an old copy": {true, []string{"s 1.1.1 a", "s 1.1.2 b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory, restored := t.TempDir(), t.TempDir()
			solo := natstest.StartSolo(t, directory)
			one, two := openReplica(t, solo.URL()), openReplica(t, solo.URL())
			w := &writer{replica: one, ref: refOf("s"), epoch: 1}
			w.mustSend(t, w.begin(1, 1, "a"))
			w.mustSend(t, w.continueWith("b"))
			solo.Stop()
			if c.copied {
				if err := os.CopyFS(restored, os.DirFS(directory)); err != nil {
					t.Fatal(err)
				}
			}
			solo.Start(t, directory)
			w.mustSend(t, w.continueWith("c"))
			w.mustSend(t, w.continueWith("d"))
			live := two.readWhenAvailable(t, &streamv2.ReadRequest{Stream: w.ref}, "s 1.1.1 a", "s 1.1.2 b", "s 1.1.3 c", "s 1.1.4 d", "caught up")

			solo.Stop()
			live.expectEnd(t, "LOG_UNAVAILABLE")
			solo.Start(t, restored)
			if c.copied {
				two.readWhenAvailable(t, &streamv2.ReadRequest{Stream: w.ref, StoredOnly: true}, append(c.stored, "caught up")...)
			}
			follower := make(chan []string, 1)
			go func(from int64) { follower <- two.follow(t, w.ref, from, 3) }(w.after)
			w.mustBeRefused(t, w.continueWith("e"), "RECORDS_LOST")
			w.mustBeRefused(t, w.check(), "RECORDS_LOST")
			w.mustSend(t, w.begin(1, 2, "a"))
			w.mustSend(t, w.continueWith("b", "c", "d"))
			w.mustSend(t, w.commit(1))
			if got, want := <-follower, []string{"s 1.2.1 a", "s 1.2.2 b c d", "s commits 1"}; !slices.Equal(got, want) {
				t.Errorf("a reader got %q, want %q", got, want)
			}
			for _, h := range []replica{one, two} {
				h.readWhenAvailable(t, &streamv2.ReadRequest{Stream: w.ref, StoredOnly: true}, "s 1.2.1 a", "s 1.2.2 b c d", "s commits 1", "caught up")
			}
		})
	}
}

func TestASlowReaderOfJetStreamGetsEverything(t *testing.T) {
	t.Parallel()
	solo := natstest.StartSolo(t, t.TempDir())
	w := &writer{replica: openReplica(t, solo.URL()), ref: refOf("s"), epoch: 1}
	r := w.read(t, &streamv2.ReadRequest{Stream: w.ref})
	r.expect(t, "caught up")
	w.mustSend(t, w.begin(1, 1, "a"))
	long := strings.Repeat("x", 8<<10)
	for range 100 {
		w.mustSend(t, w.continueWith(long))
	}
	r.expect(t, "s 1.1.1 a")
	for n := range int32(100) {
		f, err := r.stream.Recv()
		if err != nil || firstOf(requestOf(f)) != at(1, 1, n+2) {
			t.Fatalf("record %d: got %v, %v", n, firstOf(requestOf(f)), err)
		}
	}
}
