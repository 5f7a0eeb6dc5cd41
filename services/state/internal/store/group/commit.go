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
// is guilty fails. An outage ends it for the rest too.
func (l *lane[C]) alone(ctx context.Context) {
	for i := range l.commands {
		each, err := l.c.persist(ctx, l.commands[i:i+1:i+1])
		switch {
		case err != nil && outage(err):
			fill(l.errs[i:], err)
			return
		case err != nil:
			l.errs[i] = err
		default:
			copy(l.errs[i:i+1], each)
		}
	}
}

// persist writes one command, again while it conflicts.
func (c *Committer[C]) persist(ctx context.Context, one []C) (each []error, err error) {
	for range attempts {
		each, err = c.try(ctx, one)
		if !errors.Is(err, ErrConflict) || outage(err) {
			break
		}
	}
	return each, err
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
