package tool

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Wait waits for the abandoned calls and reports whether they ended within the limit.
func (r *Runner) Wait(limit time.Duration) bool { return r.calls.Wait(limit) }

// Abandoned returns the number of calls still running after their Execute has returned.
func (r *Runner) Abandoned() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, n := range r.abandoned {
		total += n
	}
	return total
}

func (r *Runner) abandonedCalls(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned[key]
}

// abandon counts an unfinished call until it ends.
func (r *Runner) abandon(ctx context.Context, key string, call *agent.Call, ends <-chan end) {
	r.count(key, 1)
	begin := time.Now()
	log := r.Log.With("tool", call.Tool, "call", call.ID, "session", call.SessionID)
	log.WarnContext(ctx, "tool goes on after its end", "abandoned", r.abandonedCalls(key))
	r.calls.Go(func() { // ends directly after the tool
		<-ends
		r.count(key, -1)
		log.InfoContext(context.WithoutCancel(ctx), "late tool has ended", "late", time.Since(begin))
	})
}

func (r *Runner) count(key string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.abandoned == nil {
		r.abandoned = map[string]int{}
	}
	if r.abandoned[key] += n; r.abandoned[key] <= 0 {
		delete(r.abandoned, key)
	}
}
