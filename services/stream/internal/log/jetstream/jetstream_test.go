package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/embedded"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
	"github.com/holdfast-run/holdfast/services/stream/internal/natstest"
)

// patience bounds every wait of a test.
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

// open opens a log as one of several replicas and runs it until the test ends.
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

// Answers share one subscription. The answer to a cancelled append must be dropped.
func TestAnAppendThatIsGivenUpLeavesTheAnswersOfOthersAlone(t *testing.T) {
	t.Parallel()
	l := open(t, jetstream.Endpoint{InProcess: start(t, t.TempDir()).InProcess()}, options())
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			s := log.Stream{Tenant: "t", Root: fmt.Sprint("r", i), Session: "s"}
			var last uint64
			for n := range int64(50) {
				ctx, cancel := context.WithCancel(t.Context())
				if n%2 == 1 {
					go cancel() // before, during or after its wait
				}
				offset, err := l.Append(ctx, s, last, &log.Message{Epoch: 1, Last: n, Body: []byte("body")})
				cancel()
				stored, lookErr := l.Last(t.Context(), s)
				if lookErr != nil || stored == nil {
					t.Errorf("last: got %v, %v", stored, lookErr)
					return
				}
				if err == nil && (offset != stored.Offset || n != stored.Last) {
					t.Errorf("append %d: got offset %d, want %d of %d", n, offset, stored.Offset, stored.Last)
				}
				if err != nil && !errors.Is(err, fault.Unavailable) && !errors.Is(err, log.ErrConflict) {
					t.Errorf("append %d: got %v, want LOG_UNAVAILABLE or a conflict", n, err)
				}
				last = stored.Offset
			}
		})
	}
	group.Wait()
}
