package session

import (
	"maps"
	"slices"
)

// beginContinuation begins the run that continues a suspended session. It inherits the
// message, the turn's start, the trace and the deadline of the suspended run. The session has
// its new version already.
func (s *Session) beginContinuation(suspended *Run, runID string, now Millis) *Run {
	s.ResumeCount++
	r := &Run{
		RunID: runID, AgentType: suspended.AgentType, Entry: EntryContinuation, MessageID: suspended.MessageID,
		DeadlineAt: suspended.DeadlineAt, Traceparent: suspended.Traceparent, Tracestate: suspended.Tracestate, CreatedAt: now,
	}
	s.beginRun(r)
	r.TurnMessageCount = suspended.TurnMessageCount
	return r
}

// isWaiting reports whether a suspended session awaits a call or a child.
func (s *Session) isWaiting(calls []Call) bool {
	if slices.ContainsFunc(calls, Call.isAwaited) {
		return true
	}
	for _, child := range s.Suspension.awaitedChildren() {
		if !child.Status.Terminal() {
			return true
		}
	}
	return false
}

// awaitedChildren returns the children of the suspension. s may be nil.
func (s *Suspension) awaitedChildren() map[string]ChildWait {
	if s == nil {
		return nil
	}
	return s.Children
}

// withChildStatus returns a copy of the suspension with the child's new status. It is
// false if the status is known or the child is not awaited.
func (s *Suspension) withChildStatus(childID string, status Status) (*Suspension, bool) {
	wait, waits := s.awaitedChildren()[childID]
	if !waits || wait.Status == status {
		return s, false
	}
	wait.Status = status
	updated := *s
	updated.Children = maps.Clone(s.Children)
	updated.Children[childID] = wait
	return &updated, true
}
