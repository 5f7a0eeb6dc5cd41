package publisher

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// The delay between two attempts doubles from the first to the last.
const (
	firstWait = 25 * time.Millisecond
	lastWait  = time.Second
)

// The interval between two checks of a silent publisher doubles from the first to the last while nothing
// changes.
const (
	firstCheckInterval = 5 * time.Second
	maxCheckInterval   = 30 * time.Second
)

// checks are the times at which a silent publisher asks the log for its last record.
type checks struct {
	interval time.Duration
	due      time.Time
}

// schedule sets the time of the next check.
func (c *checks) schedule() { c.due = time.Now().Add(c.interval) }

const reasonRecordsLost = "RECORDS_LOST"

// Run appends queued chunks until ctx ends or the publisher is fenced.
func (p *Publisher) Run(ctx context.Context) {
	p.patience = time.AfterFunc(p.config.Patience, p.markUnreachable)
	defer p.patience.Stop()
	due := time.NewTimer(firstCheckInterval)
	defer due.Stop()
	for ctx.Err() == nil {
		r := p.next(ctx, due)
		if r == nil {
			return
		}
		p.append(ctx, r)
	}
}

// next waits for the next request: queued entries, or a check after a silence. It returns nil when there is
// nothing more to send.
func (p *Publisher) next(ctx context.Context, due *time.Timer) *request {
	for {
		p.mu.Lock()
		if p.err != nil {
			p.mu.Unlock()
			return nil
		}
		r, spoiled := p.queue.take(p.limits)
		if spoiled != 0 {
			p.markPartial(spoiled)
		}
		if r == nil {
			p.wakeWaiters() // the spoiled chunks have left the queue
		}
		if r == nil && p.attempt.begun && len(p.attempt.sent) > 0 {
			if wait := time.Until(p.checks.due); wait > 0 {
				due.Reset(wait)
			} else {
				r = p.queue.newRequest()
			}
		}
		if r != nil {
			r.since = time.Now()
			p.queue.inflight = r
			p.mu.Unlock()
			return r
		}
		p.mu.Unlock()
		select {
		case <-p.wake:
		case <-due.C: // may belong to a cancelled check
		case <-ctx.Done():
			return nil
		}
	}
}

// append sends the request until its outcome is known or irrelevant.
func (p *Publisher) append(ctx context.Context, r *request) {
	p.patience.Reset(p.config.Patience)
	defer p.patience.Stop()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		call, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
		_, err := p.client.Append(call, &streamv2.AppendRequest{
			Stream: p.claim.Stream, Epoch: p.claim.Epoch, After: r.after, Records: r.records, Grant: p.claim.Grant,
		})
		cancel()
		if p.handleOutcome(r, err) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-r.voided:
		case <-ctx.Done():
		}
		timer.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		r.stopRepeating()
		p.queue.inflight = nil
		p.wakeRun()
		return
	}
}

// markUnreachable marks the log as unreachable, so callers stop waiting for it.
func (p *Publisher) markUnreachable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.queue.inflight; r == nil || p.unreachable || time.Since(r.since) < p.config.Patience {
		return
	}
	p.log.Warn("the log does not answer; the run goes on without", "patience", p.config.Patience)
	p.unreachable = true
	p.queue.dropBacklog(p.attempt.step)
	p.wakeRun()
}

// handleOutcome processes the outcome of the request and reports whether it is known.
func (p *Publisher) handleOutcome(r *request, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, reason := fault.KindOf(err), fault.ReasonOf(err)
	switch {
	case err != nil && kind == fault.Stale && reason != reasonRecordsLost: // every later call fails
		p.err = fenced(err)
		p.queue.set(nil)
		p.attempt.sent = nil
	case err == nil && r.check():
		p.checks.interval = min(2*p.checks.interval, maxCheckInterval)
	case err == nil:
		p.queue.after = r.last
		p.checks.interval = firstCheckInterval
		p.attempt.retain(chunksOf(r.entries, p.attempt.step))
	case r.void:
	case reason == reasonRecordsLost:
		p.republish(r)
	case kind == fault.Invalid, kind == fault.TooLarge:
		p.handleRefusal(r, err)
	case r.check(): // the next check asks again
		p.queue.inflight = nil
		p.checks.schedule()
		return true
	default:
		p.answered = true
		p.wakeWaiters()
		return false
	}
	p.answered = true
	if p.unreachable {
		p.log.Info("the log is reachable again")
		p.unreachable = false
	}
	p.queue.inflight = nil
	p.checks.schedule()
	p.wakeRun()
	return true
}

// republish sends lost records once more. Of a committed step it repeats only the boundary.
func (p *Publisher) republish(r *request) {
	switch {
	case r.check() || r.entries[0].step == p.attempt.step && r.entries[0].boundary == nil:
		p.log.Warn("the log has lost records; the step in flight is shown again", "step", p.attempt.step)
		p.restart(reasonLogLost, func(*eventv1.Chunk) bool { return true })
	case r.entries[0].boundary != nil: // the log is past it already
		p.queue.requeue(r, r.entries[1:])
	default:
		step := r.entries[0].step
		p.queue.requeue(r, r.entries)
		p.markPartial(step)
		p.queue.remove(func(e entry) bool { return e.step == step && e.boundary == nil })
	}
}

// handleRefusal handles a request that the log will never accept unchanged. A large request is sent in smaller ones. A
// chunk that cannot be made smaller is left out: readers receive it with the committed step.
func (p *Publisher) handleRefusal(r *request, err error) {
	if r.check() {
		p.log.Error("the log refuses a check", "error", err)
		return
	}
	entries := r.entries
	unit := unitLength(entries)
	last := &entries[unit-1]
	tooLarge := fault.KindOf(err) == fault.TooLarge || strings.HasSuffix(fault.ReasonOf(err), "_TOO_LARGE")
	switch {
	case r.trimmed: // the rest may be accepted
	case len(entries) > unit:
		p.limits.append = sizeOf(entries) / 2
	case tooLarge && last.boundary != nil && dropOutput(last.boundary.GetBoundary()):
		last.partial = true
	case tooLarge && last.chunk != nil && p.limits.halve(last.chunk): // sent again in two
	default:
		p.log.Error("the log refuses a record, which is not shown", "error", err)
		p.markPartial(last.step)
		entries = entries[:unit-1]
	}
	p.queue.requeue(r, entries)
}
