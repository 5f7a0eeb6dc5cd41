package server

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// credits counts how many claims the client can take.
type credits struct {
	more chan struct{} // holds one signal: the number or the end has changed

	mu    sync.Mutex
	left  int
	ended error // why no more will come; io.EOF when the client has closed its side
}

// mostCredits keeps a client that counts wrongly from overflowing the number.
const mostCredits = 1 << 20

func newCredits(n int32) *credits {
	return &credits{left: max(int(n), 0), more: make(chan struct{}, 1)}
}

// fill adds what the client gives until its side of the stream ends.
func (c *credits) fill(stream claimStream) {
	for {
		r, err := stream.Recv()
		c.mu.Lock()
		c.ended = err
		c.left = min(c.left+max(int(r.GetCredits()), 0), mostCredits)
		c.mu.Unlock()
		signal(c.more)
		if err != nil {
			return
		}
	}
}

func (c *credits) get() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left, c.ended
}

// take takes at most so many, and returns how many. Of a client that has no more to
// say it takes none.
func (c *credits) take(most int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return 0
	}
	n := min(c.left, most)
	c.left -= n
	return n
}

// back gives back what was taken and is not used.
func (c *credits) back(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	c.left += n
	c.mu.Unlock()
	signal(c.more)
}

func (c *claimer) run(ctx context.Context) error {
	c.poll, c.all = time.NewTimer(c.pollPause()), true
	defer c.poll.Stop()
	for {
		left, ended := c.credits.get()
		if errors.Is(ended, io.EOF) {
			return nil
		}
		if ended != nil {
			return ended
		}
		var err error
		if left > 0 {
			err = c.serve(ctx)
		} else {
			err = c.waitForCredits(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// waitForCredits returns nil when they have changed, or the client has no more
// to say.
func (c *claimer) waitForCredits(ctx context.Context) error {
	select {
	case <-c.credits.more:
		return nil
	case <-c.server.stopping:
		return stopping()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serve claims and sends until the credits are used up or the client has no more
// to say, and waits while there is no work.
//
// A look that found less than it may take has seen everything: what comes
// later leaves a signal, and is not looked for before. But see search.
func (c *claimer) serve(ctx context.Context) error {
	w := c.server.hub.join(c.agents)
	defer c.server.hub.leave(w)
	var missing search
	for {
		limit := c.credits.take(claimBatch)
		if limit == 0 {
			return nil
		}
		missing.tell(c.server.hub.take(w, limit))
		all := c.polled()
		n, more, err := c.claim(ctx, limit, all)
		if err != nil {
			return err
		}
		missing.found(n)
		if left, _ := c.credits.get(); n == limit && left == 0 {
			c.server.hub.pass(w) // there may be more than this one can take
		}
		if more {
			c.server.hub.behind(w)
		}
		if more && n > 0 {
			continue
		}
		if all {
			c.all = false
			c.poll.Reset(c.pollPause())
		}
		pause := missing.pause()
		if !more {
			c.server.hub.seen(w, c, missing.runs)
		}
		if err := c.wait(ctx, w.woken, pause); err != nil {
			return err
		}
	}
}

func (c *claimer) pollPause() time.Duration {
	poll := c.server.config.Poll
	return poll/2 + rand.N(poll)
}

// polled reports whether it is time to look for everything. No signal puts that
// off.
func (c *claimer) polled() bool {
	select {
	case <-c.poll.C:
		c.all = true
	default:
	}
	return c.all
}

// wait returns nil when there may be something to do: after the pause at the
// latest, where that is not 0, and with the poll.
func (c *claimer) wait(ctx context.Context, woken <-chan struct{}, pause time.Duration) error {
	var soon <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		soon = timer.C
	}
	for {
		select {
		case <-c.credits.more:
			if _, ended := c.credits.get(); ended == nil {
				continue // there were credits before, and nothing to take for them
			}
		case <-woken:
		case <-soon:
		case <-c.poll.C:
			c.all = true
		case <-c.server.stopping:
			return stopping()
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
}

// search is what signals have told a loop of and its looks have not found. The
// session of such a run is locked by another command as a rule, for a moment,
// and was passed over; or another loop was faster.
type search struct {
	runs  int
	looks int // again, since the last signal
}

// searchPauses are the pauses before the looks for what is missing. What those
// do not find is for the poll.
var searchPauses = [...]time.Duration{3 * time.Millisecond, 6 * time.Millisecond, 12 * time.Millisecond}

func (s *search) tell(more int) {
	if more > 0 {
		s.runs += more
		s.looks = 0
	}
}

func (s *search) found(n int) {
	if s.runs -= n; s.runs <= 0 {
		*s = search{}
	}
}

// pause is how long to wait before the next look; 0 for no other than the
// poll's.
func (s *search) pause() time.Duration {
	if s.runs == 0 || s.looks == len(searchPauses) {
		*s = search{}
		return 0
	}
	s.looks++
	return searchPauses[s.looks-1]
}
