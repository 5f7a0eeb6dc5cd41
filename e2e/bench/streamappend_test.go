package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const appendWindow = 5 * time.Second

// appendWriters are the numbers of concurrently written sessions.
var appendWriters = []int{1, 100, 1000}

// BenchmarkStreamAppends measures acknowledged, fenced appends with one in flight per session.
func BenchmarkStreamAppends(b *testing.B) {
	for b.Loop() {
		service := harness.StartStream(b, b.TempDir())
		conns := dialStream(b, service.Address)
		raw := startRawLog(b)
		fmt.Print("\nAppends through gRPC to the embedded log, beside nats.go with the expected last sequence of the subject on a NATS\n" +
			"server of the same settings in the process of its clients. Each session has one append in flight.\n")
		for _, n := range appendWriters {
			name := fmt.Sprint("appends-", n)
			mine := appenders(conns, n, func(i int) string { return fmt.Sprint(name, "-", i) })
			theirs := raw.writers(n, name)
			text := stamp(time.Now())
			window := lasting(appendWindow)
			warm := window / 5
			fast(b, n, warm, func(ctx context.Context, i int) error { return mine[i].say(ctx, text) })
			got := fast(b, n, window, func(ctx context.Context, i int) error { return mine[i].say(ctx, text) })
			fast(b, n, warm, func(ctx context.Context, i int) error { return theirs[i].say(ctx, text) })
			want := fast(b, n, window, func(ctx context.Context, i int) error { return theirs[i].say(ctx, text) })
			fmt.Printf("%5d writers: %7.0f appends/s, p50 %8s, p99 %8s | raw %7.0f/s, p50 %8s, p99 %8s: %.2fx rate, %.2fx p50, %.2fx p99\n",
				n, got.rate, got.p50, got.p99, want.rate, want.p50, want.p99,
				got.rate/want.rate, float64(got.p50)/float64(want.p50), float64(got.p99)/float64(want.p99))
			b.ReportMetric(got.rate/want.rate, fmt.Sprintf("x-raw-appends-%d", n))
		}
	}
}
