// Package retry repeats calls during a short outage of another service: a restart, a failover, a
// lost connection.
package retry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Waits between attempts. A service is back within a second of a restart; during a longer outage it
// is called about every two seconds.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// Policy is how long an outage may last. It may be shared.
type Policy struct {
	Limit time.Duration    // from the first failure on, and of one request together; 0 tries once
	Now   func() time.Time // never nil
}

// Outage is one outage, from the first failure to End. The zero value has a zero policy.
type Outage struct {
	Policy
	since time.Time
	wait  time.Duration
	all   *budget // of the request, shared with its other outages; nil for none
}

// End notes an answer of the service.
func (p *Outage) End() { p.since, p.wait = time.Time{}, 0 }

// Wait waits before the next attempt. It returns err, the failure of the last attempt, if a retry
// cannot help or the outage has lasted too long, and the context's error when ctx ends.
func (p *Outage) Wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		p.all.endOutage(p.Now)
		return ctx.Err()
	}
	now := p.Now()
	if p.since.IsZero() {
		p.since = now
	}
	if !IsTransient(err) {
		p.all.endOutage(p.Now)
		return err
	}
	if max(now.Sub(p.since), p.all.startOutage(now)) >= p.Limit {
		p.all.endOutage(p.Now) // the caller goes on without a wait
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

// tooManyWaiting lasts: the session has as many waiting runs as it may, until its live run has
// ended.
const tooManyWaiting = "TOO_MANY_WAITING"

// IsTransient reports whether a retry may soon succeed.
func IsTransient(err error) bool {
	kind := fault.KindOf(err)
	f, _ := fault.From(err)
	quota := f != nil && f.RetryAfter() > 0 // the client waits, and not a request that holds memory here
	return kind == fault.Unavailable || kind == fault.Exhausted && fault.ReasonOf(err) != tooManyWaiting && !quota
}

// ofCallers are reasons of services against the caller, not against this gateway.
var ofCallers = []string{"APPROVER_REFUSED", "CALLER_TOOLS_REFUSED", "OWNER_REFUSED", "SCOPE_MISSING"}

// HideCredentialFault hides a refusal of this gateway's credentials by a service. The caller would otherwise
// receive 401 for its own.
func HideCredentialFault(err error) error {
	kind := fault.KindOf(err)
	if kind == fault.Unauthenticated || kind == fault.Denied && !slices.Contains(ofCallers, fault.ReasonOf(err)) {
		return fmt.Errorf("a service refuses the credentials of the gateway: %v", err) //nolint:errorlint // without the fault
	}
	return err
}

// Do calls f until it succeeds or Outage.Wait gives up, and returns the failure as HideCredentialFault
// does. f must be safe to repeat. With a context of Request, earlier outages count as well.
func Do(ctx context.Context, p Policy, f func() error) error {
	pause := Outage{Policy: p, all: budgetOf(ctx)}
	for {
		err := f()
		if err == nil {
			pause.all.endOutage(p.Now)
			return nil
		}
		if err := pause.Wait(ctx, err); err != nil {
			return HideCredentialFault(err)
		}
	}
}
