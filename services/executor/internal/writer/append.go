package writer

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
)

// The wait between two attempts doubles from the first to the last.
const (
	firstWait = 25 * time.Millisecond
	lastWait  = time.Second
)

const (
	reasonOutOfOrder    = "APPEND_OUT_OF_ORDER"
	reasonChunkTooLarge = "CHUNK_TOO_LARGE"
)

// Errors of one operation that leave the writer as it is.
var (
	// errLost: the stream tier was away for longer than the patience.
	errLost = errors.New("the stream tier does not answer")
	// errRefused: the log will never take the record.
	errRefused = errors.New("the log refuses the record")
)

// operation is one append or rewind: everything but its number and the sequence
// that it expects, which are the same in every attempt.
type operation struct {
	send func(ctx context.Context, number, last int64) (sequence int64, err error)
	// shrink makes the record smaller; false when it cannot.
	shrink func() bool
}

func (w *Writer) appendChunk(chunk *eventv1.Chunk) *operation {
	r := &streamv1.AppendRequest{Record: &streamv1.AppendRequest_Chunk{Chunk: chunk}}
	return w.appendOperation(r, func() bool { return shrinkChunk(chunk) })
}

func (w *Writer) appendTerminal(terminal *streamv1.Terminal) *operation {
	r := &streamv1.AppendRequest{Record: &streamv1.AppendRequest_Terminal{Terminal: terminal}}
	return w.appendOperation(r, func() bool { return shrinkTerminal(terminal) })
}

func (w *Writer) appendOperation(r *streamv1.AppendRequest, shrink func() bool) *operation {
	return &operation{shrink: shrink, send: func(ctx context.Context, number, last int64) (int64, error) {
		r.Stream, r.Epoch, r.Number, r.ExpectedLastSequence = w.ref, w.epoch, number, last
		answer, err := w.client.Append(ctx, r)
		return answer.GetSequence(), err
	}}
}

// Rewind voids what comes after the sequence and belongs to a greater step, also
// what waits to be written. It gives the records after the sequence that stand.
// A writer that was lossy is not any more: its caller says again what was lost.
// When the stream tier is away for longer than the patience, or the log is broken,
// the writer is lossy and kept is nil. A patience of 0 has no end, and then a
// broken log is ErrBroken.
func (w *Writer) Rewind(ctx context.Context, r *streamv1.RewindRequest, patience time.Duration) (kept []*streamv1.Record, err error) {
	w.dropAbove(r.GetStep())
	if err := w.acquire(ctx); err != nil {
		return nil, err
	}
	if err := w.settle(ctx, patience); err != nil {
		w.release()
		return nil, tolerate(err, patience)
	}
	rewind := &operation{send: func(ctx context.Context, number, last int64) (int64, error) {
		r.Stream, r.Epoch, r.Number, r.ExpectedLastSequence = w.ref, w.epoch, number, last
		answer, err := w.client.Rewind(ctx, r)
		kept = answer.GetKept()
		return answer.GetSequence(), err
	}}
	if err := w.perform(ctx, rewind, patience); err != nil {
		return nil, tolerate(err, patience)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy = false
	return kept, nil
}

// tolerate takes errors away that do not stop a run which can go on without its
// readers: one that has patience.
func tolerate(err error, patience time.Duration) error {
	if patience > 0 && (errors.Is(err, errLost) || errors.Is(err, ErrBroken) || errors.Is(err, errRefused)) {
		return nil
	}
	return err
}

// Terminal writes the record that ends the run's stream, behind everything that
// was written, and gives its sequence. It tries for as long as ctx allows; a broken
// log is ErrBroken.
func (w *Writer) Terminal(ctx context.Context, terminal *streamv1.Terminal) (int64, error) {
	if err := w.acquire(ctx); err != nil {
		return 0, err
	}
	if err := w.settle(ctx, 0); err != nil {
		w.release()
		return 0, err
	}
	err := w.perform(ctx, w.appendTerminal(terminal), 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, err
}

// settle finds out about the append that a lossy writer left behind. The writer
// is busy before and after.
func (w *Writer) settle(ctx context.Context, patience time.Duration) error {
	w.mu.Lock()
	unknown := w.unknown
	w.mu.Unlock()
	if unknown == nil {
		return nil
	}
	sequence, err := w.attempt(ctx, unknown, patience)
	if errors.Is(err, errRefused) {
		err = nil // it took no number
	} else if err == nil {
		w.acknowledge(sequence)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.unknown = nil
	w.mu.Unlock()
	return nil
}

// perform attempts the operation of the busy writer and makes it idle again. A
// patience of 0 has no end.
func (w *Writer) perform(ctx context.Context, o *operation, patience time.Duration) error {
	sequence, err := w.attempt(ctx, o, patience)
	switch {
	case err == nil:
		w.acknowledge(sequence)
	case errors.Is(err, errLost), errors.Is(err, ErrBroken):
		w.lose(o)
	case errors.Is(err, ErrFenced), ctx.Err() != nil:
		w.end(err)
	}
	w.release()
	return err
}

func (w *Writer) acknowledge(sequence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	w.last = sequence
}

func (w *Writer) lose(o *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy, w.unknown = true, o
	w.drop()
}

func (w *Writer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	w.announce()
}

// attempt sends the operation until its fate is known.
func (w *Writer) attempt(ctx context.Context, o *operation, patience time.Duration) (int64, error) {
	w.mu.Lock()
	number, last := w.number+1, w.last
	w.mu.Unlock()
	begin, pause := time.Now(), firstWait
	for {
		sequence, err := w.once(ctx, o, number, last)
		if err == nil {
			return sequence, nil
		}
		again, err := w.judge(ctx, o, err)
		if err != nil {
			return 0, err
		}
		if again {
			continue
		}
		if patience > 0 && time.Since(begin)+pause > patience {
			w.log.WarnContext(ctx, "chunks are lost: the stream tier does not answer", "patience", patience)
			return 0, errLost
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastWait)
	}
}

func (w *Writer) once(ctx context.Context, o *operation, number, last int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.CallTimeout)
	defer cancel()
	return o.send(ctx, number, last)
}

// judge decides what follows from a failed attempt: again at once, an error that
// ends the operation, or neither, which is again after a wait.
func (w *Writer) judge(ctx context.Context, o *operation, err error) (again bool, end error) {
	kind, reason := fault.KindOf(err), fault.ReasonOf(err)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case reason == reasonOutOfOrder:
		w.log.ErrorContext(ctx, "chunks are lost: the stream has lost records", "error", err)
		return false, ErrBroken
	case kind == fault.Stale:
		return false, ErrFenced
	case reason == reasonChunkTooLarge || kind == fault.TooLarge:
		if o.shrink != nil && o.shrink() {
			return true, nil
		}
		fallthrough
	case kind == fault.Invalid:
		w.log.ErrorContext(ctx, "a chunk is lost: the stream refuses it", "error", err)
		return false, errRefused
	}
	return false, nil
}
