package writer

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
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
	reasonRenewed       = "LOG_RENEWED"
	reasonNotActive     = "STREAM_NOT_ACTIVE"
)

// errRefused: the log will never take the record. The writer stays as it is.
var errRefused = errors.New("the log refuses the record")

// operation is one append, rewind or reset: everything but its number and the sequence
// that it expects, which are the same in every attempt.
type operation struct {
	send func(ctx context.Context, number, last int64) (stored, error)
	// single makes a request of several records one of the first alone, because the
	// log refuses them together; false when it is such a one. nil: it always is.
	single func() bool
	// shrink makes the record smaller; false when it cannot.
	shrink func() bool
	// pass goes on behind so many records, which are stored or given up, and reports
	// whether there are more. nil: there never are.
	pass   func(records int) bool
	marker bool // it leaves no record that readers are given
}

// stored is what the log has acknowledged of an operation.
type stored struct {
	records  int
	sequence int64 // of the last one
}

func (w *Writer) appendTerminal(terminal *streamv1.Terminal) *operation {
	r := &streamv1.AppendRequest{Record: &streamv1.AppendRequest_Terminal{Terminal: terminal}}
	return &operation{
		shrink: func() bool { return shrinkTerminal(terminal) },
		send: func(ctx context.Context, number, last int64) (stored, error) {
			answer, err := w.append(ctx, r, number, last)
			return stored{1, answer.GetSequence()}, err
		},
	}
}

func (w *Writer) append(ctx context.Context, r *streamv1.AppendRequest, number, last int64) (*streamv1.AppendResponse, error) {
	r.Stream, r.Epoch, r.Number, r.ExpectedLastSequence = w.ref, w.epoch, number, last
	return w.client.Append(ctx, r)
}

// Rewound is what a rewind has found.
type Rewound struct {
	// Kept are the records after from_sequence that stand.
	Kept []*streamv1.Record
	// At is the last sequence that stands; 0 when nothing does, of a log that was
	// begun anew.
	At int64
	// Former is the sequence of the last record behind which the writer has written
	// nothing but the rewind; 0 where that was a rewind, too.
	Former int64
}

// Rewind voids what comes after the sequence and belongs to a greater step, and
// drops what waits to be written. A writer that was lossy is not any more: its
// caller tells again what is missing. A patience of 0 has no end.
//
// Where too much stands behind the sequence to be told, the stream is reset: then
// nothing stands, as in a log that was begun anew.
//
// The writer is lossy after an error: ErrAway, ErrBroken, ErrFenced, or that of ctx.
func (w *Writer) Rewind(ctx context.Context, r *streamv1.RewindRequest, patience time.Duration) (Rewound, error) {
	w.Lose()
	if err := w.acquire(ctx); err != nil {
		return Rewound{}, err
	}
	if err := w.settle(ctx, patience); err != nil {
		w.release()
		return Rewound{}, err
	}
	var found Rewound
	if err := w.perform(ctx, w.rewind(r, &found), patience); err != nil {
		return Rewound{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy, w.away = false, false
	w.announce()
	return found, nil
}

// rewind becomes a reset when the answer would be too large.
func (w *Writer) rewind(r *streamv1.RewindRequest, found *Rewound) *operation {
	reset := &streamv1.ResetRequest{Stream: w.ref, Epoch: w.epoch, RunId: r.GetRunId(), Reason: r.GetReason()}
	former, tooLarge := w.former(), false
	shrink := func() bool {
		again := !tooLarge
		tooLarge = true
		return again
	}
	return &operation{shrink: shrink, marker: true, send: func(ctx context.Context, number, last int64) (stored, error) {
		if tooLarge {
			reset.Number, reset.ExpectedLastSequence = number, last
			answer, err := w.client.Reset(ctx, reset)
			*found = Rewound{}
			return stored{1, answer.GetSequence()}, err
		}
		r.Stream, r.Epoch, r.Number, r.ExpectedLastSequence = w.ref, w.epoch, number, last
		answer, err := w.client.Rewind(ctx, r)
		*found = Rewound{Kept: answer.GetKept(), At: answer.GetAt(), Former: former}
		return stored{1, answer.GetSequence()}, err
	}}
}

// Terminal writes the record that ends the run's stream, behind everything that
// was written, and gives its sequence. It tries for as long as ctx allows.
// ErrRenewed: everything has to be told again first. ErrBroken: it never can be.
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
// is busy before and after, and over when it is fenced.
func (w *Writer) settle(ctx context.Context, patience time.Duration) error {
	w.mu.Lock()
	unknown := w.unknown
	w.mu.Unlock()
	if unknown == nil {
		return nil
	}
	err := w.carry(ctx, unknown, patience)
	switch {
	case err == nil:
	case errors.Is(err, errRefused), errors.Is(err, ErrRenewed): // it took no number
	case errors.Is(err, ErrFenced):
		w.end(err)
		return err
	default:
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
	err := w.carry(ctx, o, patience)
	switch {
	case errors.Is(err, ErrRenewed):
		w.Lose() // and nothing is unknown
	case errors.Is(err, ErrAway), errors.Is(err, ErrBroken):
		w.leave(o)
	case errors.Is(err, ErrFenced), ctx.Err() != nil:
		w.end(err)
	}
	w.release()
	return err
}

// carry sends the operation until the log has taken all of it, but for records that
// it will never take. patience is for each answer. After an error, what remains of
// the operation is what is not acknowledged.
func (w *Writer) carry(ctx context.Context, o *operation, patience time.Duration) error {
	for {
		taken, err := w.attempt(ctx, o, patience)
		passed := taken.records
		switch {
		case err == nil:
			w.acknowledge(o, taken)
		case errors.Is(err, errRefused):
			passed = 1
		default:
			return err
		}
		if o.pass == nil || !o.pass(passed) {
			return err
		}
	}
}

func (w *Writer) acknowledge(o *operation, taken stored) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number += int64(taken.records)
	w.last, w.marked = taken.sequence, o.marker
}

// former is the last sequence where it is not that of a marker.
func (w *Writer) former() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marked {
		return 0
	}
	return w.last
}

// leave makes the writer lossy, with an operation whose fate is not known.
func (w *Writer) leave(o *operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy, w.away, w.unknown = true, true, o
	w.drop()
}

func (w *Writer) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	w.announce()
}

