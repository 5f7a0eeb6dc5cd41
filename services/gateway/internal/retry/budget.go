package retry

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// budget is the waiting time of one request in outages, over all its calls. It may be used by many
// goroutines. nil counts nothing.
type budget struct {
	mu    sync.Mutex
	spent time.Duration // in ended outages
	since time.Time     // start of the current outage; zero for none
}

type budgetKey struct{}

// Request returns a context for one request. All waits of Do with it are, together, no longer than
// Policy.Limit.
func Request(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{})
}

// PerRequest gives each request of an HTTP handler the context of Request.
func PerRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(Request(r.Context())))
	})
}

// Stream returns a context for a stream after its request was answered. There each outage may last
// for Policy.Limit.
func Stream(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, (*budget)(nil))
}

// budgetOf returns the budget of the request, nil for none.
func budgetOf(ctx context.Context) *budget {
	b, _ := ctx.Value(budgetKey{}).(*budget)
	return b
}

// startOutage notes a failed call and returns how long the request has waited.
func (b *budget) startOutage(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		b.since = now
	}
	return b.spent + now.Sub(b.since)
}

// endOutage notes an answer of the service.
func (b *budget) endOutage(now func() time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		b.spent, b.since = b.spent+now().Sub(b.since), time.Time{}
	}
}
