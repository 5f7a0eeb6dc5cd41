// Package livelog is the heart of the live log: which record may follow which.
//
// The log of a session is a row of records. Each has the epoch of its writer and
// covers the sequences of its frames (package position). Three kinds exist:
//
//	attempt    the first record of an attempt: chunks from n = 1 on, or none at n = 0
//	chunks     what follows in the same attempt; names the frame that it follows
//	boundary   a step was committed, or a run has ended
//
// The rules look at nothing but the last record, the tail:
//
//	epoch below the tail's                  WRITER_FENCED
//	stored already                          Repeat: the same answer as before
//	attempt, boundary above the tail        Accept
//	chunks whose `after` is the tail        Accept
//	anything else                           RECORDS_LOST: begin a new attempt
//
// A log may lose its tail or everything at any time. A writer that continues
// notices it by the tail; no other component has to. Epochs and sequences come from the
// state service, so records that are written after a loss lie above all that came
// before it.
package livelog

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
)

// Tail is the last record of a session's log. The zero Tail means that nothing is
// stored.
type Tail struct {
	Epoch int64
	Last  int64 // the sequence of its last frame
}

// Request is an append as the rules see it. A request that is Check stores nothing
// and asks whether the tail ends at After.
type Request struct {
	Epoch    int64
	After    int64 // the last frame that the writer has appended; 0 for none
	Sequence int64 // of the first frame
	Chunks   int
	Attempt  *Attempt
	Boundary *Boundary
}

// Attempt says that a record is the first of an attempt.
type Attempt struct {
	Stands int64 // the session's position when the attempt began
}

// Boundary says what a boundary tells.
type Boundary struct {
	Last      int64 // the last chunk of the attempt that became the step; 0 for none
	Committed bool  // the step was committed
	Ended     bool  // the run has ended
}

// Check reports whether the request only asks about the tail.
func (r Request) Check() bool { return r.Chunks == 0 && r.Attempt == nil && r.Boundary == nil }

// Last returns the sequence of the record's last frame.
func (r Request) Last() int64 { return r.Sequence + int64(max(r.Chunks, 1)) - 1 }

// Decision says what becomes of a request.
type Decision uint8

// The decisions.
const (
	// Accept: store the record behind the tail.
	Accept Decision = iota + 1
	// Repeat: store nothing; the answer is that of a success.
	Repeat
)

// Decide says what becomes of a valid request.
//
// Stale (WRITER_FENCED): a later owner has written. Stale (RECORDS_LOST): the log
// does not have the record that the request follows, or has passed its sequence.
func Decide(t Tail, r Request) (Decision, error) {
	switch {
	case r.Epoch < t.Epoch:
		return 0, fault.New(fault.Stale, "WRITER_FENCED", "epoch %d has written; epoch %d may not any more", t.Epoch, r.Epoch)
	case r.Check():
		if r.After == t.Last {
			return Repeat, nil
		}
	case stored(t, r):
		return Repeat, nil
	case r.Attempt != nil || r.Boundary != nil:
		if r.Sequence > t.Last {
			return Accept, nil
		}
	case r.After == t.Last:
		return Accept, nil
	}
	return 0, fault.New(fault.Stale, "RECORDS_LOST", "the log ends at %d and the request follows %d; begin a new attempt", t.Last, r.After)
}

// stored reports whether the log holds the record. Within an attempt, records have one
// writer and follow each other without a gap, so the tail covers all that the writer has
// appended before it.
func stored(t Tail, r Request) bool {
	switch {
	case r.Epoch != t.Epoch:
		return false
	case r.Boundary != nil:
		return r.Sequence == t.Last
	}
	return shownLive(t.Last) && sameAttempt(t.Last, r.Last()) && r.Last() <= t.Last
}

// shownLive reports whether the sequence is one of an attempt: of its beginning (n = 0) or
// of one of its chunks.
func shownLive(sequence int64) bool {
	p := position.Of(sequence)
	return p.Step >= 1 && p.Attempt >= 1 && p.Attempt < position.Stored && p.N <= position.MaxChunks
}

func sameAttempt(a, b int64) bool {
	p, q := position.Of(a), position.Of(b)
	return p.Step == q.Step && p.Attempt == q.Attempt
}
