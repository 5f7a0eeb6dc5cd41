package chunklog

import "github.com/holdfast-run/holdfast/pkg/fault"

// Write is what a writer asks for.
type Write struct {
	Epoch  int64
	Number int64
	Kind   Kind
	Run    string
	// Former is a sequence that the log has acknowledged to this writer, 0 when it
	// knows none: that of its former record, or one that the state service has
	// recorded. It may be older than the tail.
	Former uint64
	// More is how many chunks follow this one in the same request. They have the
	// numbers that follow its own.
	More int64
}

// Stored says how many records of the request, from w on, are known to stand when
// the stream has this tail: as many as lie up to it, where the tail is one of them.
// They are stored in their order and each behind the one before, so those before
// the tail stood when it was stored.
func (w Write) Stored(tail Tail) int64 {
	behind := tail.Number - w.Number
	if tail.Sequence == 0 || tail.Epoch != w.Epoch || tail.Kind != w.Kind || behind < 0 || behind > w.More {
		return 0
	}
	return behind + 1
}

// Decision is what becomes of a write that is not refused.
type Decision uint8

// The decisions.
const (
	// Accept: the record may be stored behind the tail.
	Accept Decision = iota + 1
	// Repeat: the tail is this very record, or one that follows it in the same
	// request (Write.Stored); its sequence is the answer.
	Repeat
	// Ask: nothing is kept of what the writer had. Ask Vanished why.
	Ask
	// Doubt: what the writer had is not there, and retention has not removed it.
	// Have the log settle the doubt, then decide anew on what it says.
	Doubt
	// Anew: the marker may be stored in a log that has lost what stood before.
	Anew
)

// Decide says what becomes of a write on a stream with this tail. The decision
// holds only as long as the tail does.
//
// Stale (WRITER_FENCED): the tail has a higher epoch. Stale
// (APPEND_OUT_OF_ORDER): the number is not the next, and the last is none of the
// request. Conflict (STREAM_NOT_ACTIVE): a chunk of a run that has ended here.
func Decide(tail Tail, w Write) (Decision, error) {
	switch {
	case tail.Sequence == 0:
		return decideFirst(w)
	case w.Epoch < tail.Epoch:
		return 0, fault.New(fault.Stale, "WRITER_FENCED",
			"epoch %d is not the writer any more; epoch %d is", w.Epoch, tail.Epoch)
	case w.Stored(tail) > 0:
		return Repeat, nil
	case w.Former > tail.Sequence:
		// Before any refusal that is final: the tail may be that of a server which
		// does not know yet that it lags.
		return Doubt, nil
	case w.Epoch > tail.Epoch && w.Number != 1:
		return 0, outOfOrder(w, 1)
	case w.Epoch == tail.Epoch && w.Number != tail.Number+1:
		return 0, outOfOrder(w, tail.Number+1)
	case w.Kind == Chunk && tail.Status != Active && tail.Run == w.Run:
		return 0, fault.New(fault.Conflict, "STREAM_NOT_ACTIVE",
			"run %s has ended in this stream; resume the stream before it goes on", w.Run)
	}
	return Accept, nil
}

// decideFirst decides on a stream of which nothing is kept.
func decideFirst(w Write) (Decision, error) {
	if w.Former > 0 {
		return Ask, nil
	}
	if w.Number != 1 {
		return 0, outOfOrder(w, 1)
	}
	return Accept, nil
}

// Vanished decides on a write to a stream of which nothing is kept although its
// writer has had a record acknowledged. What retention has removed must not end
// a run, so the writer goes on. Where the log was begun anew since, readers have
// to be told what stands: a marker may say so, and a record that takes what was
// before for granted may not.
//
// Stale (LOG_RENEWED): the log was begun anew.
func Vanished(w Write, s Stand) (Decision, error) {
	switch {
	case w.Former >= s.Began && w.Former > s.Floor:
		return Doubt, nil
	case w.Former >= s.Began:
		return Accept, nil
	case w.Kind == Marker:
		return Anew, nil
	}
	return 0, fault.New(fault.Stale, "LOG_RENEWED",
		"the chunk log has lost record %d and was begun anew; rewind, and tell again what readers have to know", w.Former)
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
