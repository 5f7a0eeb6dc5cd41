package session

import "slices"

// beginContinuation begins the run that continues a suspended session. It inherits the message, the turn's start, the
// starter, the author, the trace, the priority, the deadline and the stop of the suspended run. The session has its new
// version already.
func (s *Session) beginContinuation(suspended *Run, runID string, now Millis) *Run {
	s.ResumeCount++
	r := &Run{
		RunID: runID, AgentType: suspended.AgentType, StoredAgent: suspended.StoredAgent, Entry: EntryContinuation, MessageID: suspended.MessageID,
		DeadlineAt: suspended.DeadlineAt, Traceparent: suspended.Traceparent, Tracestate: suspended.Tracestate,
		StartedBy: suspended.StartedBy, Author: suspended.Author, Priority: suspended.Priority,
		UserID: s.UserID, CreatedAt: now, Stop: suspended.Stop,
	}
	s.beginRun(r)
	r.TurnMessageCount = suspended.TurnMessageCount
	return r
}

// beginResume begins a run that resumes an interrupted session, as beginContinuation does.
func (s *Session) beginResume(interrupted *Run, runID string, now Millis) *Run {
	r := s.beginContinuation(interrupted, runID, now)
	r.Entry, r.Stop = EntryResume, nil
	return r
}

// awaitsAny reports whether a suspended session waits for one of its unconsumed calls.
func awaitsAny(calls []Call) bool { return slices.ContainsFunc(calls, Call.isAwaited) }
