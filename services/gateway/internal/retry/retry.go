// Package retry waits out the short absence of another service: a restart, a
// failover, a lost connection.
package retry

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// The waits between attempts: a service that restarts is back within a second,
// and one that stays away is asked about once in two seconds.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// Policy says how long an absence may last. It may be shared.
type Policy struct {
	Limit time.Duration    // from the first failure on, and of one request together; 0 tries once
	Now   func() time.Time // never nil
}

// Pause is one absence: it begins with the first failure and ends with Over. The
// zero value has a zero policy.
type Pause struct {
	Policy
	since time.Time
	wait  time.Duration
	all   *budget // of the request, which other absences have used as well; nil: there is none
}

// Over says that the service is back.
func (p *Pause) Over() { p.since, p.wait = time.Time{}, 0 }

// Wait waits before the next attempt. It returns err, the failure of the last
// attempt, when trying again would not help or has lasted too long, and the
// context's error when ctx ends.
func (p *Pause) Wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		p.all.over(p.Now)
		return ctx.Err()
	}
	now := p.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if !Passing(err) {
		p.all.over(p.Now)
		return err
	}
	if max(now.Sub(p.since), p.all.failing(now)) >= p.Limit {
		p.all.over(p.Now) // who goes on behind the failure does not wait meanwhile
		return err
	}
	p.wait = min(max(2*p.wait, firstWait), lastWait)
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tooManyWaiting is a limit that lasts: as many messages wait as a session may have, and
// the first goes on when the run before it has ended.
const tooManyWaiting = "TOO_MANY_WAITING"

// Passing reports whether the failure may pass by itself, and soon.
func Passing(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Unavailable || kind == fault.Exhausted && fault.ReasonOf(err) != tooManyWaiting
}

// Ours makes an error of our own out of a service's refusal of our credentials: the
// caller's credentials have nothing to do with it, and 401 would tell them so.
func Ours(err error) error {
	if kind := fault.KindOf(err); kind == fault.Unauthenticated || kind == fault.Denied {
		return fmt.Errorf("the service behind the gateway refuses it: %v", err) //nolint:errorlint // no fault must be found in it
	}
	return err
}

// Do calls f until it succeeds or Pause.Wait gives up, and gives the failure as
// Ours does. f has to be safe to repeat. Where ctx is one of Request, the absences before
// count as well.
func Do(ctx context.Context, p Policy, f func() error) error {
	pause := Pause{Policy: p, all: budgetOf(ctx)}
	for {
		err := f()
		if err == nil {
			pause.all.over(p.Now)
			return nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return Ours(err)
		}
	}
}
