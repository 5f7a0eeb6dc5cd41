package loop

import (
	"slices"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// stopCalls ends the run with the step's work so far. Every call of the model then has a result. Answered calls
// of an earlier step that have not begun are kept for the continuation.
func (e *ends) stopCalls(s Stop) Effect {
	w := e.calls
	if w.answering {
		w.tasks = e.processedCalls()
	}
	outcome := s.Outcome()
	switch {
	case w.answering && len(w.tasks) == 0 && w.planned:
		// An end outside of a step would count planned calls as begun.
		return Commit{Step: e.run.step, Answering: true, Incomplete: true, Outcome: &outcome}
	case w.answering && len(w.tasks) == 0, !w.answering && !hasContent(w.message):
		return Finish{outcome}
	}
	for _, t := range w.tasks {
		switch {
		case t.end == nil && t.Awaits != nil:
			t.fail(errStoppedUnderway)
		case t.end != nil || t.Recorded:
		case t.class == classKnown || t.Tool == nil && t.begun: // unchanged
		case t.begun:
			t.fail(errStoppedUnderway)
		default:
			t.fail(errStopped)
		}
	}
	c := e.commit(w.tasks)
	c.Incomplete = true
	c.Outcome = &outcome
	return c
}

// processedCalls returns the processed calls of an earlier step. With the last of them, it abandons the calls of
// finishing tools.
func (e *ends) processedCalls() []*task {
	kept, open := 0, len(e.answers.pending)
	happened := func(t *task) bool { return t.end != nil || t.Recorded || t.begun }
	for _, t := range e.calls.tasks {
		if happened(t) {
			kept++
			if t.asked != nil {
				open--
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(e.calls.tasks), func(t *task) bool {
		return !happened(t) && (t.asked != nil || kept == 0 || open > 0)
	})
}

// Outcome returns the outcome of a stopped run.
func (s Stop) Outcome() Outcome {
	o := Outcome{Status: StatusFailed, FinishReason: model.FinishError}
	switch s.Kind {
	case StopAbort:
		o.Failure = &Failure{Error: "The run was cancelled.", Detail: "the run was aborted", Code: CodeCancelled}
	case StopDeadline:
		o.Failure = &Failure{
			Error: "The run took longer than it may.", Detail: "the deadline of the run has passed", Code: CodeDeadlineExceeded,
		}
	case StopAgentGone:
		o.Failure = &Failure{
			Error: "The agent of this conversation is not available any more.", Detail: "the agent is gone", Code: CodeAgentGone,
		}
	default:
		return Outcome{Status: StatusInterrupted, FinishReason: model.FinishOther, Reason: s.Reason}
	}
	if s.Reason != "" {
		o.Failure.Detail += ": " + s.Reason
	}
	return o
}
