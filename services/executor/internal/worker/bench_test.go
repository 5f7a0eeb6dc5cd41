package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// BenchmarkALiveRun measures the memory of a run that waits for a slow model: heap and stacks in bytes,
// including the idle services.
func BenchmarkALiveRun(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("conversation of %d bytes", size), func(b *testing.B) { benchmarkLiveRuns(b, 2000, size) })
	}
}

func benchmarkLiveRuns(b *testing.B, runs, size int) {
	for b.Loop() {
		var waiting atomic.Int64
		all := make(chan struct{})
		h := newSystem(b, define("demo", modelFunc(func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
			say(model.TextDelta{Text: "Let me think. "})
			if waiting.Add(1) == int64(runs) {
				close(all)
			}
			<-ctx.Done()
			return ctx.Err()
		})))
		h.config.Slots = 16384
		h.config.DrainGrace = 1
		words := strings.Repeat("x", size)
		for n := range runs {
			h.startRun(fmt.Sprintf("session %d", n), "demo", words)
		}
		before := memory()
		e := h.open()
		<-all
		b.ReportMetric(float64(memory()-before)/float64(runs), "bytes/run")
		b.ReportMetric(float64(runtime.NumGoroutine())/float64(runs), "goroutines/run")
		e.stop()
		<-e.ended
	}
}

// memory returns the bytes in use after several collections: the first one shrinks stacks.
func memory() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
