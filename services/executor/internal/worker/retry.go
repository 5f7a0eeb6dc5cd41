package worker

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

// backoff is the wait before the next attempt. The zero value waits for firstWait.
type backoff struct{ next time.Duration }

// sleep waits. It returns the cause of an ended ctx.
func (b *backoff) sleep(ctx context.Context) error {
	wait := max(b.next, firstWait)
	b.next = min(2*wait, maxWait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retryCall repeats a call while the service is unavailable or overloaded, until ctx ends. timeout bounds one
// attempt.
func retryCall(ctx context.Context, timeout time.Duration, call func(ctx context.Context) error) error {
	var wait backoff
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
		if err := wait.sleep(ctx); err != nil {
			return err
		}
	}
}
