package process

import (
	"context"
	"errors"
	"slices"
	"time"
)

// RunInOrder is Run for tasks that call other tasks of the process. When they have to end, the callers end first, so that
// they can still call the others, for example to commit a step in flight. Each of both has the grace.
func RunInOrder(ctx context.Context, grace time.Duration, called, callers []Task) error {
	if len(called) == 0 || len(callers) == 0 {
		return Run(ctx, grace, slices.Concat(called, callers)...)
	}
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()
	baseEnded := make(chan error, 1) // for the single result
	go func() {
		defer stopFront()
		baseEnded <- Run(base, grace, called...)
	}()
	err := Run(front, grace, callers...)
	stopBase()
	return errors.Join(err, <-baseEnded)
}
