// Package livelog is the heart of the live log: it decides which record may follow which.
//
// The log of a session is a sequence of records. Each record has its writer's epoch and covers the sequences of
// its frames (package position). There are three kinds:
//
//	attempt    the first record of an attempt: chunks from n = 1 on, or none at n = 0
//	chunks     later records of the attempt; each follows a named frame
//	boundary   a step was committed, or a run has ended
//
// A request holds consecutive records. The log stores all of them or none. The rules compare its first record
// with the last record of the log, the tail. Its last record shows whether the request is stored already:
//
//	epoch below the tail's                  WRITER_FENCED
//	stored already                          the same answer as before
//	attempt, boundary above the tail        store
//	chunks whose `after` is the tail        store
//	the same, of an epoch above the tail's  LOG_AHEAD
//	anything else                           RECORDS_LOST: begin a new attempt
//
// A log may lose its tail or everything at any time. The writer notices the loss by the tail of its next append;
// no other component has to. The state service assigns epochs and sequences, so records written after a loss lie
// above all earlier ones.
//
// The state service may lose commits, too: a backup is restored, or a failover loses the last commits. Then the log is
// ahead, and the first append of the next claim notices it: as WRITER_FENCED or LOG_AHEAD, depending on the epochs, which
// are random. Both name the tail, and the session goes on above it.
package livelog

import (
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
)

// Tail is the last record of a session's log. The zero Tail is an empty log.
type Tail struct {
	Epoch int64
	Last  int64 // sequence of its last frame
}

// Request is an append. A request without records is a check: it stores nothing and asks whether the tail ends
// at After.
type Request struct {
	Epoch   int64
	After   int64 // the writer's last appended frame; 0 for none
	Records []Record
}

// Record is one record of a request.
type Record struct {
	Sequence int64 // of the first frame
	Chunks   int
	Attempt  *Attempt
	Boundary *Boundary
}

// Attempt marks the first record of an attempt.
type Attempt struct {
	Stands int64 // the session's position when the attempt began
}

// Boundary marks the end of a step or a run.
type Boundary struct {
	Last      int64 // the last chunk of the committed attempt; 0 for none
	Committed bool  // the step was committed
	Ended     bool  // the run has ended
}

// IsCheck reports whether the request only asks about the tail.
func (r Request) IsCheck() bool { return len(r.Records) == 0 }

// Last returns the sequence of the last frame; 0 for a check.
func (r Request) Last() int64 {
	if r.IsCheck() {
		return 0
	}
	return r.Records[len(r.Records)-1].Last()
}

// Last returns the sequence of the record's last frame.
func (r Record) Last() int64 { return r.Sequence + int64(max(r.Chunks, 1)) - 1 }

// follows reports whether the record may directly follow the frame.
func (r Record) follows(last int64) bool {
	if r.continues() {
		return r.Sequence == last+1
	}
	return r.Sequence > last
}

// Decide reports whether to store the records of a valid request after the tail. If it returns false without an
// error, the log holds the records already, or a check has succeeded: the caller answers with success.
//
// Stale (WRITER_FENCED): a later owner has written. Stale (LOG_AHEAD): an earlier owner has written beyond the request.
// Stale (RECORDS_LOST): the log lacks the record before the request, or has passed its sequence.
func Decide(t Tail, r Request) (store bool, err error) {
	switch {
	case r.Epoch < t.Epoch:
		return false, t.named(fault.New(fault.Stale, "WRITER_FENCED",
			"epoch %d has already written; epoch %d may no longer write", t.Epoch, r.Epoch))
	case r.IsCheck():
		if r.After == t.Last {
			return false, nil
		}
	case stored(t, r):
		return false, nil
	case r.Records[0].follows(t.Last):
		return true, nil
	case r.Epoch > t.Epoch && !r.Records[0].continues():
		return false, t.named(fault.New(fault.Stale, "LOG_AHEAD",
			"epoch %d has written up to %d, above %d: the database has lost commits", t.Epoch, t.Last, r.Records[0].Sequence))
	}
	return false, fault.New(fault.Stale, "RECORDS_LOST",
		"the log ends at %d and the request follows %d; begin a new attempt", t.Last, r.After)
}

// named adds the tail to a fault.
func (t Tail) named(f *fault.Fault) error {
	return f.With("lastEpoch", strconv.FormatInt(t.Epoch, 10)).With("lastStep", strconv.Itoa(int(position.Of(t.Last).Step)))
}

