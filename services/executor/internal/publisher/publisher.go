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
	"github.com/holdfast-run/holdfast/pkg/step"
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

// fenced returns the error of a publisher whose append was refused for good: a FencedError if the refusal names the end of
// the log.
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
	unreachable bool          // the log is unreachable

	// The step in flight.
	step    int32
	stands  int64 // the session's position
	claims  int32
	attempt int32
	first   int32 // the range of usable attempts
	last    int32
	reason  string
	marked  bool // the start record of the attempt is queued or was sent
	silent  bool // no attempt remains: nothing is streamed until the commit
	partial bool // the live log lacks a part of the step
	kept    []*eventv1.Chunk
	record  step.Recorder

	// The queue to the log.
	queue    []entry
	queued   int // bytes in queue
	inflight *request
	// Limits of a delta and of an append with several entries, in bytes. They fall when the log refuses one.
	deltaLimit, appendLimit int

	at       position.Position // of the last sent frame
	after    int64             // sequence of the last acknowledged frame
	answered bool              // the log has answered an append, or could not
	interval time.Duration     // until the next check
	checkAt  time.Time
}

// New returns a publisher. It appends nothing before Run.
func New(client streamv2.StreamServiceClient, claim Claim, c Config, log *slog.Logger) *Publisher {
	p := &Publisher{
		config: c, client: client, claim: claim, log: log, wake: make(chan struct{}, 1),
		deltaLimit: min(c.MaxDeltaBytes, maxAppendBytes), appendLimit: maxAppendBytes, interval: firstCheckInterval,
	}
	p.begin(claim.Step, claim.Position, claim.Claims)
	if claim.TakenOver {
		p.reason = ReasonExecutorLost
	}
	return p
}

// begin makes the step the one in flight.
func (p *Publisher) begin(number int32, stands int64, claims int32) {
	p.step, p.stands, p.claims = number, stands, claims
	p.first, p.last = position.Attempts(claims)
	p.attempt = p.first
	p.silent = p.attempt == 0
	p.reason, p.marked, p.partial, p.kept, p.record = "", false, false, nil, step.Recorder{Step: p.step}
}

// Show streams chunks of the step in flight and takes ownership of them. Chunks of one call stay together. Show
// waits while the queue is full, until ctx ends or the log counts as unreachable; the chunks are queued in any
// case. The error is ErrFenced.
func (p *Publisher) Show(ctx context.Context, chunks ...*eventv1.Chunk) error {
	p.mu.Lock()
	for _, chunk := range chunks {
		p.record.Add(chunk)
		if p.silent {
			p.partial = true
			continue
		}
		p.queueStart()
		p.push(chunk)
	}
	p.wakeRun()
	p.mu.Unlock()
	return p.wait(ctx, func() bool { return p.unreachable || p.queued <= p.config.MaxQueuedBytes })
}

// Retry voids the streamed chunks of the step in flight at once, and begins a new attempt if a reader may have
// seen some of them. Chunks from before the step remain valid.
func (p *Publisher) Retry(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeBack(reason)
	p.wakeRun()
}

func (p *Publisher) takeBack(reason string) {
	p.record.Retry()
	ofStep := func(chunk *eventv1.Chunk) bool { return chunk.GetStep() >= p.step }
	if slices.ContainsFunc(p.kept, ofStep) || slices.ContainsFunc(p.inflightChunks(), ofStep) {
		p.restart(reason, func(chunk *eventv1.Chunk) bool { return !ofStep(chunk) })
		return
	}
	p.queue = slices.DeleteFunc(p.queue, func(e entry) bool { return e.chunk != nil && e.step == p.step && ofStep(e.chunk) })
	if n := len(p.queue); n > 0 && p.attempt == p.first && p.queue[n-1].mark != nil && p.queue[n-1].step == p.step {
		p.queue, p.marked = p.queue[:n-1], false // nothing follows it yet
	}
	p.measure()
}

// MarkDifferent announces that the step in flight will be committed with another content than streamed. Its boundary
// sends readers to the state service.
func (p *Publisher) MarkDifferent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partial = true
}

// Commit announces that the step in flight is durable. committed is its chunk step_committed. If e is set, the
// run has ended with it. The next step is then in flight.
func (p *Publisher) Commit(committed *eventv1.Chunk, e *Ended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sequence := position.Committed(p.step)
	boundary := &streamv2.Boundary{StepCommitted: committed}
	if e != nil {
		sequence = position.Ended(p.step)
		boundary.RunEnded, boundary.End = e.Chunk, e.Terminal
	}
	p.queueBoundary(sequence, boundary)
	p.begin(p.step+1, sequence, 0)
	p.dropBacklog()
}