// attempt sends the operation until its fate is known, or that of the first of its
// records.
func (w *Writer) attempt(ctx context.Context, o *operation, patience time.Duration) (stored, error) {
	w.mu.Lock()
	number, last := w.number+1, w.last
	w.mu.Unlock()
	begin, pause := time.Now(), firstWait
	for {
		taken, err := w.once(ctx, o, number, last)
		if err == nil {
			return taken, nil
		}
		again, err := w.judge(ctx, o, err)
		if err != nil {
			return stored{}, err
		}
		if again {
			continue
		}
		if patience > 0 && time.Since(begin)+pause > patience {
			w.log.WarnContext(ctx, "chunks are lost: the stream tier does not answer", "patience", patience)
			return stored{}, ErrAway
		}
		select {
		case <-ctx.Done():
			return stored{}, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, lastWait)
	}
}

func (w *Writer) once(ctx context.Context, o *operation, number, last int64) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, w.config.CallTimeout)
	defer cancel()
	return o.send(ctx, number, last)
}

// judge decides what follows from a failed attempt: again at once, an error that
// ends the operation, or neither, which is again after a wait.
func (w *Writer) judge(ctx context.Context, o *operation, err error) (again bool, end error) {
	kind, reason := fault.KindOf(err), fault.ReasonOf(err)
	tooLarge := reason == reasonChunkTooLarge || kind == fault.TooLarge
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case reason == reasonOutOfOrder:
		w.log.ErrorContext(ctx, "chunks are lost: the stream has lost records", "error", err)
		return false, ErrBroken
	case reason == reasonRenewed:
		w.log.WarnContext(ctx, "the log was begun anew; the run is told again", "error", err)
		return false, ErrRenewed
	case kind == fault.Stale:
		return false, ErrFenced
	case (tooLarge || kind == fault.Invalid) && o.single != nil && o.single():
		return true, nil // which of them it is, they say by themselves
	case tooLarge && o.shrink != nil && o.shrink():
		return true, nil
	case tooLarge, kind == fault.Invalid, reason == reasonNotActive:
		w.log.ErrorContext(ctx, "a chunk is lost: the stream refuses it", "error", err)
		return false, errRefused
	}
	return false, nil
}
