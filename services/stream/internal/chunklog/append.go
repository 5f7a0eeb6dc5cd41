package chunklog

import "github.com/holdfast-run/holdfast/pkg/fault"

// Write is what a writer asks for.
type Write struct {
	Epoch  int64
	Number int64
	Kind   Kind
	// Former is the sequence of the writer's former record, 0 when it does not
	// know. It may be wrong.
	Former uint64
}

// Decision is what becomes of a write that is not refused.
type Decision uint8

// The decisions.
const (
	// Accept: the record may be stored behind the tail.
	Accept Decision = iota + 1
	// Repeat: the tail is this very record; its sequence is the answer.
	Repeat
)

// Decide says what becomes of a write on a stream with this tail. The decision
// holds only as long as the tail does.
//
// Stale (WRITER_FENCED): the tail has a higher epoch. Stale
// (APPEND_OUT_OF_ORDER): the number is neither the next nor the last.
func Decide(tail Tail, w Write) (Decision, error) {
	switch {
	case tail.Sequence == 0:
		return decideFirst(w)
	case w.Epoch < tail.Epoch:
		return 0, fault.New(fault.Stale, "WRITER_FENCED",
			"epoch %d is not the writer any more; epoch %d is", w.Epoch, tail.Epoch)
	case w.Epoch > tail.Epoch:
		if w.Number != 1 {
			return 0, outOfOrder(w, 1)
		}
		return Accept, nil
	case w.Number == tail.Number && w.Kind == tail.Kind:
		return Repeat, nil
	case w.Number == tail.Number+1:
		return Accept, nil
	}
	return 0, outOfOrder(w, tail.Number+1)
}

// decideFirst decides on a stream of which nothing is kept. A writer that
// knows its former record goes on: retention or a lost log has taken what it
// wrote, and that must not end its run.
func decideFirst(w Write) (Decision, error) {
	if w.Number != 1 && w.Former == 0 {
		return 0, outOfOrder(w, 1)
	}
	return Accept, nil
}

func outOfOrder(w Write, next int64) error {
	return fault.New(fault.Stale, "APPEND_OUT_OF_ORDER",
		"number %d of epoch %d is not the next one, which is %d", w.Number, w.Epoch, next)
}

// Link sets what a record inherits from its place behind the tail. former is
// the sequence of the writer's former record, 0 when it is not known: on a
// stream of which nothing is kept it stands in for the predecessor, so that
// readers see that something has gone.
func Link(r *Record, tail Tail, former uint64) {
	r.Prev = tail.Sequence
	if tail.Sequence == 0 {
		r.Prev = former
	}
}
