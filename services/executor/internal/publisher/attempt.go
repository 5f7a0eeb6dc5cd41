package publisher

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// attempt is the step in flight and the current attempt to show it.
type attempt struct {
	step   int32
	after  int64 // the session's position: everything behind it is void
	claims int32
	number int32
	first  int32 // the range of usable numbers
	last   int32
	reason string

	begun     bool // its start is queued or was sent
	exhausted bool // no attempt remains: nothing is streamed until the commit
	partial   bool // the live log lacks a part of the step
	sent      []*eventv1.Chunk
	record    step.Recorder
}

// newAttempt returns the first attempt of a claim at a step.
func newAttempt(number int32, after int64, claims int32) attempt {
	a := attempt{step: number, after: after, claims: claims, record: step.Recorder{Step: number}}
	a.first, a.last = position.Attempts(claims)
	a.number = a.first
	a.exhausted = a.number == 0
	return a
}

func (a *attempt) start(runID string) entry {
	return entry{step: a.step, attempt: a.number, start: &streamv2.Attempt{Stands: a.after, RunId: runID, Reason: a.reason}}
}

func (a *attempt) boundary(sequence int64, b *streamv2.Boundary) entry {
	return entry{
		step: a.step, attempt: a.number, partial: a.partial || a.exhausted || !a.begun,
		boundary: &streamv2.Record{Sequence: sequence, Boundary: b},
	}
}

// retain keeps chunks that the log has stored, for a later attempt.
func (a *attempt) retain(chunks []*eventv1.Chunk) {
	for _, chunk := range chunks {
		if last := len(a.sent) - 1; last < 0 || !merge(a.sent[last], chunk, maxMerged) {
			a.sent = append(a.sent, chunk)
		}
	}
}
