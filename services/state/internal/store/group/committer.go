package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Write writes the commands of a batch in one transaction. No two of them lock
// the same key, nor do any of another call that runs at the same time.
//
// each has one place per command: nil for a command that was written, and for
// one that its own rules refuse the error that its caller gets; nothing of that
// one was written, and its neighbours were. A nil each says that all were
// written. err says that nothing of the batch was written, or that nobody knows
// whether it was; package group says what follows from it.
//
// Write ends soon after ctx, keeps neither slice, and is called by several
// goroutines at once. A command may be given to it more than once.
type Write[C any] func(ctx context.Context, batch []C) (each []error, err error)

// Committer writes commands in groups. Its methods may be called by many
// goroutines at once.
type Committer[C any] struct {
	config  Config
	write   Write[C]
	meters  meters
	entries sync.Pool // of *entry[C], blank
	lanes   sync.WaitGroup
	full    error // made once: who refuses has no time

	mu     sync.Mutex // guards what follows
	queue  queue[C]
	free   []*lane[C] // that have no goroutine
	taking bool       // a caller is about to take a batch
	closed bool
}

// New returns a committer that writes by write. It starts nothing. A nil meter
// measures nothing. Invalid (CONFIG_INVALID).
func New[C any](config Config, write Write[C], meter metric.Meter) (*Committer[C], error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	c := &Committer[C]{config: config, write: write, full: full(config), queue: queue[C]{last: map[session.Key]*place[C]{}}}
	c.entries.New = func() any { return &entry[C]{done: make(chan error, 1)} }
	for range config.Lanes {
		c.free = append(c.free, newLane(c))
	}
	if err := c.meters.open(meter, c.waiting); err != nil {
		return nil, err
	}
	return c, nil
}

// Do waits until the command is written, alone or with others, and returns its
// error. keys are the sessions that it locks: commands that share one are
// written one after the other in the order of their Do. A key may be named
// twice; a command without keys waits for no other. bytes is its weight.
//
// A command that would make the queue too long is refused at once with
// Exhausted (QUEUE_FULL), and after Close with Unavailable (STORE_CLOSING).
//
// When ctx ends while the command waits in the queue, Do returns ctx.Err() and
// the command is never written. A command that is in flight already is waited
// for, at most Config.Within: its outcome is about to be known, and the
// transaction is using it.
func (c *Committer[C]) Do(ctx context.Context, keys []session.Key, bytes int, command C) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := c.entries.Get().(*entry[C])
	defer c.reuse(e)
	e.command, e.bytes, e.arrived = command, bytes, time.Now()
	l, err := c.enter(e, keys)
	if errors.Is(err, fault.Exhausted) {
		c.meters.refused.Add(ctx, 1) // not under mu, which a collection asks for
	}
	if err != nil {
		return err
	}
	if l != nil {
		l.lead()
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	}
	if c.leave(e) {
		return ctx.Err()
	}
	return <-e.done
}

// reuse blanks an entry that neither the queue nor a lane knows any more.
func (c *Committer[C]) reuse(e *entry[C]) {
	var none C
	e.command = none
	c.entries.Put(e)
}

// enter puts the entry into the queue, or says why not. It returns the lane that the caller is
// to lead; nil where others will write the entry.
func (c *Committer[C]) enter(e *entry[C], keys []session.Key) (*lane[C], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, closing()
	}
	if q := &c.queue; q.length >= c.config.Queue || (q.length > 0 && q.bytes+e.bytes > c.config.QueueBytes) {
		return nil, c.full
	}
	c.queue.add(e, keys)
	if !c.startable() {
		return nil, nil
	}
	c.taking = true
	c.lanes.Add(1) // lead ends it
	return c.reserve(), nil
}

// startable reports whether a command is ready and a lane is free for it. The caller holds mu.
func (c *Committer[C]) startable() bool {
	return !c.taking && c.queue.first != nil && len(c.free) > 0
}

// reserve returns a lane that was free. The caller holds mu.
func (c *Committer[C]) reserve() *lane[C] {
	l := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	return l
}

func full(c Config) error {
	return fault.New(fault.Exhausted, "QUEUE_FULL",
		"as much waits for the database as may (%d commands, %d bytes); send the same request again after a pause; when this lasts, "+
			"give the database more, or raise HOLDFAST_STATE_QUEUE and HOLDFAST_STATE_QUEUE_BYTES", c.Queue, c.QueueBytes)
}

func closing() error {
	return fault.New(fault.Unavailable, "STORE_CLOSING", "the state service is stopping; send the same request again in a moment")
}

// leave takes the entry out of the queue, and reports false when it is in
// flight or done.
func (c *Committer[C]) leave(e *entry[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.queue.drop(e)
	c.start() // those behind it may be ready
	return left
}

// start gives what is ready to the lanes that are free. The caller holds mu.
func (c *Committer[C]) start() {
	for c.startable() {
		l := c.reserve()
		l.take()
		c.lanes.Go(l.run)
	}
}

func (c *Committer[C]) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.length
}

// Close refuses new commands with Unavailable (STORE_CLOSING), and waits until
// those that are in the queue and in flight are done. It may be called again.
func (c *Committer[C]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.lanes.Wait() // while a command waits, a lane runs
	c.meters.close()
}
