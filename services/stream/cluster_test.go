package stream_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

func onNATS(ns *natstest.Solo) stream.Config {
	c := stream.Defaults()
	c.Bus, c.NATSURL, c.Partitions = stream.BusNATS, ns.URL(), 2
	c.Check = 200 * time.Millisecond
	return c
}

func TestAnOutageOfTheLogLosesNothingForLiveReaders(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ns := natstest.StartSolo(t, directory)
	one, two := start(t, onNATS(ns)), start(t, onNATS(ns))
	w := one.writer(refOf("outage"), "run", 1)
	w.say(t, 1, "0")
	readers := make([]*reading, 6)
	for i := range readers {
		readers[i] = []*house{one, two}[i%2].read(t, &streamv1.ReadRequest{Stream: w.ref, Family: i%3 == 0})
		equal(t, []string{readers[i].next(t), readers[i].next(t)}, "0", "caught up")
	}
	want := []string{"0"}
	var group sync.WaitGroup
	group.Go(func() {
		for i := 1; i < 400; i++ {
			want = append(want, fmt.Sprint(i))
			if err := w.insist(t, fmt.Sprint(i)); err != nil {
				t.Errorf("append %d: %v", i, err)
				return
			}
		}
	})
	equal(t, []string{readers[0].next(t)}, "1")
	for range 2 {
		ns.Stop()
		ns.Start(t, directory)
	}
	group.Wait()
	w.end(t, ended("run"))
	for i, r := range readers {
		skip := 1
		if i == 0 {
			skip = 2
		}
		equal(t, r.rest(t), append(want[skip:len(want):len(want)], "end run")...)
	}
	equal(t, one.stored(t, w.ref), append(want, "end run")...)
}

func TestReplicasAreOneService(t *testing.T) {
	t.Parallel()
	ns := natstest.StartSolo(t, t.TempDir())
	houses := []*house{start(t, onNATS(ns)), start(t, onNATS(ns)), start(t, onNATS(ns))}
	w := houses[0].writer(refOf("replicas"), "run", 1)
	r := houses[1].read(t, &streamv1.ReadRequest{Stream: w.ref})
	equal(t, []string{r.next(t)}, "caught up")
	var want []string
	for i := range 60 { // a writer may come through any of them
		w.house = houses[i%len(houses)]
		want = append(want, fmt.Sprint(i))
		w.say(t, 1, want[i])
	}
	w.end(t, ended("run"))
	equal(t, r.rest(t), append(want, "end run")...)
}
