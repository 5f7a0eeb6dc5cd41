package session

import (
	"slices"
	"strings"
)

// beginContinuation begins the run that continues a suspended session. It inherits the message, the turn's start, the
// starter, the author, the trace, the priority, the deadline and the stop of the suspended run. The session has its new
// version already.
func (s *Session) beginContinuation(suspended *Run, runID string, now Millis) *Run {
	s.ResumeCount++
	r := &Run{
		RunID: runID, AgentType: suspended.AgentType, StoredAgent: suspended.StoredAgent,
		Entry: EntryContinuation, MessageID: suspended.MessageID,
		DeadlineAt: suspended.DeadlineAt, Traceparent: suspended.Traceparent, Tracestate: suspended.Tracestate,
		StartedBy: suspended.StartedBy, Author: suspended.Author, Priority: suspended.Priority,
		UserID: s.UserID, CreatedAt: now, Stop: suspended.Stop,
	}
	if s.Suspension != nil && s.Suspension.Tracing != nil && s.Suspension.Tracing.RootSpanID != "" {
		r.Tracestate = linkTrace(r.Tracestate, s.Suspension.Tracing.RootSpanID)
	}
	s.beginRun(r)
	r.TurnMessageCount = suspended.TurnMessageCount
	return r
}

// linkTrace names the span of the suspended run in a trace state, in place of an earlier one. The executor links the spans.
// Source: https://www.w3.org/TR/trace-context/#tracestate-header
func linkTrace(tracestate, spanID string) string {
	const member = "holdfast="
	members := slices.DeleteFunc(strings.Split(tracestate, ","), func(m string) bool {
		return strings.TrimSpace(m) == "" || strings.HasPrefix(strings.TrimSpace(m), member)
	})
	return strings.Join(slices.Insert(members, 0, member+spanID), ",")
}

// beginResume begins a run that resumes an interrupted session, as beginContinuation does.
func (s *Session) beginResume(interrupted *Run, runID string, now Millis) *Run {
	r := s.beginContinuation(interrupted, runID, now)
	r.Entry, r.Stop = EntryResume, nil
	return r
}

// awaitsAny reports whether a suspended session waits for one of its unconsumed calls.
func awaitsAny(calls []Call) bool { return slices.ContainsFunc(calls, Call.isAwaited) }
