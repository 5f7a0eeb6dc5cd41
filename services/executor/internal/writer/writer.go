package writer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// Ends of a writer.
var (
	// ErrFenced says that another executor writes the session's stream.
	ErrFenced = errors.New("the stream belongs to a newer epoch")
	// ErrBroken says that the log is not the one that this epoch has written to:
	// it has lost records. Only a new epoch can write to it.
	ErrBroken = errors.New("the stream has lost records of this epoch")
)

// Errors of one operation.
var (
	// ErrAway says that the stream tier did not answer within the patience.
	ErrAway = errors.New("the stream tier does not answer")
	// ErrRenewed says that the log was begun anew: nothing of the stream is in it
	// any more. The record was not stored.
	ErrRenewed = errors.New("the log was begun anew")
)

// maxQueued bounds the chunks that wait for the append in flight.
const maxQueued = 1024

// Config limits a writer.
type Config struct {
	MaxDeltaBytes  int           // larger deltas are split, smaller ones merged up to here
	MaxQueuedBytes int           // Write waits while more than this is queued
	Patience       time.Duration // how long the stream tier may be away before the writer is lossy
	CallTimeout    time.Duration // of one append
}

// Writer appends to the stream of one session under one epoch. Its methods may be
// called by many goroutines at once. Rewind and Terminal wait for each other and for
// the append in flight.
type Writer struct {
	config Config
	client streamv1.StreamServiceClient
	ref    *streamv1.StreamRef
	epoch  int64
	log    *slog.Logger

	mu      sync.Mutex
	queue   []*eventv1.Chunk
	queued  int           // bytes in queue
	busy    bool          // an append or rewind is in flight
	number  int64         // of the last append that is known to be in the log
	last    int64         // its sequence
	marked  bool          // it was a marker
	limit   int           // of one delta; lower than configured once the log has refused one
	lossy   bool          // chunks were dropped and will be
	away    bool          // because the stream tier has not answered
	unknown *operation    // the append that a lossy writer may have left in the log
	err     error         // why the writer is over
	changed chan struct{} // closed and replaced at every change
}

// New returns a writer that goes on after the sequence, as far as it is known;
// 0 when it is not. It writes nothing before Run.
func New(client streamv1.StreamServiceClient, ref *streamv1.StreamRef, epoch, last int64, c Config, log *slog.Logger) *Writer {
	return &Writer{
		config: c, client: client, ref: ref, epoch: epoch, last: last, log: log,
		limit: c.MaxDeltaBytes, changed: make(chan struct{}),
	}
}

// Run appends what is written until ctx ends or the writer is fenced.
func (w *Writer) Run(ctx context.Context) {
	for {
		chunks, err := w.take(ctx)
		if err != nil {
			w.end(err)
			return
		}
		// What becomes of it is the writer's state: lossy, or over.
		_ = w.perform(ctx, w.appendChunks(chunks), w.config.Patience)
	}
}

// Write queues a chunk and waits while the queue is full. The writer owns the
// chunk from then on.
func (w *Writer) Write(ctx context.Context, chunk *eventv1.Chunk) error {
	for _, piece := range split(chunk, w.deltaLimit()) {
		if err := w.enqueue(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) enqueue(ctx context.Context, chunk *eventv1.Chunk) error {
	for {
		w.mu.Lock()
		switch {
		case w.err != nil:
			defer w.mu.Unlock()
			return w.err
		case w.lossy:
			w.mu.Unlock()
			return nil
		case w.merge(chunk):
			w.announce()
			w.mu.Unlock()
			return nil
		case len(w.queue) < maxQueued && (w.queued == 0 || w.queued+size(chunk) <= w.config.MaxQueuedBytes):
			w.queue = append(w.queue, chunk)
			w.queued += size(chunk)
			w.announce()
			w.mu.Unlock()
			return nil
		}
		changed := w.changed
		w.mu.Unlock()
		if err := wait(ctx, changed); err != nil {
			return err
		}
	}
}

// merge adds the chunk to the last one that waits, where both are deltas of one
// block. The caller holds mu.
func (w *Writer) merge(chunk *eventv1.Chunk) bool {
	if len(w.queue) == 0 || w.queued >= w.config.MaxQueuedBytes {
		return false
	}
	last := w.queue[len(w.queue)-1]
	before := size(last)
	if !Merge(last, chunk, w.limit) {
		return false
	}
	w.queued += size(last) - before
	return true
}

// Flush waits until everything that was written is acknowledged, or the writer
// has become lossy, and gives the last acknowledged sequence.
func (w *Writer) Flush(ctx context.Context) (int64, error) {
	for {
		w.mu.Lock()
		last, err, changed := w.last, w.err, w.changed
		idle := w.lossy || len(w.queue) == 0 && !w.busy
		w.mu.Unlock()
		if err != nil {
			return last, err
		}
		if idle {
			return last, nil
		}
		if err := wait(ctx, changed); err != nil {
			return last, err
		}
	}
}

// Lossy reports whether chunks were lost and will be, until the next Rewind.
func (w *Writer) Lossy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lossy
}

// Lose makes the writer lossy: what waits is dropped, and so is what it is told
// until the next Rewind.
func (w *Writer) Lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy = true
	w.drop()
	w.announce()
}

