package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func TestManyFoundedDoubtsOfAPartitionAreSettledByOneProbe(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	var probes atomic.Int64
	if _, err := b.nc.Subscribe(b.names.live(0)+"=", func(*nats.Msg) { probes.Add(1) }); err != nil {
		t.Fatal(err)
	}
	last := put(t, b, 0)
	var group sync.WaitGroup
	for i := range 50 {
		s := doubted
		s.Session = fmt.Sprint("session ", i)
		group.Go(func() {
			if _, err := b.Renew(t.Context(), s, last+10+uint64(i)); err != nil { //nolint:gosec // below 50
				t.Error(err)
			}
		})
	}
	group.Wait()
	info, err := b.Info(t.Context(), doubted)
	if err != nil || info.Began <= last+100 || info.Count != 0 {
		t.Errorf("got %+v, %v; want a log begun anew above %d", info, err, last+100)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n := probes.Load(); n > 1 {
		t.Errorf("got %d probes, want 1", n)
	}
}

func TestProbesLeaveTheFloorWhereItIs(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	p := b.partitions[0]
	before, err := b.Info(t.Context(), doubted)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := b.probe(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	after, err := b.Info(t.Context(), doubted)
	if err != nil || after.Floor != before.Floor {
		t.Errorf("got floor %d, %v; want %d as before", after.Floor, err, before.Floor)
	}
	state, err := b.look(t.Context(), 0, b.names.probe(0))
	if n := state.Subjects[b.names.probe(0)]; err != nil || n != 2 {
		t.Errorf("got %d probes, %v; want the one that the partition begins with and the last one", n, err)
	}
}

func TestAProbeWhoseSequenceHasGoneToARecordIsLeft(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	last := put(t, b, put(t, b, 0))
	b.partitions[0].probe = last // as if the log had lost its end since
	if _, err := b.probe(t.Context(), b.partitions[0]); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Last(t.Context(), doubted); err != nil || r == nil || r.Sequence != last {
		t.Errorf("got %+v, %v; want record %d, which is no probe", r, err, last)
	}
}

// configBegan returns what the stream's configuration says of its beginning.
func configBegan(t *testing.T, b *Bus) uint64 {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), b.names.stream(0))
	if err != nil {
		t.Fatal(err)
	}
	return beganOf(stream.CachedInfo().Config.Metadata)
}

func TestABeginningThatWasTakenBackIsNotedAgain(t *testing.T) {
	t.Parallel()
	_, b := whole(t)
	last := put(t, b, 0)
	renewed, err := b.Renew(t.Context(), doubted, last+10)
	if err != nil || !renewed {
		t.Fatalf("got %v, %v; want a log begun anew", renewed, err)
	}
	want := configBegan(t, b)
	for _, older := range []string{"", strconv.FormatUint(last+1, 10)} {
		stream, err := b.js.Stream(t.Context(), b.names.stream(0))
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		if config.Metadata[beganKey] = older; older == "" {
			delete(config.Metadata, beganKey)
		}
		if _, err := b.js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if got := configBegan(t, b); got >= want {
			t.Fatalf("the configuration says %d, and was to say less than %d", got, want)
		}
		if info, err := b.Info(t.Context(), doubted); err != nil || info.Began != want {
			t.Errorf("after %q: got began %d, %v; want %d", older, info.Began, err, want)
		}
		if got := configBegan(t, b); got != want {
			t.Errorf("after %q: the configuration says %d, want %d noted again", older, got, want)
		}
	}
}

// between does something between a look at a configuration and its writing.
type between struct {
	jetstream.JetStream
	do func()
}

func (j *between) UpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if do := j.do; do != nil {
		j.do = nil
		do()
	}
	return j.JetStream.UpdateStream(ctx, c)
}

func TestABootThatOverlapsARenewalDoesNotTakeItBack(t *testing.T) {
	t.Parallel()
	server, b := whole(t)
	last := put(t, b, 0)
	boots := reopen(t, server)
	boots.options.MaxAge *= 2
	boots.js = &between{boots.js, func() {
		if renewed, err := b.Renew(t.Context(), doubted, last+10); err != nil || !renewed {
			t.Errorf("got %v, %v; want a log begun anew", renewed, err)
		}
	}}
	if err := boots.ensure(t.Context(), boots.partitions[0]); err != nil {
		t.Fatal(err)
	}
	want := b.partitions[0].began.Load()
	if got := configBegan(t, b); got != want || got <= last+10 {
		t.Errorf("the configuration says %d, want %d", got, want)
	}
	if info, err := boots.Info(t.Context(), doubted); err != nil || info.Began != want {
		t.Errorf("got began %d, %v; want %d", info.Began, err, want)
	}
}

// TestARecordThatIsRefusedForLong plays a leader that takes a record for in
// flight.
func TestARecordThatIsRefusedForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		leads     uint64 // the last record, and 90 is expected
		conflict  bool
		stepDowns int
	}{
		"moves the partition to another leader, once for all": {90, false, 1},
		"conflicts if others write":                           {95, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pl := &play{leads: c.leads, inFlight: true}
			b, p := pl.start(t)
			b.partitions = []*partition{p}
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					_, err := b.Append(t.Context(), doubted, 90, &chunklog.Record{Kind: chunklog.Chunk, Prev: 90})
					if err == nil || errors.Is(err, bus.ErrUnknown) || errors.Is(err, bus.ErrConflict) != c.conflict {
						t.Errorf("got %v, want a conflict: %v", err, c.conflict)
					}
				})
			}
			began := time.Now()
			group.Wait()
			if took := time.Since(began); took > 12*requestTimeout {
				t.Errorf("took %v", took)
			}
			pl.mu.Lock()
			defer pl.mu.Unlock()
			if pl.stepDowns != c.stepDowns {
				t.Errorf("the leader was told to step down %d times, want %d", pl.stepDowns, c.stepDowns)
			}
		})
	}
}
