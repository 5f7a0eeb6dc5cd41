package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// errTooLong ends the context of code of the user that takes too long.
var errTooLong = errors.New("it did not end in time")

// foreign runs code of the user: with a time limit, with panics as errors. It returns
// soon after the limit or the end of ctx, with the cause, also when the code does not:
// then that is left behind, and the worker's end waits for it a little.
func foreign[A any](ctx context.Context, w *Worker, limit time.Duration, f func(ctx context.Context) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	type end struct {
		answer A
		err    error
	}
	ended := make(chan end, 1) // room for the one end, so that what was left behind can still end
	w.foreign.Go(func() {
		var e end
		defer func() {
			if p := recover(); p != nil {
				w.peers.Log.ErrorContext(ctx, "code of an agent panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				e.err = fmt.Errorf("it panicked: %v", p)
			}
			ended <- e
		}()
		e.answer, e.err = f(ctx)
	})
	select {
	case e := <-ended:
		return e.answer, e.err
	case <-ctx.Done():
		var none A
		return none, context.Cause(ctx)
	}
}
