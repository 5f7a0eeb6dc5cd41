package retry

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// budget is how long one request has waited out absences, with all its calls. It may be
// used by many goroutines; nil counts nothing.
type budget struct {
	mu    sync.Mutex
	spent time.Duration // in absences that are over
	since time.Time     // when the one began that is not; zero: none
}

type budgetKey struct{}

// Request gives a context for one request: what Do waits out with it, however many calls
// there are, is no longer together than one absence may be.
func Request(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, &budget{})
}

// PerRequest gives each request of an HTTP handler its budget, as Request does.
func PerRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(Request(r.Context())))
	})
}

// Stream gives a context for what is told when the request has been answered, and for what
// has a patience of its own: there each absence is one by itself.
func Stream(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, (*budget)(nil))
}

// budgetOf gives the request's, nil where there is none.
func budgetOf(ctx context.Context) *budget {
	b, _ := ctx.Value(budgetKey{}).(*budget)
	return b
}

// failing says that a call has failed, and gives how long the request has waited.
func (b *budget) failing(now time.Time) time.Duration {
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

// over says that a service has answered.
func (b *budget) over(now func() time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.since.IsZero() {
		b.spent, b.since = b.spent+now().Sub(b.since), time.Time{}
	}
}
