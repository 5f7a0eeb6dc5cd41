package group

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// attempts is how often a command that is alone is written when it meets
// others: of another replica, or of statements that no key guards. Who meets
// others five times in a row will do so again.
const attempts = 5

// ErrConflict is what errors.Is finds in an error that Conflict has marked.
var ErrConflict = errors.New("transaction conflict")

// Conflict marks an error of Write after which the same commands may simply be
// tried again: a serialization failure, a deadlock, a unique violation. err
// stays to be found inside.
func Conflict(err error) error { return fmt.Errorf("%w: %w", ErrConflict, err) }

// commit writes the batch, and leaves the outcome of each command in errs.
func (l *lane[C]) commit() {
	for _, e := range l.batch {
		l.commands = append(l.commands, e.command)
	}
	l.errs = slices.Grow(l.errs, len(l.batch))[:len(l.batch)]
	// No caller's context: the batch belongs to many.
	ctx, cancel := context.WithTimeout(context.Background(), l.c.config.Within)
	defer cancel()
	if len(l.commands) == 1 {
		l.alone(ctx)
		return
	}
	each, err := l.c.try(ctx, l.commands)
	switch {
	case err == nil:
		copy(l.errs, each)
	case outage(err):
		fill(l.errs, err)
	default:
		l.alone(ctx)
	}
}

// alone writes each command of the batch by itself, so that only the one that
// is guilty fails. Those that conflict are tried again when the others are
// written: they may be waiting for what somebody else does not let go of.
func (l *lane[C]) alone(ctx context.Context) {
	for i := range l.commands {
		l.pending = append(l.pending, i)
	}
	for range attempts {
		l.round(ctx)
	}
	l.pending = l.pending[:0]
}

// round tries each pending command once, and keeps those pending that conflict.
// An outage ends it for the rest too.
func (l *lane[C]) round(ctx context.Context) {
	again := l.pending[:0]
	for n, i := range l.pending {
		each, err := l.c.try(ctx, l.commands[i:i+1:i+1])
		if err != nil && outage(err) {
			for _, i := range l.pending[n:] {
				l.errs[i] = err
			}
			again = again[:0]
			break
		}
		l.errs[i] = err
		copy(l.errs[i:i+1], each)
		if errors.Is(err, ErrConflict) {
			again = append(again, i)
		}
	}
	l.pending = again
}

// try calls Write once. A panic of it is an error that is no conflict.
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
	if err == nil && each != nil && len(each) != len(batch) { // written, but nobody knows which
		return slices.Repeat([]error{fmt.Errorf("write %d commands: got %d answers", len(batch), len(each))}, len(batch)), nil
	}
	return each, err
}

// outage reports whether another try would meet the same database that is
// away, or the end of the time that the batch has. Trying again would multiply it.
func outage(err error) bool {
	return errors.Is(err, fault.Unavailable) || errors.Is(err, context.DeadlineExceeded)
}

func fill(errs []error, err error) {
	for i := range errs {
		errs[i] = err
	}
}
