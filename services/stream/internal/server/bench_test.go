package server_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/services/stream/internal/embedded"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// BenchmarkAppend measures an append in the process of the service, with the embedded server and without gRPC:
// processor time and allocations of both.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers-", writers), func(b *testing.B) { benchmarkAppend(b, writers) })
	}
}

func benchmarkAppend(b *testing.B, writers int) {
	ns, err := embedded.Start(embedded.Options{Directory: b.TempDir(), Wait: patience, SyncInterval: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer ns.Close()
	l, err := jetstream.Open(b.Context(), jetstream.Endpoint{InProcess: ns.InProcess()}, jetstream.Options{
		Partitions: 16, Replicas: 1, MaxAge: time.Hour, PartitionBytes: 512 << 20,
		MessageBytes: recordBytes, Check: 5 * time.Second, Boot: patience, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s, err := server.New(l, grant.Keys{}, recordBytes, noop.Meter{})
	if err != nil {
		b.Fatal(err)
	}
	body := strings.Repeat("x", 200)
	b.ReportAllocs()
	b.ResetTimer()
	began := processorTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			w := &writer{ref: refOf(fmt.Sprint("session-", i)), epoch: 1}
			r := w.begin(1, 1, body)
			for left.Add(-1) >= 0 {
				if _, err := s.Append(b.Context(), r); err != nil {
					b.Error(err)
					return
				}
				w.after = lastOf(r)
				r = w.continueWith(body)
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64((processorTime(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
