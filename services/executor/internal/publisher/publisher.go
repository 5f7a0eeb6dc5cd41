package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// ErrFenced means that the session's log has records of a later claim: this publisher shows nothing more. See FencedError.
var ErrFenced = errors.New("the stream belongs to a newer epoch")

// FencedError is ErrFenced with the end of the log. Another executor owns the run, or the claim is in force and the state
// service has lost commits that the log has seen. Only the state service knows.
type FencedError struct {
	Epoch int64 // of the last record
	Step  int32
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%v: epoch %d at step %d", ErrFenced, e.Epoch, e.Step)
}

// Unwrap returns ErrFenced.
func (e *FencedError) Unwrap() error { return ErrFenced }

// fenced returns the error of a publisher whose append the log has refused for good: a FencedError if the refusal names
// the end of the log.
func fenced(refusal error) error {
	f, _ := fault.From(refusal)
	epoch, err := strconv.ParseInt(f.Meta["lastEpoch"], 10, 64)
	step, err2 := strconv.ParseInt(f.Meta["lastStep"], 10, 32)
	if err != nil || err2 != nil {
		return ErrFenced
	}
	return &FencedError{Epoch: epoch, Step: int32(step)}
}

// Reasons of an attempt.
const (
	ReasonExecutorLost = "executor_lost"
	ReasonStepRetried  = "step_retried"
	reasonLogLost      = "log_lost"
)

// Config limits a publisher.
type Config struct {
	MaxDeltaBytes  int           // larger deltas are split
	MaxQueuedBytes int           // Show waits while more than this is queued
	Patience       time.Duration // how long the log may fail before callers stop waiting for it
	CallTimeout    time.Duration // of one append
}

// Claim holds the needed fields of the run's claim.
type Claim struct {
	Stream *streamv2.StreamRef
	Epoch  int64
	Grant  []byte // signed by the state service
	RunID  string
	// Step is the step in flight.
	Step int32
	// Position and Claims are the session's fields in the claim.
	Position int64
	Claims   int32
	// TakenOver means that another owner may have shown a part of the step.
	TakenOver bool
}

// Ended is the end of a run.
type Ended struct {
	Chunk    *eventv1.Chunk
	Terminal *streamv2.Terminal
}

// Publisher streams the step in flight of one run. It is safe for concurrent use; Run is called once.
type Publisher struct {
	config Config
	client streamv2.StreamServiceClient
	claim  Claim
	log    *slog.Logger
	wake   chan struct{} // holds one token when Run has work
	// patience runs while an append is in flight. Run owns it.
	patience *time.Timer

	mu          sync.Mutex
	changed     chan struct{} // closed and reset at every change; nil without a waiter
	err         error         // why the publisher ended
	answered    bool          // the log has answered an append, or could not
	unreachable bool          // the log has not answered for Config.Patience

	attempt attempt // of the step in flight
	queue   queue
	limits  limits
	checks  checks
}

// New returns a publisher. It appends nothing before Run.
func New(client streamv2.StreamServiceClient, claim Claim, c Config, log *slog.Logger) *Publisher {
	p := &Publisher{
		config: c, client: client, claim: claim, log: log, wake: make(chan struct{}, 1),
		attempt: newAttempt(claim.Step, claim.Position, claim.Claims), checks: checks{interval: firstCheckInterval},
		limits: limits{delta: min(c.MaxDeltaBytes, maxAppendBytes), append: maxAppendBytes},
	}
	if claim.TakenOver {
		p.attempt.reason = ReasonExecutorLost
	}
	return p
}

// Show streams chunks of the step in flight and takes ownership of them. Chunks of one call stay together. Show
// waits while the queue is full, until ctx ends or the log counts as unreachable; the chunks are queued in any
// case. The error is ErrFenced.
func (p *Publisher) Show(ctx context.Context, chunks ...*eventv1.Chunk) error {
	p.mu.Lock()
	for _, chunk := range chunks {
		p.attempt.record.Add(chunk)
		p.push(chunk)
	}
	p.wakeRun()
	p.mu.Unlock()
	return p.wait(ctx, func() bool { return p.unreachable || p.queue.bytes <= p.config.MaxQueuedBytes })
}

// Retry voids the streamed chunks of the step in flight at once, and begins a new attempt if a reader may have
// seen some of them. Chunks from before the step remain valid.
func (p *Publisher) Retry(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.voidStep(reason)
	p.wakeRun()
}

// MarkDifferent announces that the step in flight will be committed with another content than streamed. Its boundary
// sends readers to the state service.
func (p *Publisher) MarkDifferent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempt.partial = true
}

// Commit announces that the step in flight is durable. committed is its chunk step_committed. If e is set, the
// run has ended with it. The next step is then in flight.
func (p *Publisher) Commit(committed *eventv1.Chunk, e *Ended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sequence := position.Committed(p.attempt.step)
	boundary := &streamv2.Boundary{StepCommitted: committed}
	if e != nil {
		sequence = position.Ended(p.attempt.step)
		boundary.RunEnded, boundary.End = e.Chunk, e.Terminal
	}
	p.endStep(sequence, boundary)
}

