package jetstream_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// patience is how long a test waits for what must come.
const patience = 3 * time.Minute

var outage = bus.Stream{Tenant: "t", Root: "outage", Session: "outage"}

// watch is a sink that counts gaps and remembers the records.
type watch struct {
	mu      sync.Mutex
	seen    []uint64
	gaps    int
	changed chan struct{}
}

func newWatch() *watch { return &watch{changed: make(chan struct{}, 1)} }

func (w *watch) Deliver(r *chunklog.Record) {
	w.mu.Lock()
	w.seen = append(w.seen, r.Sequence)
	w.mu.Unlock()
	w.tell()
}

func (w *watch) Gap() {
	w.mu.Lock()
	w.gaps++
	w.mu.Unlock()
	w.tell()
}

func (w *watch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *watch) await(t *testing.T, what string, done func(seen []uint64, gaps int) bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		ok := done(w.seen, w.gaps)
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-w.changed:
		case <-deadline.C:
			t.Fatalf("waited for %s; saw %v and %d gaps", what, w.seen, w.gaps)
		}
	}
}

// persist appends until the log takes it, as a client does: it looks whether a
// record is there of which that is not known.
func persist(t *testing.T, log bus.Bus, s bus.Stream, expected uint64, number int64) uint64 {
	t.Helper()
	unknown := false
	for deadline := time.Now().Add(patience); ; {
		sequence, err := log.Append(t.Context(), s, expected, &chunklog.Record{
			Epoch: 1, Number: number, Prev: expected, Run: "run", Kind: chunklog.Chunk, Payload: []byte("x"),
		})
		if err == nil {
			return sequence
		}
		if unknown = unknown || errors.Is(err, bus.ErrUnknown); unknown {
			if last, _ := log.Last(t.Context(), s); last != nil && last.Prev == expected && last.Number == number { // one that cannot be looked for now is appended again
				return last.Sequence
			}
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestAnOutageShowsAsAGapToThoseWhoFollow(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ns := natstest.StartSolo(t, directory)
	endpoint := jetstream.Endpoint{URL: ns.URL()}
	log, other := open(t, endpoint, options()), open(t, endpoint, options())
	live := newWatch()
	defer log.Follow(bus.Scope{Stream: outage}, live)()
	first := persist(t, log, outage, 0, 1)
	live.await(t, "the first record", func(seen []uint64, _ int) bool { return len(seen) == 1 })

	ns.Stop()
	if _, err := log.Last(t.Context(), outage); !errors.Is(err, fault.Unavailable) {
		t.Errorf("got %v from a log that is away, want unavailable", err)
	}
	ns.Start(t, directory)
	second := persist(t, other, outage, first, 2) // log may not be connected yet, and so miss it
	live.await(t, "the second record or a gap", func(seen []uint64, gaps int) bool {
		return gaps > 0 || len(seen) > 1 && seen[len(seen)-1] == second
	})
	page, err := log.History(t.Context(), bus.Scope{Stream: outage}, first)
	if err != nil || len(page.Records) != 1 || page.Records[0].Sequence != second {
		t.Errorf("got %v, %v; want the second record", page.Records, err)
	}
	third := persist(t, other, outage, second, 3)
	live.await(t, "the third record", func(seen []uint64, _ int) bool { return seen[len(seen)-1] == third })
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	log := open(t, embedded(t, directory).Endpoint(), options())
	var last uint64
	for number := range int64(200) {
		last = persist(t, log, outage, last, number+1)
	}
	// What a process that is killed now leaves behind: the files as they are.
	again := open(t, embedded(t, copyOf(t, directory)).Endpoint(), options())
	page, err := again.History(t.Context(), bus.Scope{Stream: outage}, 0)
	if err != nil || len(page.Records) != 200 || page.Records[199].Sequence != last {
		t.Fatalf("got %d records, %v; want 200 up to %d", len(page.Records), err, last)
	}
	if next := persist(t, again, outage, last, 201); next != last+1 {
		t.Errorf("got sequence %d after %d", next, last)
	}
}

func TestManyProcessesMayBootAtOnce(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	var group sync.WaitGroup
	logs := make([]*jetstream.Bus, 6)
	for i := range logs {
		group.Go(func() {
			log, err := jetstream.Open(t.Context(), server.Endpoint(), options())
			if err != nil {
				t.Errorf("process %d: %v", i, err)
				return
			}
			logs[i] = log
		})
	}
	group.Wait()
	var last uint64
	for i, log := range logs {
		if log != nil {
			last = persist(t, log, outage, last, int64(i+1))
			defer log.Close()
		}
	}
}

func TestABootWaitsForTheServerAndNotForEver(t *testing.T) {
	t.Parallel()
	ns := natstest.NewSolo(t)
	o := options()
	o.Boot = 300 * time.Millisecond
	_, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: ns.URL()}, o)
	if fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
		t.Errorf("got %v, want LOG_UNAVAILABLE", err)
	}
	opened := make(chan error, 1)
	go func() {
		log, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: ns.URL()}, options())
		if err == nil {
			err = log.Close()
		}
		opened <- err
	}()
	ns.Start(t, t.TempDir())
	if err := <-opened; err != nil {
		t.Errorf("the server came while Open waited: %v", err)
	}
}

func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	open(t, server.Endpoint(), options())
	o := options()
	o.Partitions = 8
	_, err := jetstream.Open(t.Context(), server.Endpoint(), o)
	if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
	o.Namespace = "other"
	open(t, server.Endpoint(), o)
}

func TestAnotherLayoutOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	o := options()
	o.Shards, o.Shard = 3, 1
	open(t, server.Endpoint(), o)
	open(t, server.Endpoint(), o) // the same again
	for _, c := range []struct{ shards, shard int }{{0, 0}, {1, 0}, {2, 1}, {3, 0}, {3, 2}} {
		o.Shards, o.Shard = c.shards, c.shard
		_, err := jetstream.Open(t.Context(), server.Endpoint(), o)
		if !errors.Is(err, fault.Invalid) || fault.ReasonOf(err) != "CONFIG_INVALID" {
			t.Errorf("shard %d of %d: got %v, want CONFIG_INVALID", c.shard, c.shards, err)
		}
	}
}

func TestAChangedLimitIsTakenOver(t *testing.T) {
	t.Parallel()
	server := embedded(t, t.TempDir())
	before := open(t, server.Endpoint(), options())
	first := persist(t, before, outage, 0, 1)
	o := options()
	o.MaxAge, o.PartitionBytes = 2*time.Hour, 32<<20
	after := open(t, server.Endpoint(), o)
	if next := persist(t, after, outage, first, 2); next != first+1 {
		t.Errorf("got sequence %d after %d: the partition was made anew", next, first)
	}
}

func TestAServerWithTooSmallMessagesIsRefused(t *testing.T) {
	t.Parallel()
	o := options()
	o.RecordBytes = 2 << 20
	ns := natstest.StartSolo(t, t.TempDir()) // 1 MiB by default
	_, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: ns.URL()}, o)
	if fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("got %v, want CONFIG_INVALID", err)
	}
}
