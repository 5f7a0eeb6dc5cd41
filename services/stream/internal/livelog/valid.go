package livelog

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
)

// Validate checks what a request says of itself: Invalid (RECORD_INVALID).
func Validate(r Request) error {
	switch {
	case r.Epoch < 1:
		return invalid("epoch is %d; it is above 0", r.Epoch)
	case !position.Valid(r.After):
		return invalid("after is %d, which is no position", r.After)
	case r.Check():
		return nil
	case !position.Valid(r.Sequence):
		return invalid("sequence is %d, which is no position", r.Sequence)
	case r.Boundary != nil:
		return validateBoundary(r)
	}
	return validateChunks(r)
}

func validateChunks(r Request) error {
	p := position.Of(r.Sequence)
	begins := r.Attempt != nil
	switch {
	case !shownLive(r.Sequence) || r.Chunks > position.MaxChunks-int(p.N)+1:
		return invalid("%d chunks from sequence %d on are not those of an attempt", r.Chunks, r.Sequence)
	case begins && p.N != int32(min(r.Chunks, 1)): //nolint:gosec // 0 or 1
		return invalid("the first record of an attempt begins at n = 1, or at n = 0 where it has no chunks; n is %d", p.N)
	case !begins && p.N == 0:
		return invalid("chunks have the sequences from n = 1 on")
	case begins && (!position.Valid(r.Attempt.Stands) || r.Attempt.Stands >= r.Sequence):
		return invalid("attempt.stands is %d; it is a position before sequence %d", r.Attempt.Stands, r.Sequence)
	case !begins && r.After != r.Sequence-1:
		return invalid("after is %d; chunks of an attempt follow each other, and these begin at %d", r.After, r.Sequence)
	}
	return nil
}

// validateBoundary accepts the three positions that a boundary can have: see Boundary in
// the contract.
func validateBoundary(r Request) error {
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
		return invalid("a boundary stands alone in its record")
	case !fits:
		return invalid("a boundary at sequence %d (step %d, attempt %d, n %d) does not fit what it tells: step committed %t, run ended %t",
			r.Sequence, p.Step, p.Attempt, p.N, b.Committed, b.Ended)
	case !position.Valid(b.Last) || b.Last >= r.Sequence:
		return invalid("boundary.last is %d; it is a position before sequence %d", b.Last, r.Sequence)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "RECORD_INVALID", format, args...)
}
