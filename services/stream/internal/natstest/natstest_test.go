package natstest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

const stream = "S"

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// publish publishes until it is acknowledged.
func publish(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		ack, err := js.Publish(t.Context(), "s", nil)
		if err == nil {
			return ack.Sequence
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestANodeIsKilledLosesItsDiskAndComesBack(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 3)
	js := connect(t, c.URL())
	patient, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := js.CreateStream(patient, jetstream.StreamConfig{Name: stream, Subjects: []string{"s"}, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	publish(t, js)
	c.Snapshot(t)

	leader := c.Leader(t, stream)
	c.Kill(t, leader)
	if _, err := nats.Connect(c.NodeURL(leader)); !errors.Is(err, nats.ErrNoServers) && err == nil {
		t.Error("a node that was killed takes clients")
	}
	if next := c.Leader(t, stream); next == leader {
		t.Errorf("node %d leads and was killed", next)
	}
	publish(t, js)
	c.RemoveStore(leader)
	c.Start(t, leader)
	c.Current(t, stream)
	last := publish(t, js)
	if last < 3 {
		t.Errorf("got sequence %d, want 3 or more", last)
	}

	c.Restore(t)
	if again := publish(t, js); again > last {
		t.Errorf("got sequence %d after %d of a disk that had 1", again, last)
	}
}
