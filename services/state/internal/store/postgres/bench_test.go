package postgres

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
)

// BenchmarkCommit commits steps of several sessions at the same time, in groups, and each
// in its own transaction on all connections.
func BenchmarkCommit(b *testing.B) {
	single := commits
	single.Batch, single.Lanes = 1, 16
	for _, mode := range []struct {
		name   string
		config group.Config
	}{{"groups", commits}, {"singles", single}} {
		for _, sessions := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("%s/sessions=%d", mode.name, sessions), func(b *testing.B) {
				s, err := Open(b.Context(), pgtest.URL(b), 16, mode.config, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				w := newWorker(b, s)
				refs := w.begin(keysOf("t", sessions)...)
				for _, ref := range refs {
					w.must(w.commit(b.Context(), w.stepOf(ref, 1)))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for i, ref := range refs {
					all.Go(func() {
						for n := range (b.N + sessions - 1 - i) / sessions {
							if err := w.commit(b.Context(), w.stepOf(ref, int32(n+2))); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}
