package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

func onNATS(url string) stream.Config {
	c := stream.Defaults()
	c.Bus, c.NATSURL, c.Partitions = stream.BusNATS, url, 2
	c.Check = 200 * time.Millisecond
	return c
}

func TestReplicasAreOneService(t *testing.T) {
	t.Parallel()
	ns := natstest.StartSolo(t, t.TempDir())
	houses := []*fixture{start(t, onNATS(ns.URL())), start(t, onNATS(ns.URL())), start(t, onNATS(ns.URL()))}
	w := houses[0].writer(refOf("replicas"))
	r := houses[1].read(t, &streamv2.ReadRequest{Stream: w.ref})
	r.expect(t, "caught up")
	var want []string
	for i := range 60 { // a writer may use any replica
		w.fixture = houses[i%len(houses)]
		want = append(want, fmt.Sprint(i))
		w.say(t, want[i])
	}
	r.expect(t, want...)
}

// follow reads count texts and resumes from its position whenever the log is unavailable.
func (h *fixture) follow(ctx context.Context, ref *streamv2.StreamRef, count int) (got []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var from int64
	for {
		stream, err := h.Read(ctx, &streamv2.ReadRequest{Stream: ref, FromSequence: from})
		for err == nil {
			if len(got) == count {
				return got, nil
			}
			var f *streamv2.ReadResponse
			if f, err = stream.Recv(); err == nil && f.GetRecords() != nil {
				got, from = append(got, describe(f)), f.GetRecords().GetRecords()[0].GetSequence()
			}
		}
		if !errors.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return got, err
		}
	}
}

// survives runs a writer on one replica and readers on both while disturb disturbs the servers. No record may be
// missing or duplicated.
func survives(t *testing.T, c stream.Config, disturb func()) {
	t.Helper()
	one, two := start(t, c), start(t, c)
	w := one.writer(refOf("disturbed"))
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprint(i))
	}
	var group sync.WaitGroup
	for _, h := range []*fixture{one, two, two} {
		group.Go(func() {
			if got, err := h.follow(t.Context(), w.ref, len(want)); !slices.Equal(got, want) || err != nil {
				t.Errorf("a reader got %q, %v; want %q", got, err, want)
			}
		})
	}
	w.say(t, want[:20]...)
	group.Go(func() {
		for _, delta := range want[20:] {
			if err := w.patientAppend(t.Context(), delta); err != nil {
				t.Errorf("append %s: %v", delta, err)
				return
			}
		}
	})
	disturb()
	group.Wait()
	two.stored(t, &streamv2.ReadRequest{Stream: w.ref}, want...)
}

func TestAnOutageOfTheServerLosesNothing(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ns := natstest.StartSolo(t, directory)
	survives(t, onNATS(ns.URL()), func() {
		for range 2 {
			ns.Stop()
			ns.Start(t, directory)
		}
	})
}

// A killed server loses its disk as well, and comes back.
func TestAClusterOfThreeLosesNothingWithOneOfThem(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, 3)
	c := onNATS(ns.URL())
	c.Replicas = 3
	survives(t, c, func() {
		for i := range 2 {
			ns.Kill(t, i)
			ns.RemoveStore(i)
			ns.Start(t, i)
			ns.Ready(t)
			for partition := range c.Partitions {
				ns.Current(t, fmt.Sprintf("holdfast-live-%02d", partition))
			}
		}
	})
}

// All servers lose recent writes, or everything.
func TestAClusterThatLosesRecordsCostsOneAttempt(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, 3)
	ns.Snapshot(t) // nothing was written
	c := onNATS(ns.URL())
	c.Replicas = 3
	one, two := start(t, c), start(t, c)
	w := one.writer(refOf("lost"))
	w.say(t, "a", "b")
	ns.Restore(t)
	w.appendUntilLost(t)
	w.begin(t, "a2", "b2")
	ns.Snapshot(t)
	w.say(t, "c2")
	ns.Restore(t)
	w.appendUntilLost(t)
	w.begin(t, "a3", "b3", "c3")
	for _, h := range []*fixture{one, two} {
		got, err := h.follow(t.Context(), w.ref, 3)
		if want := []string{"a3", "b3", "c3"}; !slices.Equal(got, want) || err != nil {
			t.Errorf("a reader got %q, %v; want %q", got, err, want)
		}
	}
}
