package group

import (
	"context"
	"runtime"
	"time"
)

// lane is room for one batch in flight, with a goroutine while it has one.
type lane[C any] struct {
	c        *Committer[C]
	run      func() // work, as a value that is made once
	batch    []*entry[C]
	commands []C // of the batch
	errs     []error
	pending  []int // commands that are written alone and have no outcome yet
	taken    time.Time
}

func newLane[C any](c *Committer[C]) *lane[C] {
	l := &lane[C]{c: c}
	l.run = l.work
	return l
}

// lead takes a batch and writes it on the goroutine of a caller, whose command is
// in it or in flight already. Further batches get a goroutine. Callers that arrive together
// share the batch, since lead lets them arrive first.
func (l *lane[C]) lead() {
	defer l.c.lanes.Done()
	runtime.Gosched()
	if l.begin() && l.writeBatch() {
		l.c.lanes.Go(l.run)
	}
}

// begin takes the first batch, or gives the lane back where another one has taken it.
func (l *lane[C]) begin() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.taking = false
	return l.takeNext()
}

// work writes the batch that the lane has, and further ones until nothing is
// ready.
func (l *lane[C]) work() {
	for more := true; more; {
		more = l.writeBatch()
	}
}

// writeBatch writes the batch that the lane has, and reports whether it has another one.
func (l *lane[C]) writeBatch() (more bool) {
	l.measure()
	l.commit()
	l.release()
	l.answer()
	// Callers who have their answer and ask again belong into the next
	// batch, not into the one after it.
	runtime.Gosched()
	return l.next()
}

// take fills the lane with what is ready. The caller holds the committer's mu.
func (l *lane[C]) take() {
	l.batch = l.c.queue.take(l.batch, l.c.config.Batch, l.c.config.BatchBytes)
	l.taken = time.Now()
}

// next takes another batch, or gives the lane back.
func (l *lane[C]) next() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.takeNext()
}

// takeNext is next for a caller that holds the committer's mu.
func (l *lane[C]) takeNext() bool {
	c := l.c
	if c.queue.first == nil {
		c.free = append(c.free, l)
		return false
	}
	l.take()
	c.start() // what one batch cannot hold
	return true
}

func (l *lane[C]) measure() {
	ctx := context.Background()
	l.c.meters.batch.Record(ctx, int64(len(l.batch)))
	for _, e := range l.batch {
		l.c.meters.waited.Record(ctx, l.taken.Sub(e.arrived).Seconds())
	}
}

// release gives the keys of the batch to those that wait for them.
func (l *lane[C]) release() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, e := range l.batch {
		l.c.queue.release(e)
	}
}

// answer tells the callers, and empties the lane. An entry belongs to its
// caller again as soon as it has its answer.
func (l *lane[C]) answer() {
	for i, e := range l.batch {
		e.done <- l.errs[i]
	}
	clear(l.batch)
	clear(l.commands)
	clear(l.errs)
	l.batch, l.commands, l.errs = l.batch[:0], l.commands[:0], l.errs[:0]
}
