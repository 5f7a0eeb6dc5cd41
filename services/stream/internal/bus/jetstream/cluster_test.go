package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// replicated are the options of a log of which each of three nodes has a copy.
func replicated() jetstream.Options {
	o := options()
	o.Replicas, o.Partitions, o.Boot = 3, 1, patience
	return o
}

// partition is the stream of its only partition.
const partition = "HOLDFAST_CHUNKS_00"

// onCluster opens the log on the nodes.
func onCluster(t *testing.T, c *natstest.Cluster) *jetstream.Bus {
	t.Helper()
	return open(t, jetstream.Endpoint{URL: c.URL()}, replicated())
}

func TestAClusterOfThreeIsALog(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	var logs atomic.Int64
	bustest.Run(t, func(t *testing.T, with bustest.Options) bus.Bus {
		o := replicated()
		o.Partitions = 4
		o.Namespace = fmt.Sprint("log", logs.Add(1))
		o.SessionRecords = with.SessionRecords
		return open(t, jetstream.Endpoint{URL: c.URL()}, o)
	})
}

// ofThree is a log on three nodes, whose disks are put back to older copies. The
// power cut takes those who use it, too: one that comes back has the log begun
// anew by itself.
type ofThree struct {
	*natstest.Cluster
	opened []func()
}

func (l *ofThree) Open(t *testing.T) bus.Bus {
	t.Helper()
	log, err := jetstream.Open(t.Context(), jetstream.Endpoint{URL: l.URL()}, replicated())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = log.Run(ctx) })
	end := sync.OnceFunc(func() {
		cancel()
		group.Wait()
		_ = log.Close()
	})
	t.Cleanup(end)
	l.opened = append(l.opened, end)
	return log
}

func (l *ofThree) Restore(t *testing.T) {
	t.Helper()
	for _, end := range l.opened {
		end()
	}
	l.opened = nil
	l.Cluster.Restore(t)
}

func TestAClusterOfThreeMayLoseItsEnd(t *testing.T) {
	t.Parallel()
	bustest.PowerCut(t, &ofThree{Cluster: natstest.Start(t, 3)})
}

func TestEachDiskOfACommonLogMayBeLost(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	log := onCluster(t, c)
	writers := newWriters(log, 2, 2)
	writeEach(t, writers, 10)
	c.Snapshot(t)
	writeEach(t, writers, 10)
	leader := c.Leader(t, partition)
	for i, lose := range []func(node int){
		c.RemoveStore,
		func(node int) { c.PutBack(t, node) }, // the power of one machine was cut
		c.RemoveStore,
	} {
		node := (leader + i) % 3
		if i == 0 {
			c.Kill(t, node)
		} else {
			c.Stop(node) // as a leader, it has another one elected at once
		}
		lose(node)
		writeEach(t, writers, 5) // while it is away
		c.Start(t, node)
		c.Current(t, partition)
	}
	writeEach(t, writers, 5)
	for _, w := range writers {
		mustHold(t, log, w.stream, w.written)
	}
	mustAgree(t, c)
}

// mustAgree wants all copies of the log to become the same: what a majority has
// acknowledged comes to the others a moment later.
func mustAgree(t *testing.T, c *natstest.Cluster) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(retryPause) {
		var copies [3][2]uint64
		for i := range copies {
			copies[i][0], copies[i][1] = c.Copy(t, i, partition)
		}
		if copies[0] == copies[1] && copies[1] == copies[2] {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the nodes have, from and to, %v; want the same", copies)
		}
	}
}

func TestAKillOfAllNodesLosesNothing(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	log := onCluster(t, c)
	writers := newWriters(log, 2, 2)
	writeEach(t, writers, 25)
	restart(t, c)
	for _, w := range writers {
		mustHold(t, log, w.stream, w.written)
	}
	writeEach(t, writers, 1)

	// A purge to above the end, which a renewal is made of, is kept by all copies.
	began := beginAnew(t, log, outage, writers[0].last+100)
	c.Current(t, partition)
	mustBegin(t, c, began)
	restart(t, c)
	mustBegin(t, c, began)
	if next := persist(t, log, outage, 0, 1); next != began {
		t.Errorf("got sequence %d in a log that began at %d", next, began)
	}
}

// restart kills all nodes and starts them again.
func restart(t *testing.T, c *natstest.Cluster) {
	t.Helper()
	for i := range 3 {
		c.Kill(t, i)
	}
	for i := range 3 {
		c.Start(t, i)
	}
	c.Current(t, partition)
}

// beginAnew has the log begin anew because the sequence is known of it, however
// long that takes, and returns where it begins. It takes a leader of the stream
// and one of the cluster.
func beginAnew(t *testing.T, log bus.Bus, s bus.Stream, known uint64) uint64 {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(retryPause) {
		_, err := log.Renew(t.Context(), s, known)
		if err == nil {
			break
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	info := infoOf(t, log, s)
	if info.Began <= known || info.Count != 0 {
		t.Fatalf("got %+v, want an empty log that began above %d", info, known)
	}
	return info.Began
}

// mustBegin wants each copy of the log to become empty and to begin at the
// sequence.
func mustBegin(t *testing.T, c *natstest.Cluster, began uint64) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(retryPause) {
		wrong := ""
		for i := range 3 {
			if first, last := c.Copy(t, i, partition); first != began || last != began-1 {
				wrong += fmt.Sprintf("; node %d has %d to %d", i, first, last)
			}
		}
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("want empty copies that begin at %d%s", began, wrong)
		}
	}
}

