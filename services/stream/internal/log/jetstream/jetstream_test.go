package jetstream_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/embedded"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

func options() jetstream.Options {
	return jetstream.Options{
		Partitions: 3, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 64 << 20,
		MessageBytes: 512 << 10, Check: 5 * time.Second, Boot: patience, Log: slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, directory string) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(embedded.Options{
		Directory: directory, Wait: patience, SyncInterval: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// open opens a log, a replica of many, and does its background work until the test ends.
func open(t *testing.T, e jetstream.Endpoint, o jetstream.Options) *jetstream.Log {
	t.Helper()
	l, err := jetstream.Open(t.Context(), e, o)
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
	return l
}

func TestAnEmbeddedServerIsALog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t *testing.T) log.Log {
		return open(t, jetstream.Endpoint{InProcess: start(t, t.TempDir()).InProcess()}, options())
	})
}

func TestAServerIsALog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t *testing.T) log.Log {
		return open(t, jetstream.Endpoint{URL: natstest.StartSolo(t, t.TempDir()).URL()}, options())
	})
}

func TestAClusterIsALog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t *testing.T) log.Log {
		o := options()
		o.Replicas = 3
		return open(t, jetstream.Endpoint{URL: natstest.Start(t, 3).URL()}, o)
	})
}