// End announces that the run has ended outside of a step. It voids the streamed chunks of the step in flight.
func (p *Publisher) End(e Ended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.voidStep(ReasonStepRetried)
	p.endStep(position.OutsideStep(p.attempt.step, p.attempt.claims), &streamv2.Boundary{RunEnded: e.Chunk, End: e.Terminal})
	p.attempt.exhausted = true // the run has ended
}

// endStep queues the boundary of the step in flight. The next step is then in flight, and everything behind the boundary
// is void.
func (p *Publisher) endStep(sequence int64, boundary *streamv2.Boundary) {
	p.queue.entries = append(p.queue.entries, p.attempt.boundary(sequence, boundary))
	p.attempt = newAttempt(p.attempt.step+1, sequence, 0)
	if p.unreachable {
		p.queue.dropBacklog(p.attempt.step)
	}
	p.wakeRun()
}

// Record returns what the step in flight has streamed beside its messages.
func (p *Publisher) Record() *eventv1.StepRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempt.record.Record()
}

// Flush waits until the log has all streamed chunks, counts as unreachable, or ctx ends. The error is ErrFenced.
func (p *Publisher) Flush(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.unreachable || p.queue.isFlushed() })
}

// confirmWait is how long a write to the state service waits for the first answer of the log. Usually the answer comes
// while the model is called.
const confirmWait = time.Second

// Confirm waits until the log has answered the claim's first append, up to confirmWait. The error is ErrFenced: the log may
// be ahead of the database, and a step that was committed now would have the number of a lost one.
func (p *Publisher) Confirm(ctx context.Context) error {
	p.mu.Lock()
	confirmed := p.err == nil && (p.answered || p.queue.isFlushed())
	p.mu.Unlock()
	if confirmed { // usually, and then without a timer
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	return p.wait(ctx, func() bool { return p.answered || p.queue.isFlushed() })
}

// Err returns ErrFenced after another executor took the run, otherwise nil.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// wait waits until done reports true, ctx ends, or the publisher has ended. It calls done under mu.
func (p *Publisher) wait(ctx context.Context, done func() bool) error {
	for {
		p.mu.Lock()
		if p.err != nil || done() {
			defer p.mu.Unlock()
			return p.err
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return p.Err()
		}
	}
}

// The caller of the following methods holds mu.

// wakeRun wakes Run and all waiters.
func (p *Publisher) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default: // a token is already there
	}
	p.wakeWaiters()
}

func (p *Publisher) wakeWaiters() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// push queues a chunk of the step in flight, after the start of its attempt.
func (p *Publisher) push(chunk *eventv1.Chunk) {
	if p.attempt.exhausted {
		p.attempt.partial = true
		return
	}
	p.begin()
	p.queue.push(&p.attempt, chunk, p.limits)
}

// begin queues the start of the attempt, once.
func (p *Publisher) begin() {
	if !p.attempt.begun {
		p.attempt.begun = true
		p.queue.entries = append(p.queue.entries, p.attempt.start(p.claim.RunID))
	}
}

// voidStep voids the chunks of the step itself. Unless the log may have some of them, the attempt continues.
func (p *Publisher) voidStep(reason string) {
	a, q := &p.attempt, &p.queue
	a.record.Retry()
	ofStep := func(chunk *eventv1.Chunk) bool { return chunk.GetStep() >= a.step }
	if slices.ContainsFunc(a.sent, ofStep) || slices.ContainsFunc(q.sending(a.step), ofStep) {
		p.restart(reason, func(chunk *eventv1.Chunk) bool { return !ofStep(chunk) })
		return
	}
	q.remove(func(e entry) bool { return e.chunk != nil && e.step == a.step && ofStep(e.chunk) })
	if n := len(q.entries); n > 0 && a.number == a.first && q.entries[n-1].start != nil && q.entries[n-1].step == a.step {
		q.entries = q.entries[:n-1] // nothing follows it yet
		a.begun = false
	}
}

// restart begins a new attempt at the step in flight with the valid chunks so far. It reuses an unsent attempt.
func (p *Publisher) restart(reason string, valid func(*eventv1.Chunk) bool) {
	a, q := &p.attempt, &p.queue
	chunks := a.sent
	for _, chunk := range q.sending(a.step) { // a retry of the request may still send them
		chunks = append(chunks, proto.CloneOf(chunk))
	}
	q.trimRequest(a.step)
	begun := a.begun
	q.remove(func(e entry) bool {
		if e.step != a.step {
			return false
		}
		if e.chunk != nil {
			chunks = append(chunks, e.chunk)
		}
		begun = begun && e.start == nil
		return true
	})
	a.sent, a.begun = nil, false
	if begun && a.number >= a.last {
		p.log.Warn("the rest of the step is not shown live: its attempts are used up", "step", a.step, "attempts", a.last)
		a.exhausted, a.partial = true, true
		return
	}
	if begun {
		a.number++
		a.reason = reason
	}
	if a.number > a.first { // it voids the previous attempt's chunks
		p.begin()
	}
	for _, chunk := range chunks {
		if valid(chunk) {
			p.push(chunk)
		}
	}
}

// markPartial records that the live log lacks a part of the step.
func (p *Publisher) markPartial(step int32) {
	if step == p.attempt.step {
		p.attempt.partial = true
	}
	p.queue.markPartial(step)
}