func TestANodeThatWasAwayWhileTheLogWasBegunAnewTellsNothingOld(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	log := onCluster(t, c)
	old := newWriters(log, 1, 1)
	writeEach(t, old, 5)
	away := (c.Leader(t, partition) + 1) % 3
	c.Kill(t, away)
	began := beginAnew(t, log, old[0].stream, old[0].last+100)
	c.Start(t, away)
	anew := newWriters(log, 1, 1)
	for range 20 {
		mustHold(t, log, anew[0].stream, anew[0].written)
		writeEach(t, anew, 1)
	}
	if first := anew[0].written[0].Sequence; first < began {
		t.Errorf("got sequence %d in a log that began at %d", first, began)
	}
	mustAgree(t, c)
	mustHold(t, log, anew[0].stream, anew[0].written)
}

func TestALostLeaderCostsNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	writers := newWriters(onCluster(t, c), 3, 2)
	watching := onCluster(t, c)
	var readers []*reader
	for i, w := range writers {
		readers = append(readers, follow(t, watching, bus.Scope{Stream: w.stream}))
		if i%2 == 0 {
			readers = append(readers, follow(t, watching, bus.Scope{Stream: w.stream, Family: true}))
		}
	}
	old := deposed(t, onCluster(t, c), writers[0])

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	for _, w := range writers {
		group.Go(func() { w.run(ctx) })
	}
	group.Go(func() { old.run(ctx) })
	more(t, writers, 20)
	killed := c.Leader(t, partition)
	c.Kill(t, killed)
	more(t, writers, 20)
	c.Start(t, killed)
	c.Current(t, partition)
	left := c.Leader(t, partition)
	c.Stop(left)
	more(t, writers, 20)
	c.Start(t, left)
	more(t, writers, 20)
	stop()
	group.Wait()

	for _, w := range writers {
		if w.err != nil {
			t.Errorf("%s: %v", w.stream.Session, w.err)
		}
		mustHold(t, watching, w.stream, w.written)
	}
	for _, r := range readers {
		r.mustHave(t, whole(t, watching, r.scope))
	}
	if old.stored != 0 || old.refused == 0 {
		t.Errorf("an old writer stored %d records and was refused %d times", old.stored, old.refused)
	}
}

func TestAMinorityStoresNothingAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	log := onCluster(t, c)
	writers := newWriters(log, 1, 2)
	writeEach(t, writers, 5)
	leader := c.Leader(t, partition)
	for _, away := range [][]int{
		{(leader + 1) % 3, (leader + 2) % 3}, // the leader stays, and does not know at first
		{leader, (leader + 1) % 3},
	} {
		for _, node := range away {
			c.Kill(t, node)
		}
		for _, w := range writers {
			began := time.Now()
			sequence, err := log.Append(t.Context(), w.stream, w.last, w.next())
			if !errors.Is(err, fault.Unavailable) || fault.ReasonOf(err) != "LOG_UNAVAILABLE" {
				t.Errorf("got sequence %d, %v of a minority; want LOG_UNAVAILABLE", sequence, err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("an append to a minority took %v, want 5s", took)
			}
		}
		for _, node := range away {
			c.Start(t, node)
		}
		writeEach(t, writers, 5)
		c.Current(t, partition)
	}
	for _, w := range writers {
		mustHold(t, log, w.stream, w.written)
	}
}

// whole returns all that is stored of the scope.
func whole(t *testing.T, log bus.Bus, s bus.Scope) []*chunklog.Record {
	t.Helper()
	records, err := historyAfter(t.Context(), log, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// historyAfter returns what is stored after the cursor, however long that takes.
func historyAfter(ctx context.Context, log bus.Bus, s bus.Scope, after uint64) ([]*chunklog.Record, error) {
	var records []*chunklog.Record
	for {
		page, err := log.History(ctx, s, after)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, fault.Unavailable):
			continue
		case err != nil:
			return nil, err
		}
		records = append(records, page.Records...)
		if !page.More {
			return records, nil
		}
		after = records[len(records)-1].Sequence
	}
}

// mustHold wants the stream to hold the records and no others.
func mustHold(t *testing.T, log bus.Bus, s bus.Stream, want []*chunklog.Record) {
	t.Helper()
	mustEqual(t, "the log of "+s.Session, whole(t, log, bus.Scope{Stream: s}), want)
}

func mustEqual(t *testing.T, what string, got, want []*chunklog.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d records, want %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.Sequence != w.Sequence || g.Session != w.Session || g.Number != w.Number || g.Prev != w.Prev || string(g.Payload) != string(w.Payload) {
			t.Fatalf("%s: record %d is %+v, want %+v", what, i, g, w)
		}
	}
}