// stored reports whether the log holds the records. An attempt has one writer and no gaps, so its tail implies
// all earlier records of the attempt.
func stored(t Tail, r Request) bool {
	last := r.Records[len(r.Records)-1]
	switch {
	case r.Epoch != t.Epoch:
		return false
	case last.Boundary != nil:
		return last.Sequence == t.Last
	}
	p, tail := position.Of(last.Last()), position.Of(t.Last)
	return isLive(t.Last) && p.Step == tail.Step && p.Attempt == tail.Attempt && last.Last() <= t.Last
}

// isLive reports whether the sequence belongs to an attempt: its beginning (n = 0) or one of its chunks.
func isLive(sequence int64) bool {
	p := position.Of(sequence)
	return p.Step >= 1 && p.Attempt >= 1 && p.Attempt < position.Stored && p.N <= position.MaxChunks
}

// Validate checks a request by itself: Invalid (RECORD_INVALID).
func Validate(r Request) error {
	switch {
	case r.Epoch < 1:
		return invalid("epoch is %d; it is above 0", r.Epoch)
	case !position.Valid(r.After):
		return invalid("after is %d, which is not a position", r.After)
	}
	former := r.After
	for i, record := range r.Records {
		if err := validateRecord(record); err != nil {
			return err
		}
		// The tail decides about the first record, so an older one may precede `after`.
		if !record.follows(former) && (i > 0 || record.continues()) {
			return invalid("record %d begins at sequence %d, which does not follow %d", i+1, record.Sequence, former)
		}
		former = record.Last()
	}
	return nil
}

// continues reports whether the record continues an attempt.
func (r Record) continues() bool { return r.Attempt == nil && r.Boundary == nil }

func validateRecord(r Record) error {
	switch {
	case !position.Valid(r.Sequence):
		return invalid("sequence is %d, which is not a position", r.Sequence)
	case r.Boundary != nil:
		return validateBoundary(r)
	case r.continues() && r.Chunks == 0:
		return invalid("a record has chunks, an attempt or a boundary")
	}
	return validateChunks(r)
}

func validateChunks(r Record) error {
	p := position.Of(r.Sequence)
	begins := r.Attempt != nil
	switch {
	case !isLive(r.Sequence) || r.Chunks > position.MaxChunks-int(p.N)+1:
		return invalid("%d chunks from sequence %d on are not those of an attempt", r.Chunks, r.Sequence)
	case begins && p.N != int32(min(r.Chunks, 1)): //nolint:gosec // 0 or 1
		return invalid("the first record of an attempt begins at n = 1, or at n = 0 where it has no chunks; n is %d", p.N)
	case !begins && p.N == 0:
		return invalid("chunks have the sequences from n = 1 on")
	case begins && (!position.Valid(r.Attempt.Stands) || r.Attempt.Stands >= r.Sequence):
		return invalid("attempt.stands is %d; it is a position before sequence %d", r.Attempt.Stands, r.Sequence)
	}
	return nil
}

// validateBoundary accepts the three positions of a boundary: see Boundary in the contract.
func validateBoundary(r Record) error {
	p, b := position.Of(r.Sequence), r.Boundary
	step := p.Step
	var fits bool
	switch {
	case step < 1:
	case r.Sequence == position.Committed(step):
		fits = b.Committed && !b.Ended
	case r.Sequence == position.Ended(step):
		fits = b.Committed && b.Ended
	case p.N == position.MaxN && p.Attempt >= position.PerClaim && p.Attempt%position.PerClaim == 0:
		fits = !b.Committed && b.Ended
	}
	switch {
	case r.Chunks > 0 || r.Attempt != nil:
		return invalid("a boundary must be alone in its record")
	case !fits:
		return invalid("a boundary at sequence %d (step %d, attempt %d, n %d) does not fit its contents: step committed %t, run ended %t",
			r.Sequence, p.Step, p.Attempt, p.N, b.Committed, b.Ended)
	case !position.Valid(b.Last) || b.Last >= r.Sequence:
		return invalid("boundary.last is %d; it is a position before sequence %d", b.Last, r.Sequence)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "RECORD_INVALID", format, args...)
}

// AttemptSurvey finds attempts superseded by a later one at the same step. It holds the last attempt of each step with
// several attempts.
type AttemptSurvey map[sessionStep]int32

type sessionStep struct {
	session string
	step    int32
}

// Add adds a record by the sequence of its last frame. The records of a session must come in order.
func (s AttemptSurvey) Add(session string, last int64) {
	if p := position.Of(last); p.Attempt > 1 && isLive(last) {
		s[sessionStep{session, p.Step}] = p.Attempt
	}
}

// Superseded reports whether a later attempt supersedes the record's attempt.
func (s AttemptSurvey) Superseded(session string, last int64) bool {
	p := position.Of(last)
	return isLive(last) && p.Attempt < s[sessionStep{session, p.Step}]
}
