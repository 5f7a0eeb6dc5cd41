package scheduler

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"
)

// schedule says when a claim loop reads everything, signaled or not.
type schedule struct {
	poll *time.Timer
	due  bool // the time has come, and no complete query has followed
}

// loop claims and sends until the stream ends.
func (c *claimer) loop(ctx context.Context) error {
	c.schedule = schedule{poll: time.NewTimer(c.pollPause()), due: true}
	defer c.schedule.poll.Stop()
	for {
		free, ended := c.credits.get()
		if errors.Is(ended, io.EOF) {
			return nil
		}
		if ended != nil {
			return ended
		}
		var err error
		if free > 0 {
			err = c.claimWork(ctx)
		} else {
			err = c.waitForCredits(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// waitForCredits returns nil on new credits, and when the executor closes its side.
func (c *claimer) waitForCredits(ctx context.Context) error {
	select {
	case <-c.credits.more:
		return nil
	case <-c.stopping:
		return errStopping()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// claimWork claims and sends while there are credits, and waits while there is no work.
//
// A query below its limit has seen everything, and later runs leave a signal. See search for the
// exception.
func (c *claimer) claimWork(ctx context.Context) error {
	w := c.hub.join(c.agents, c.credits)
	defer c.hub.leave(w)
	var missing search
	for {
		limit, spare := c.credits.take(claimBatch)
		if limit == 0 {
			return nil
		}
		signaled := c.hub.take(w, limit)
		if !spare {
			missing.expect(signaled)
		}
		all := c.pollDue()
		n, more, err := c.claim(ctx, limit, spare, all)
		if err != nil {
			return err
		}
		missing.found(n)
		if n == limit && c.credits.open() == 0 {
			c.hub.pass(w) // there may be more runs than this executor can take
		}
		if spare { // the runs of other tenants stay queued
			c.hub.passSignal(w, max(signaled-n, 0))
		}
		if more || spare {
			c.hub.markBacklog(w)
		}
		if more && n > 0 {
			continue
		}
		if all {
			c.schedule.due = false
			c.schedule.poll.Reset(c.pollPause())
		}
		pause := missing.pause()
		if !more && !spare {
			c.hub.markIdle(w, c, missing.runs)
		}
		if err := c.wait(ctx, w.woken, pause, spare); err != nil {
			return err
		}
	}
}

func (c *claimer) pollPause() time.Duration {
	poll := c.config.Poll
	return poll/2 + rand.N(poll)
}

// pollDue reports whether it is time to read everything. Signals do not postpone it.
func (c *claimer) pollDue() bool {
	select {
	case <-c.schedule.poll.C:
		c.schedule.due = true
	default:
	}
	return c.schedule.due
}

// wait returns nil when there may be work: after a wake-up, with the poll, and after the pause
// unless it is 0. With spare, the last query was for some tenants, and credits for the others end the wait.
func (c *claimer) wait(ctx context.Context, woken <-chan struct{}, pause time.Duration, spare bool) error {
	var soon <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		soon = timer.C
	}
	for {
		select {
		case <-c.credits.more:
			if _, ended := c.credits.get(); ended == nil && (!spare || c.credits.open() == 0) {
				continue // more credits; there was no work for the former ones
			}
		case <-woken:
		case <-soon:
		case <-c.schedule.poll.C:
			c.schedule.due = true
		case <-c.stopping:
			return errStopping()
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
}

// search counts the runs signaled to a loop and not found: mostly their session was locked for
// a moment, or another loop was faster.
type search struct {
	runs    int
	retries int // since the last notification
}

// searchPauses are the pauses before the queries for missing runs. Then it is left to the poll.
var searchPauses = [...]time.Duration{3 * time.Millisecond, 6 * time.Millisecond, 12 * time.Millisecond}

// expect adds signaled runs.
func (s *search) expect(runs int) {
	if runs > 0 {
		s.runs += runs
		s.retries = 0
	}
}

func (s *search) found(n int) {
	if s.runs -= n; s.runs <= 0 {
		*s = search{}
	}
}

// pause returns how long to wait before the next query; 0 leaves it to the poll.
func (s *search) pause() time.Duration {
	if s.runs == 0 || s.retries == len(searchPauses) {
		*s = search{}
		return 0
	}
	s.retries++
	return searchPauses[s.retries-1]
}
