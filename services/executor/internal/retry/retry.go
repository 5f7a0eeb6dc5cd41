// Package retry repeats calls of an unavailable or overloaded service.
package retry

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The wait doubles from firstWait to maxWait.
const (
	firstWait = 25 * time.Millisecond
	maxWait   = 2 * time.Second
)

// Backoff is the wait before the next attempt. The zero value waits for 25 ms.
type Backoff struct{ next time.Duration }

// Sleep waits. It returns the cause of an ended ctx.
func (b *Backoff) Sleep(ctx context.Context) error {
	wait := max(b.next, firstWait)
	b.next = min(2*wait, maxWait)
	return Wait(ctx, wait)
}

// Wait waits for d. It returns the cause of an ended ctx.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Call repeats a call while the service is unavailable or overloaded, until ctx ends. timeout bounds one attempt.
func Call(ctx context.Context, timeout time.Duration, call func(ctx context.Context) error) error {
	var wait Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := call(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if kind := fault.KindOf(err); kind != fault.Unavailable && kind != fault.Exhausted {
			return err
		}
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}
