package jetstream_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
)

func options() jetstream.Options {
	return jetstream.Options{
		Namespace:      "holdfast",
		Partitions:     4,
		Replicas:       1,
		MaxAge:         time.Hour,
		PartitionBytes: 64 << 20,
		RecordBytes:    512 << 10,
		Check:          time.Second,
		Boot:           2 * time.Minute,
		Log:            slog.New(slog.DiscardHandler),
	}
}

// embedded starts a server in the directory.
func embedded(t *testing.T, directory string) *jetstream.Server {
	t.Helper()
	server, err := jetstream.StartServer(jetstream.ServerOptions{
		Directory: directory, Wait: 2 * time.Minute, SyncInterval: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// open opens a log and does its background work until the test ends.
func open(t *testing.T, e jetstream.Endpoint, o jetstream.Options) *jetstream.Bus {
	t.Helper()
	log, err := jetstream.Open(t.Context(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
		_ = log.Close()
	})
	return log
}

func TestJetStreamIsALog(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T, o bustest.Options) bus.Bus {
		with := options()
		with.SessionRecords = o.SessionRecords
		return open(t, embedded(t, t.TempDir()).Endpoint(), with)
	})
}
