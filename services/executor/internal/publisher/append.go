package publisher

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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
		for len(p.queue) > 0 {
			if r := p.take(); r != nil {
				defer p.mu.Unlock()
				return p.startRequest(r)
			}
		}
		p.wakeWaiters() // take may have dropped void entries
		check := p.check()
		if check != nil && !time.Now().Before(p.checkAt) {
			defer p.mu.Unlock()
			return p.startRequest(check)
		}
		if check != nil {
			due.Reset(time.Until(p.checkAt))
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

// startRequest makes the request the one in flight. The caller holds mu.
func (p *Publisher) startRequest(r *request) *request {
	p.inflight, r.since = r, time.Now()
	return r
}

// check returns a request that asks whether the log still has the records of the step in flight; nil if there
// are none.
func (p *Publisher) check() *request {
	if !p.marked || len(p.queue) > 0 || len(p.kept) == 0 {
		return nil
	}
	return &request{after: p.after, last: p.after, before: p.at, voided: make(chan struct{})}
}

// append sends the request until its outcome is known or irrelevant.
func (p *Publisher) append(ctx context.Context, r *request) {
	p.patience.Reset(p.config.Patience)
	defer p.patience.Stop()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := p.send(ctx, r)
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
		p.abandon(r)
		return
	}
}

func (p *Publisher) send(ctx context.Context, r *request) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
	defer cancel()
	_, err := p.client.Append(ctx, &streamv2.AppendRequest{Stream: p.claim.Stream, Epoch: p.claim.Epoch, After: r.after, Records: r.records, Grant: p.claim.Grant})
	return err
}

// markUnreachable marks the log as unreachable, so callers stop waiting for it.
func (p *Publisher) markUnreachable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inflight == nil || p.unreachable || time.Since(p.inflight.since) < p.config.Patience {
		return
	}
	p.log.Warn("the log does not answer; the run goes on without", "patience", p.config.Patience)
	p.unreachable = true
	p.dropBacklog()
	p.wakeRun()
}

// abandon ends a request whose outcome is irrelevant.
func (p *Publisher) abandon(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.stopRepeating()
	p.inflight = nil
	p.wakeRun()
}

// handleOutcome processes the outcome of the request and reports whether it is known.
func (p *Publisher) handleOutcome(r *request, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, reason := fault.KindOf(err), fault.ReasonOf(err)
	switch {
	case err != nil && kind == fault.Stale && reason != reasonRecordsLost:
		p.end(fenced(err))
	case err == nil:
		p.acknowledge(r)
	case r.void:
	case reason == reasonRecordsLost:
		p.publishAgain(r)
	case kind == fault.Invalid, kind == fault.TooLarge:
		p.handleRefusal(r, err)
	case r.check(): // the next check asks again
		p.inflight = nil
		p.checkAt = time.Now().Add(p.interval)
		return true
	default:
		p.answered = true
		p.wakeWaiters()
		return false
	}
	p.answered = true
	if p.unreachable {
		p.log.Info("the log answers again")
		p.unreachable = false
	}
	p.inflight = nil
	p.checkAt = time.Now().Add(p.interval)
	p.wakeRun()
	return true
}

func (p *Publisher) acknowledge(r *request) {
	if r.check() {
		p.interval = min(2*p.interval, maxCheckInterval)
		return
	}
	p.after, p.interval = r.last, firstCheckInterval
	p.retain(chunksOf(r.entries, p.step))
}

// publishAgain publishes lost records again. Of a committed step it repeats only the boundary.
func (p *Publisher) publishAgain(r *request) {
	switch {
	case r.check() || r.entries[0].step == p.step && r.entries[0].boundary == nil:
		p.log.Warn("the log has lost records; the step in flight is shown again", "step", p.step)
		p.restart(reasonLogLost, func(*eventv1.Chunk) bool { return true })
	case r.entries[0].boundary != nil: // the log is past it already
		p.requeue(r, r.entries[1:])
	default:
		step := r.entries[0].step
		p.requeue(r, r.entries)
		p.markPartial(step)
		p.queue = slices.DeleteFunc(p.queue, func(e entry) bool { return e.step == step && e.boundary == nil })
		p.measure()
	}
}

// handleRefusal handles a request that the log will never accept unchanged. A large request is sent in smaller ones. A
// chunk that cannot be made smaller is left out: readers receive it with the committed step.
func (p *Publisher) handleRefusal(r *request, err error) {
	unit := r.entries[:min(len(r.entries), unitLength(r.entries))]
	switch {
	case r.check():
		p.log.Error("the log refuses a check", "error", err)
	case r.trimmed:
		p.requeue(r, r.entries)
	case len(r.entries) > len(unit):
		p.appendLimit = sizeOf(r.entries) / 2
		p.requeue(r, r.entries)
	default:
		tooLarge := fault.KindOf(err) == fault.TooLarge || strings.HasSuffix(fault.ReasonOf(err), "_TOO_LARGE")
		p.requeue(r, p.shrink(unit, tooLarge, err))
	}
}

// shrink makes refused entries smaller or drops them, and returns the entries to send.
func (p *Publisher) shrink(unit []entry, tooLarge bool, err error) []entry {
	last := len(unit) - 1
	e := &unit[last]
	switch {
	case tooLarge && e.boundary != nil && shrinkBoundary(e.boundary.GetBoundary()):
		e.partial = true
		return unit
	case tooLarge && e.chunk != nil && isHalvable(e.chunk):
		p.deltaLimit = len(*delta(e.chunk))/2 + utf8.UTFMax - 1 // the cut falls between two runes
		return unit
	}
	p.log.Error("the log refuses a record, which is not shown", "error", err)
	p.markPartial(e.step)
	return unit[:last]
}