// Lost waits until the writer is lossy, and reports whether it is because the
// stream tier has not answered. An error says that the writer is over or ctx has
// ended.
func (w *Writer) Lost(ctx context.Context) (away bool, err error) {
	for {
		w.mu.Lock()
		lossy, away, err, changed := w.lossy, w.away, w.err, w.changed
		w.mu.Unlock()
		if err != nil || lossy {
			return away, err
		}
		if err := wait(ctx, changed); err != nil {
			return false, err
		}
	}
}

// Err says why the writer is over; nil while it is not.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// take waits for the next chunks and makes the writer busy.
func (w *Writer) take(ctx context.Context) ([]*eventv1.Chunk, error) {
	for {
		w.mu.Lock()
		if w.err != nil {
			defer w.mu.Unlock()
			return nil, w.err
		}
		if len(w.queue) > 0 && !w.busy {
			chunks := w.popBatch()
			w.busy = true
			w.announce()
			w.mu.Unlock()
			return chunks, nil
		}
		changed := w.changed
		w.mu.Unlock()
		if err := wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// pop takes the first chunk that waits, or as much of it as the limit allows: it
// may have been queued under a higher one. The caller holds mu.
func (w *Writer) pop() *eventv1.Chunk {
	chunk := w.queue[0]
	w.queued -= size(chunk)
	if text := delta(chunk); text != nil && len(*text) > w.limit {
		w.queue[0] = cutAt(chunk, w.limit)
		w.queued += size(w.queue[0])
		return chunk
	}
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return chunk
}

// popBatch takes the first chunk that waits, and those behind it that fit into one
// request with it. The caller holds mu.
func (w *Writer) popBatch() []*eventv1.Chunk {
	chunks := []*eventv1.Chunk{w.pop()}
	bytes := proto.Size(chunks[0])
	for len(w.queue) > 0 && len(chunks) < maxBatch {
		next := w.queue[0]
		text := delta(next)
		if bytes += proto.Size(next); bytes > maxBatchBytes || text != nil && len(*text) > w.limit {
			break
		}
		chunks = append(chunks, w.pop())
	}
	return chunks
}

// acquire makes the writer busy for the caller once nothing waits any more.
func (w *Writer) acquire(ctx context.Context) error {
	for {
		w.mu.Lock()
		if w.err != nil {
			defer w.mu.Unlock()
			return w.err
		}
		if !w.busy && len(w.queue) == 0 {
			w.busy = true
			w.mu.Unlock()
			return nil
		}
		changed := w.changed
		w.mu.Unlock()
		if err := wait(ctx, changed); err != nil {
			return err
		}
	}
}

// deltaLimit is the size of the largest delta that the log is sent.
func (w *Writer) deltaLimit() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit
}

// lower has no later delta be larger than the limit.
func (w *Writer) lower(limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = min(w.limit, limit)
}

// end makes every later call fail. A fenced writer stays fenced.
func (w *Writer) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.drop()
	w.announce()
}

func (w *Writer) drop() {
	w.queue, w.queued = nil, 0
}

// announce wakes everybody who waits for a change. The caller holds mu.
func (w *Writer) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
