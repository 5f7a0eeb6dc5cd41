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

// Write writes the commands of a batch in one transaction. No two commands in running
// calls lock the same key.
//
// each has one element per command: nil for a written command, and the error for its
// caller for a command refused by its own rules, of which nothing was written. A nil
// each: all commands were written. err: no command was written, or the outcome is
// unknown.
//
// Write returns soon after ctx ends, retains neither slice, and is called concurrently.
// It may get a command more than once.
type Write[C any] func(ctx context.Context, batch []C) (each []error, err error)

// Committer writes commands in groups. Its methods may be called concurrently.
type Committer[C any] struct {
	config       Config
	write        Write[C]
	meters       meters
	entries      sync.Pool // of blank *entry[C]
	running      sync.WaitGroup
	errQueueFull error // made once: refusals are cheap

	mu     sync.Mutex // guards the fields below
	queue  queue[C]
	idle   []*lane[C] // lanes without a batch
	taking bool       // a caller has reserved a lane and has not taken its batch
	closed bool
}

// New returns a committer. It starts no goroutine. A nil meter measures nothing.
// Invalid (CONFIG_INVALID).
func New[C any](config Config, write Write[C], meter metric.Meter) (*Committer[C], error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	c := &Committer[C]{
		config:       config,
		write:        write,
		errQueueFull: queueFullError(config),
		queue:        queue[C]{lastOfKey: map[session.Key]*keyEntry[C]{}},
	}
	c.entries.New = func() any { return &entry[C]{done: make(chan error, 1)} }
	for range config.Lanes {
		c.idle = append(c.idle, newLane(c))
	}
	if err := c.meters.register(meter, c.queueLength); err != nil {
		return nil, err
	}
	return c, nil
}

// Do writes the command, alone or with others, and returns its error. keys are the
// sessions that it locks: commands with a common key are written in the order of their
// Do. Duplicate keys count once, and a command without keys waits for no other. bytes
// is its size in memory.
//
// Exhausted (QUEUE_FULL): the queue is full. Unavailable (STORE_CLOSING): Close was
// called. Neither has written anything.
//
// When ctx ends while the command waits in the queue, Do returns ctx.Err() and the
// command is never written. Once the command is in flight, Do waits for its outcome,
// for at most Config.BatchTimeout.
func (c *Committer[C]) Do(ctx context.Context, keys []session.Key, bytes int, command C) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e := c.entries.Get().(*entry[C])
	defer c.reuse(e)
	e.command, e.bytes, e.enqueuedAt = command, bytes, time.Now()
	l, err := c.enqueue(e, keys)
	if errors.Is(err, fault.Exhausted) {
		c.meters.refused.Add(ctx, 1) // without mu, which a collection of metrics needs
	}
	if err != nil {
		return err
	}
	if l != nil {
		l.runFirst()
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	}
	if c.withdraw(e) {
		return ctx.Err()
	}
	return <-e.done
}

// reuse clears an entry and returns it to the pool.
func (c *Committer[C]) reuse(e *entry[C]) {
	var none C
	e.command = none
	c.entries.Put(e)
}

// enqueue adds the entry to the queue. It returns a lane that the caller has to run; nil
// when another goroutine will write the entry.
func (c *Committer[C]) enqueue(e *entry[C], keys []session.Key) (*lane[C], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, closingError()
	}
	if q := &c.queue; q.length >= c.config.Queue || (q.length > 0 && q.bytes+e.bytes > c.config.QueueBytes) {
		return nil, c.errQueueFull
	}
	c.queue.add(e, keys)
	if !c.canStart() {
		return nil, nil
	}
	c.taking = true
	c.running.Add(1) // runFirst calls Done
	return c.reserve(), nil
}

// canStart reports whether a command is ready and a lane is idle. The caller holds mu.
func (c *Committer[C]) canStart() bool {
	return !c.taking && c.queue.firstReady != nil && len(c.idle) > 0
}

// reserve takes an idle lane. The caller holds mu.
func (c *Committer[C]) reserve() *lane[C] {
	l := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	return l
}

func queueFullError(c Config) error {
	return fault.New(fault.Exhausted, "QUEUE_FULL",
		"the queue of the database is full (at most %d commands and %d bytes); retry the same request later; if this persists, "+
			"scale the database, or raise HOLDFAST_STATE_QUEUE and HOLDFAST_STATE_QUEUE_BYTES", c.Queue, c.QueueBytes)
}

func closingError() error {
	return fault.New(fault.Unavailable, "STORE_CLOSING", "the state service is stopping; retry the same request in a moment")
}

// withdraw removes the entry from the queue. It reports false when the entry is in
// flight or done.
func (c *Committer[C]) withdraw(e *entry[C]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := c.queue.remove(e)
	c.start() // the commands behind it may be ready
	return removed
}

// start runs ready commands on idle lanes. The caller holds mu.
func (c *Committer[C]) start() {
	for c.canStart() {
		l := c.reserve()
		l.fill()
		c.running.Go(l.run)
	}
}

func (c *Committer[C]) queueLength() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.length
}

// Close refuses new commands with Unavailable (STORE_CLOSING), and waits for the
// commands in the queue and in flight. It may be called more than once.
func (c *Committer[C]) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait() // a lane runs as long as a command waits
	c.meters.close()
}
