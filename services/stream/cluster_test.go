package stream_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

// nats starts a NATS server of its own; port 0 takes a free one.
func nats(t *testing.T, directory string, port int) *server.Server {
	t.Helper()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: directory, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	t.Cleanup(func() { end(ns) })
	return ns
}

func end(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

func onNATS(ns *server.Server) stream.Config {
	c := stream.Defaults()
	c.Bus, c.NATSURL, c.Partitions = stream.BusNATS, ns.ClientURL(), 2
	c.Check = 200 * time.Millisecond
	return c
}

// insist appends until the log takes it, as an executor does.
func (w *writer) insist(t *testing.T, delta string) error {
	for deadline := time.Now().Add(patience); ; {
		err := w.text(t.Context(), 1, delta)
		if err == nil || !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			return err
		}
	}
}

func TestAnOutageOfTheLogLosesNothingForLiveReaders(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	ns := nats(t, directory, 0)
	var port int
	if _, err := fmt.Sscanf(ns.ClientURL(), "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
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
		end(ns)
		ns = nats(t, directory, port)
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
	ns := nats(t, t.TempDir(), 0)
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
