package group

import (
	"context"
	"runtime"
	"time"
)

// lane runs one batch at a time. It has a goroutine while it has a batch.
type lane[C any] struct {
	c        *Committer[C]
	run      func() // runAll, as a value that is made once
	batch    []*entry[C]
	commands []C // of the batch
	errs     []error
	pending  []int // indexes of commands in commitEach without an outcome
	takenAt  time.Time
}

func newLane[C any](c *Committer[C]) *lane[C] {
	l := &lane[C]{c: c}
	l.run = l.runAll
	return l
}

// runFirst takes a batch and writes it on the goroutine of the caller. The caller's
// command is in the batch, or in flight already. Concurrent callers enqueue first, and
// so share the batch. Further batches run on a goroutine of their own.
func (l *lane[C]) runFirst() {
	defer l.c.running.Done()
	runtime.Gosched()
	if l.takeFirst() && l.writeBatch() {
		l.c.running.Go(l.run)
	}
}

// takeFirst takes the first batch. When no command is ready any more, it returns false
// and the lane is idle.
func (l *lane[C]) takeFirst() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.taking = false
	return l.takeNextLocked()
}

// runAll writes the lane's batch, and further batches until no command is ready.
func (l *lane[C]) runAll() {
	for more := true; more; {
		more = l.writeBatch()
	}
}

// writeBatch writes the lane's batch, and reports whether the lane has another one.
func (l *lane[C]) writeBatch() (more bool) {
	l.measure()
	l.commit()
	l.release()
	l.reply()
	// Callers that got a reply can enqueue their next command for the next batch.
	runtime.Gosched()
	return l.takeNext()
}

// fill takes a batch of ready commands. The caller holds the committer's mu.
func (l *lane[C]) fill() {
	l.batch = l.c.queue.take(l.batch, l.c.config.Batch, l.c.config.BatchBytes)
	l.takenAt = time.Now()
}

// takeNext takes another batch. It returns false when the lane is idle.
func (l *lane[C]) takeNext() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.takeNextLocked()
}

// takeNextLocked is takeNext for a caller that holds the committer's mu.
func (l *lane[C]) takeNextLocked() bool {
	c := l.c
	if c.queue.firstReady == nil {
		c.idle = append(c.idle, l)
		return false
	}
	l.fill()
	c.start() // other lanes take what does not fit
	return true
}

func (l *lane[C]) measure() {
	ctx := context.Background()
	l.c.meters.batchSize.Record(ctx, int64(len(l.batch)))
	for _, e := range l.batch {
		l.c.meters.queueTime.Record(ctx, l.takenAt.Sub(e.enqueuedAt).Seconds())
	}
}

// release unlocks the keys of the batch.
func (l *lane[C]) release() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, e := range l.batch {
		l.c.queue.release(e)
	}
}

// reply sends the outcomes to the callers, and empties the lane. From then on an entry
// belongs to its caller.
func (l *lane[C]) reply() {
	for i, e := range l.batch {
		e.done <- l.errs[i]
	}
	clear(l.batch)
	clear(l.commands)
	clear(l.errs)
	l.batch, l.commands, l.errs = l.batch[:0], l.commands[:0], l.errs[:0]
}
