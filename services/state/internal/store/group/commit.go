package group

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// attempts is how often a single command is tried when it conflicts with another
// replica, or with statements that lock no key.
const attempts = 5

// ErrConflict matches errors marked by Conflict.
var ErrConflict = errors.New("transaction conflict")

// Conflict marks an error of Write after which the same commands can be retried: a
// serialization failure, a deadlock, a unique violation. It wraps err.
func Conflict(err error) error { return fmt.Errorf("%w: %w", ErrConflict, err) }

// commit writes the batch, and puts the outcome of each command into errs.
func (l *lane[C]) commit() {
	for _, e := range l.batch {
		l.commands = append(l.commands, e.command)
	}
	l.errs = slices.Grow(l.errs, len(l.batch))[:len(l.batch)]
	// No caller's context: the callers share the batch.
	ctx, cancel := context.WithTimeout(context.Background(), l.c.config.BatchTimeout)
	defer cancel()
	if len(l.commands) == 1 {
		l.commitEach(ctx)
		return
	}
	each, err := l.c.try(ctx, l.commands)
	switch {
	case err == nil:
		copy(l.errs, each)
	case isOutage(err):
		setAll(l.errs, err)
	default:
		l.commitEach(ctx)
	}
}

// commitEach writes each command of the batch separately, so that only the failing
// command gets its error. Conflicting commands are retried after the others, since the
// other transaction may need time to end.
func (l *lane[C]) commitEach(ctx context.Context) {
	for i := range l.commands {
		l.pending = append(l.pending, i)
	}
	for range attempts {
		l.commitPending(ctx)
	}
	l.pending = l.pending[:0]
}

// commitPending tries each pending command once. Commands with a conflict stay
// pending. An outage fails all remaining commands.
func (l *lane[C]) commitPending(ctx context.Context) {
	conflicted := l.pending[:0]
	for n, i := range l.pending {
		each, err := l.c.try(ctx, l.commands[i:i+1:i+1])
		if err != nil && isOutage(err) {
			for _, i := range l.pending[n:] {
				l.errs[i] = err
			}
			conflicted = conflicted[:0]
			break
		}
		l.errs[i] = err
		copy(l.errs[i:i+1], each)
		if errors.Is(err, ErrConflict) {
			conflicted = append(conflicted, i)
		}
	}
	l.pending = conflicted
}

// try calls Write once, and turns a panic into an error other than a conflict.
func (c *Committer[C]) try(ctx context.Context, batch []C) (each []error, err error) {
	defer func() {
		if p := recover(); p != nil {
			each, err = nil, fmt.Errorf("write %d commands: panic: %v\n%s", len(batch), p, debug.Stack())
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	each, err = c.write(ctx, batch)
	if errors.Is(err, ErrConflict) {
		c.meters.conflicts.Add(ctx, 1)
	}
	if err == nil && each != nil && len(each) != len(batch) { // the outcome of each is unknown
		return slices.Repeat([]error{fmt.Errorf("write %d commands: got %d outcomes", len(batch), len(each))}, len(batch)), nil
	}
	return each, err
}

// isOutage reports whether the database is unreachable or the time of the batch has
// ended. Retries would multiply the load.
func isOutage(err error) bool {
	return errors.Is(err, fault.Unavailable) || errors.Is(err, context.DeadlineExceeded)
}

func setAll(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}
