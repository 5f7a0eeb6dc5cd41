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

// The wait between two tries doubles from the first to the last.
const (
	firstWait = 25 * time.Millisecond
	lastWait  = time.Second
)

// The time between two checks of a silent publisher doubles from the first to the last
// while nothing changes.
const (
	firstCheckInterval = 5 * time.Second
	maxCheckInterval   = 30 * time.Second
)

const reasonRecordsLost = "RECORDS_LOST"

// Run appends what is shown until ctx ends or the publisher is fenced.
func (p *Publisher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r := p.next(ctx)
		if r == nil {
			return
		}
		p.append(ctx, r)
	}
}

// next waits for something to send: what was shown, or a check of a log that has been
// silent. It gives nil when there is nothing to send any more.
func (p *Publisher) next(ctx context.Context) *request {
	for {
		p.mu.Lock()
		if p.err != nil {
			p.mu.Unlock()
			return nil
		}
		for len(p.queue) > 0 {
			if p.inflight = p.take(); p.inflight != nil {
				defer p.mu.Unlock()
				return p.inflight
			}
		}
		p.notify() // take may have dropped what is not shown any more
		check := p.check()
		if check != nil && !time.Now().Before(p.checkAt) {
			p.inflight = check
			defer p.mu.Unlock()
			return check
		}
		checkAt := p.checkAt
		p.mu.Unlock()
		var due <-chan time.Time
		if check != nil {
			due = time.After(time.Until(checkAt))
		}
		select {
		case <-p.wake:
		case <-due:
		case <-ctx.Done():
			return nil
		}
	}
}

// check asks whether the log still has what was shown of the step in flight; nil where
// nothing was.
func (p *Publisher) check() *request {
	if !p.marked || len(p.queue) > 0 || len(p.kept) == 0 {
		return nil
	}
	return &request{step: p.step, attempt: p.attempt, after: p.after, last: p.after, before: p.at, voided: make(chan struct{})}
}

// append sends the request until its fate is known or does not matter any more.
func (p *Publisher) append(ctx context.Context, r *request) {
	patience := time.AfterFunc(p.config.Patience, func() { p.loseContact(r) })
	defer patience.Stop()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := p.send(ctx, r)
		if p.settle(r, err) {
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
	_, err := p.client.Append(ctx, &streamv2.AppendRequest{Stream: p.claim.Stream, Epoch: p.claim.Epoch, After: r.after, Record: r.record})
	return err
}

// loseContact has nobody wait for the log until it answers.
func (p *Publisher) loseContact(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inflight != r || p.away {
		return
	}
	p.log.Warn("the log does not answer; the run goes on without", "patience", p.config.Patience)
	p.away = true
	p.giveUpBacklog()
	p.announce()
}

// abandon ends a request whose fate does not matter any more.
func (p *Publisher) abandon(r *request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.giveUp()
	p.inflight = nil
	p.announce()
}

// settle takes what has become of the request, and reports whether that is known.
func (p *Publisher) settle(r *request, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	kind, reason := fault.KindOf(err), fault.ReasonOf(err)
	switch {
	case err != nil && kind == fault.Stale && reason != reasonRecordsLost:
		p.end(ErrFenced)
	case err == nil:
		p.acknowledge(r)
	case r.void:
	case reason == reasonRecordsLost:
		p.repeat(r)
	case kind == fault.Invalid, kind == fault.TooLarge:
		p.refused(r, err)
	case r.record == nil: // the next check asks again
		p.inflight = nil
		p.checkAt = time.Now().Add(p.interval)
		return true
	default:
		return false
	}
	if p.away {
		p.log.Info("the log answers again")
		p.away = false
	}
	p.inflight = nil
	p.checkAt = time.Now().Add(p.interval)
	p.announce()
	return true
}

func (p *Publisher) acknowledge(r *request) {
	if r.record == nil {
		p.interval = min(2*p.interval, maxCheckInterval)
		return
	}
	p.after, p.interval = r.last, firstCheckInterval
	if p.ofThisAttempt(r) {
		p.keep(r.chunks)
	}
}

// repeat shows again what the log has lost. Of a committed step nothing is repeated.
func (p *Publisher) repeat(r *request) {
	switch {
	case p.ofThisAttempt(r):
		p.log.Warn("the log has lost records; the step in flight is shown again", "step", p.step)
		p.restart(reasonLogLost, func(*eventv1.Chunk) bool { return true })
	case r.record.GetBoundary() == nil:
		p.spoil(r.step)
		p.queue = slices.DeleteFunc(p.queue, func(e entry) bool { return e.step == r.step && e.boundary == nil })
		p.measure()
	}
}

// refused goes on behind a record that the log will never take as it is. What is too large
// goes in smaller records. A chunk that cannot be made smaller is left out: readers get it with
// the committed step.
func (p *Publisher) refused(r *request, err error) {
	boundary := r.record.GetBoundary()
	tooLarge := fault.KindOf(err) == fault.TooLarge || strings.HasSuffix(fault.ReasonOf(err), "_TOO_LARGE")
	switch {
	case r.record == nil, boundary != nil && !(tooLarge && shrinkBoundary(boundary)):
		p.log.Error("the log refuses a record", "error", err)
	case boundary != nil:
		p.at = r.before
		p.queue = slices.Insert(p.queue, 0, entry{step: r.step, attempt: r.attempt, boundary: r.record, partial: true})
	case len(r.chunks) > 1:
		p.limit = sizeOf(r.chunks) / 2
		p.putBack(r, r.chunks)
	case tooLarge && len(r.chunks) == 1 && halvable(r.chunks[0]):
		p.limit = len(*delta(r.chunks[0]))/2 + utf8.UTFMax - 1 // the cut lies between two runes
		p.putBack(r, r.chunks)
	default:
		p.log.Error("a chunk is not shown: the log refuses it", "error", err)
		p.spoil(r.step)
		if len(r.chunks) > 0 {
			p.putBack(r, nil)
		}
	}
}
