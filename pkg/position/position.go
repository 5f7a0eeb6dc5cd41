// Package position packs a reader's position in a session into one integer.
//
// A position is (step, attempt, n): the session's step number, the attempt at that step, and the number of the
// chunk within the attempt. It comes from the session only, so a lost, restored or truncated log cannot give a
// known position another meaning.
//
//	 52        30 29        19 18          0
//	┌────────────┬────────────┬─────────────┐
//	│ step       │ attempt    │ n           │   below 2^53: exact in JavaScript
//	└────────────┴────────────┴─────────────┘
//
// Positions within a step, in ascending order:
//
//	(s, 0, 0)               Start: after step s-1, before everything of step s
//	(s, a, 1) (s, a, 2) …   the live chunks of attempt a
//	(s, Stored, 1) …        the chunks of the step as rendered from the database
//	Committed(s)            the chunk step_committed, live and stored
//	Ended(s)-1, Ended(s)    the last chunk and the end of a run that ended with the step
//
// A run that ends outside a step ends after the attempts of its last claim: see OutsideStep. The chunk with the
// outcome of a run is always one position before the run's end.
//
// Claims assign attempts, so no two owners of a run use the same attempt: see Attempts.
package position

// Widths of the parts in bits.
const (
	stepBits    = 23
	attemptBits = 11
	nBits       = 19
)

// Highest values of the parts.
const (
	MaxStep = 1<<stepBits - 1
	MaxN    = 1<<nBits - 1
	// Stored replaces the attempt in the positions of a step rendered from the database.
	Stored = 1<<attemptBits - 1
	// MaxChunks is the number of chunks that an attempt may show. Its writer shows nothing more until the step
	// is committed.
	MaxChunks = MaxN - 3
)

// PerClaim is the number of attempts per claim at a step, and MaxClaims the number of the last claim with
// attempts.
const (
	PerClaim  = 32
	MaxClaims = (Stored-1)/PerClaim - 1
)

// Position is a reader's position.
type Position struct {
	Step    int32
	Attempt int32
	N       int32
}

// Of unpacks a sequence. A negative one counts as 0.
func Of(sequence int64) Position {
	if sequence < 0 {
		return Position{}
	}
	return Position{
		Step:    int32(sequence >> (attemptBits + nBits) & MaxStep),
		Attempt: int32(sequence >> nBits & Stored),
		N:       int32(sequence & MaxN),
	}
}

// Sequence packs the position. Its parts must be in range.
func (p Position) Sequence() int64 {
	return int64(p.Step)<<(attemptBits+nBits) | int64(p.Attempt)<<nBits | int64(p.N)
}

// Valid reports whether a sequence is in the range of Position.Sequence.
func Valid(sequence int64) bool { return sequence >= 0 && sequence < 1<<(stepBits+attemptBits+nBits) }

// Start returns the position before everything of the step.
func Start(step int32) int64 { return Position{Step: step}.Sequence() }

// Committed returns the position of the chunk step_committed.
func Committed(step int32) int64 { return Position{step, Stored, MaxN - 2}.Sequence() }

// Ended returns the position of the end of a run that ended with the step.
func Ended(step int32) int64 { return Position{step, Stored, MaxN}.Sequence() }

// LastStep returns the last step that had ended at a session's position: the position of a boundary, or 0.
func LastStep(sequence int64) int32 {
	p := Of(sequence)
	if p.Attempt == Stored {
		return p.Step
	}
	return max(p.Step-1, 0)
}

// OutsideStep returns the position of the end of a run that ended outside a step, while the step was in flight
// and the session had this number of claims.
func OutsideStep(step, claims int32) int64 {
	_, last := Attempts(min(claims, MaxClaims))
	return Position{step, last, MaxN}.Sequence()
}

// Attempts returns the first and the last attempt of a claim at the step in flight. claims counts the claims and
// ends of runs since the last committed step, including this claim. Both results are 0 when no attempts remain:
// the claim shows nothing live.
func Attempts(claims int32) (first, last int32) {
	if claims < 0 || claims > MaxClaims {
		return 0, 0
	}
	return claims*PerClaim + 1, (claims + 1) * PerClaim
}
