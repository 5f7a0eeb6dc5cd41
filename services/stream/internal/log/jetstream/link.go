package jetstream

import (
	"context"
	"sync"
)

// link ends the requests that are under way when the connection is lost: their
// answers will not come, and their callers may look or repeat at once.
type link struct {
	mu   sync.Mutex
	up   context.Context //nolint:containedctx // the time of one connection, not of a call
	down context.CancelFunc
}

func newLink() *link {
	l := &link{}
	l.up, l.down = context.WithCancel(context.Background())
	return l
}

// lost ends the requests under way.
func (l *link) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down()
	l.up, l.down = context.WithCancel(context.Background())
}

// request returns the context of one request: it ends with ctx, with the
// connection, or after requestTimeout.
func (l *link) request(ctx context.Context) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(up, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