// End announces that the run has ended outside of a step. It voids the streamed chunks of the step in flight.
func (p *Publisher) End(e Ended) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeBack(ReasonStepRetried)
	sequence := position.OutsideStep(p.step, p.claims)
	p.queueBoundary(sequence, &streamv2.Boundary{RunEnded: e.Chunk, End: e.Terminal})
	p.begin(p.step+1, sequence, 0)
	p.silent = true // the run has ended
	p.dropBacklog()
}

// queueBoundary queues the boundary of the step in flight.
func (p *Publisher) queueBoundary(sequence int64, boundary *streamv2.Boundary) {
	p.queue = append(p.queue, entry{
		step: p.step, attempt: p.attempt, partial: p.partial || p.silent || !p.marked,
		boundary: &streamv2.Record{Sequence: sequence, Boundary: boundary},
	})
	p.wakeRun()
}

// Record returns what the step in flight has streamed beside its messages.
func (p *Publisher) Record() *eventv1.StepRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record.Record()
}

// Flush waits until the log has all streamed chunks, counts as unreachable, or ctx ends. The error is ErrFenced.
func (p *Publisher) Flush(ctx context.Context) error {
	return p.wait(ctx, func() bool { return p.unreachable || p.isFlushed() })
}

// confirmWait is how long a write to the state service waits for the first answer of the log. Usually the answer comes
// while the model is called.
const confirmWait = time.Second

// Confirm waits until the log has answered the claim's first append, up to confirmWait. The error is ErrFenced: the log may
// be ahead of the database, and a step that was committed now would have the number of a lost one.
func (p *Publisher) Confirm(ctx context.Context) error {
	p.mu.Lock()
	idle := p.err == nil && (p.answered || p.isFlushed())
	p.mu.Unlock()
	if idle {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWait)
	defer cancel()
	return p.wait(ctx, func() bool { return p.answered || p.isFlushed() })
}

// isFlushed reports whether the log has all streamed chunks. The caller holds mu.
func (p *Publisher) isFlushed() bool {
	return len(p.queue) == 0 && (p.inflight == nil || p.inflight.check())
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

// wakeRun wakes Run and all waiters. The caller holds mu.
func (p *Publisher) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default: // a token is already there
	}
	p.wakeWaiters()
}

// wakeWaiters wakes all waiters. The caller holds mu.
func (p *Publisher) wakeWaiters() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// end makes every later call fail.
func (p *Publisher) end(err error) {
	p.err, p.queue, p.kept = err, nil, nil
	p.measure()
	p.wakeRun()
}

// queueStart queues the start record of the attempt, once.
func (p *Publisher) queueStart() {
	if p.marked {
		return
	}
	p.marked = true
	p.queue = append(p.queue, entry{
		step: p.step, attempt: p.attempt,
		mark: &streamv2.Attempt{Stands: p.stands, RunId: p.claim.RunID, Reason: p.reason},
	})
}

// restart begins a new attempt at the step in flight with the valid chunks so far. It reuses an unsent attempt.
func (p *Publisher) restart(reason string, stands func(*eventv1.Chunk) bool) {
	chunks := p.kept
	for _, chunk := range p.inflightChunks() { // they may be in flight
		chunks = append(chunks, proto.CloneOf(chunk))
	}
	p.trim()
	begun := p.marked
	p.queue = slices.DeleteFunc(p.queue, func(e entry) bool {
		if e.step != p.step {
			return false
		}
		if e.chunk != nil {
			chunks = append(chunks, e.chunk)
		}
		begun = begun && e.mark == nil
		return true
	})
	p.kept, p.marked = nil, false
	p.measure()
	if begun && p.attempt >= p.last {
		p.log.Warn("the rest of the step is not shown live: its attempts are used up", "step", p.step, "attempts", p.last)
		p.silent, p.partial = true, true
		return
	}
	if begun {
		p.attempt, p.reason = p.attempt+1, reason
	}
	if p.attempt > p.first { // it voids the previous attempt's chunks
		p.queueStart()
	}
	for _, chunk := range chunks {
		if stands(chunk) {
			p.queueStart()
			p.push(chunk)
		}
	}
}

// trim removes the step in flight from the request in flight. The request's entries of earlier steps remain to
// be shown. Its place in the log is below a new attempt's.
func (p *Publisher) trim() {
	r := p.inflight
	if r == nil {
		return
	}
	before := len(r.entries)
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.step == p.step })
	r.trimmed = r.trimmed || len(r.entries) < before
	if len(r.entries) == 0 {
		r.stopRepeating()
	}
}
