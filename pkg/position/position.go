// Package position packs where a reader of a session stands into one integer.
//
// A position is (step, attempt, n): the session's step number, the attempt at that
// step, and the number of the chunk within the attempt. It comes from the session and
// from nothing else, so a log that was lost, restored or truncated cannot give a known
// position another meaning.
//
//	 52        30 29        19 18          0
//	┌────────────┬────────────┬─────────────┐
//	│ step       │ attempt    │ n           │   below 2^53: exact in JavaScript
//	└────────────┴────────────┴─────────────┘
//
// Within a step, positions order like this:
//
//	(s, 0, 0)               Start: behind step s-1, before everything of step s
//	(s, a, 1) (s, a, 2) …   the chunks of attempt a, as they were shown live
//	(s, Stored, 1) …        the chunks of the step as it is rendered from the database
//	Committed(s)            the chunk step_committed, live and stored
//	Ended(s)-1, Ended(s)    the last chunk and the end of a run that ended with the step
//
// A run that ends outside a step ends behind the attempts of its last claim: see
// OutsideStep. The chunk that says how a run ended always stands one before its end.
//
// Attempts are dealt out by claims, so that no two owners of a run ever use the same
// one: see Attempts.
package position

// The widths of the parts, in bits.
const (
	stepBits    = 23
	attemptBits = 11
	nBits       = 19
)

// The highest values of the parts.
const (
	MaxStep = 1<<stepBits - 1
	MaxN    = 1<<nBits - 1
	// Stored stands in place of an attempt in the positions of a step that is rendered
	// from the database.
	Stored = 1<<attemptBits - 1
	// MaxChunks is how many chunks an attempt may show; its writer shows nothing more
	// behind them until the step is committed.
	MaxChunks = MaxN - 3
)

// PerClaim is how many attempts one claim may use at a step, and MaxClaims the highest
// number of a claim that may use any.
const (
	PerClaim  = 32
	MaxClaims = (Stored-1)/PerClaim - 1
)

// Position is where a reader stands.
type Position struct {
	Step    int32
	Attempt int32
	N       int32
}

// Of unpacks a sequence. A negative one is 0.
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

// Valid reports whether a sequence from outside is one that Position.Sequence can give.
func Valid(sequence int64) bool { return sequence >= 0 && sequence < 1<<(stepBits+attemptBits+nBits) }

// Start is the position before everything of the step.
func Start(step int32) int64 { return Position{Step: step}.Sequence() }

// Committed is the position of the chunk step_committed.
func Committed(step int32) int64 { return Position{step, Stored, MaxN - 2}.Sequence() }

// Ended is the position of the end of a run that ended with the step.
func Ended(step int32) int64 { return Position{step, Stored, MaxN}.Sequence() }

// OutsideStep is the position of the end of a run that ended outside a step, while the
// step was in flight and the session had this number of claims.
func OutsideStep(step, claims int32) int64 {
	_, last := Attempts(min(claims, MaxClaims))
	return Position{step, last, MaxN}.Sequence()
}

// Attempts gives the first and the last attempt at the step in flight that the claim
// may use: claims counts the claims and ends of runs since the last committed step, this
// one included. Both are 0 when no attempts are left: the claim shows nothing live.
func Attempts(claims int32) (first, last int32) {
	if claims < 0 || claims > MaxClaims {
		return 0, 0
	}
	return claims*PerClaim + 1, (claims + 1) * PerClaim
}
