package worker

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The wait between two attempts doubles from the first to the last.
const (
	firstWait = 25 * time.Millisecond
	maxWait   = 2 * time.Second
)

// backoff is the wait before the next attempt; the zero value is the first.
type backoff struct{ next time.Duration }

// sleep waits; an error is that of ctx.
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

// retryCall makes a call until its fate is known: the service has answered something other than
// that it cannot be reached or is overloaded, or ctx has ended. timeout bounds one attempt.
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
