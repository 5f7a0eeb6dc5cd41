package group_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// BenchmarkDo measures the committer without a database. Each caller has its own
// session and runs one command at a time.
func BenchmarkDo(b *testing.B) {
	for _, callers := range []int{1, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmark(b, callers) })
	}
}

func benchmark(b *testing.B, callers int) {
	var mu sync.Mutex
	batches := 0
	write := func(context.Context, []int) ([]error, error) {
		mu.Lock()
		batches++
		mu.Unlock()
		return nil, nil
	}
	c, err := group.New(defaultConfig(), write, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			keys := []session.Key{{Tenant: "t", SessionID: fmt.Sprintf("s%d", i)}}
			for range (b.N + callers - 1 - i) / callers {
				if err := c.Do(b.Context(), keys, 100, i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	c.Close()
	b.ReportMetric(float64(b.N)/float64(batches), "commands/batch")
}
