package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// A stream accepts no claims from commands while maxUnsent of them wait, or while it has sent
// none of them for slowAfter: its client does not read.
const (
	maxUnsent = claimBatch
	slowAfter = 50 * time.Millisecond
)

// outbox holds the claims made by commands until the stream has sent them.
type outbox struct {
	more chan struct{} // holds one signal: a claim waits

	mu      sync.Mutex
	waiting []store.Decided
	unsent  int       // waiting or being sent
	since   time.Time // when the stream last took claims, or when the first claim came
	closed  bool
}

// put reports false when the stream has ended.
func (o *outbox) put(claim store.Decided, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if o.unsent == 0 {
		o.since = now
	}
	o.waiting = append(o.waiting, claim)
	o.unsent++
	signal(o.more)
	return true
}

// accepts reports whether the stream takes further claims.
func (o *outbox) accepts(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	slow := o.unsent > 0 && now.Sub(o.since) > slowAfter
	return o.unsent < maxUnsent && !slow && !o.closed
}

// sent notes the sending of n claims.
func (o *outbox) sent(n int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsent -= n
	o.since = now
}

func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent == 0
}

func (o *outbox) take() []store.Decided {
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting := o.waiting
	o.waiting = nil
	return waiting
}

// close returns the unsent claims. put fails from now on.
func (o *outbox) close() []store.Decided {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	return o.take()
}

// sendOutbox sends the claims made by commands until ctx ends, and releases the unsent ones. It
// does not wait for the claim loop. The error means a broken stream.
func (c *claimer) sendOutbox(ctx context.Context) error {
	defer func() { c.release(ctx, c.outbox.close()) }()
	for {
		select {
		case <-c.outbox.more:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		claims := c.outbox.take()
		sent, err := c.send(ctx, claims)
		if err != nil {
			return err
		}
		c.outbox.sent(len(claims), c.Now())
		c.credits.giveBack(len(claims) - sent)
	}
}
