package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/bustest"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/sharded"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

func TestTwoLogsInMemoryAreALog(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T, o bustest.Options) bus.Bus {
		return run(t, sharded.New([]bus.Bus{
			memory.New(memory.Options{SessionRecords: o.SessionRecords}),
			memory.New(memory.Options{SessionRecords: o.SessionRecords}),
		}))
	})
}

func TestTwoSystemsAreALog(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T, o bustest.Options) bus.Bus {
		return run(t, sharded.New([]bus.Bus{system(t, 0, o), system(t, 1, o)}))
	})
}

// system opens one of two systems, each an embedded server of its own.
func system(t *testing.T, shard int, o bustest.Options) bus.Bus {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server, err := jetstream.StartServer(jetstream.ServerOptions{
		Directory: t.TempDir(), Wait: 2 * time.Minute, SyncInterval: 5 * time.Second, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	b, err := jetstream.Open(t.Context(), server.Endpoint(), jetstream.Options{
		Namespace: "holdfast", Partitions: 4, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 64 << 20,
		SessionRecords: o.SessionRecords, RecordBytes: 512 << 10, Check: 200 * time.Millisecond,
		Boot: 2 * time.Minute, Shards: 2, Shard: shard, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run does the log's background work until the test ends.
func run(t *testing.T, log bus.Bus) bus.Bus {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := log.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

func TestAFamilyIsInOneShardAndTheOthersDoNotKnowIt(t *testing.T) {
	t.Parallel()
	shards := []bus.Bus{memory.New(memory.Options{}), memory.New(memory.Options{}), memory.New(memory.Options{})}
	log := sharded.New(shards)
	for i := range 30 {
		s := bus.Stream{Tenant: "acme", Root: fmt.Sprint("session-", i), Session: "child"}
		if _, err := log.Append(t.Context(), s, 0, &chunklog.Record{Epoch: 1, Number: 1, Run: "r", Kind: chunklog.Chunk}); err != nil {
			t.Fatal(err)
		}
		for shard, one := range shards {
			info, err := one.Info(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if has := shard == sharded.Shard(s, len(shards)); (info.Count == 1) != has {
				t.Errorf("%s: shard %d has %d records, want one: %v", s.Root, shard, info.Count, has)
			}
		}
	}
}
