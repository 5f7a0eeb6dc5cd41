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

func (c Call) isOpen() bool { return c.Answer == "" }

// isAwaited reports whether the call holds a suspended session: it is open, and its run
// has not failed.
func (c Call) isAwaited() bool { return c.isOpen() && c.RunID != "" }

// Awaited counts the calls that hold suspended sessions.
func Awaited(calls []Call) (n int) {
	for _, call := range calls {
		if call.isAwaited() {
			n++
		}
	}
	return n
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

// unconsumedCalls returns the session's unconsumed calls as they are after the change.
func (change *Change) unconsumedCalls(v *View) []Call {
	after := map[string]Call{}
	for _, call := range change.Calls {
		after[call.CallID] = call
	}
	var calls []Call
	for _, call := range slices.Concat(v.Calls, change.NewCalls) {
		if changed, ok := after[call.CallID]; ok {
			call = changed
		}
		if call.ConsumedAt == 0 && !change.dropsCall(call) {
			calls = append(calls, call)
		}
	}
	return calls
}

// dropsCall reports whether the change deletes the call.
func (change *Change) dropsCall(call Call) bool {
	rewind := change.Rewind
	return rewind != nil && rewind.CallsFrom > 0 && call.Step >= rewind.CallsFrom || slices.Contains(change.DropCalls, call.CallID)
}

// Unread returns the size in bytes of the unread answers after the change, which a claim of
// the session carries.
func (change *Change) Unread(v *View) (size int) {
	for _, call := range change.unconsumedCalls(v) {
		size += len(call.Response)
	}
	late := map[string]Call{}
	for _, call := range v.Calls {
		late[call.CallID] = call
	}
	for _, call := range change.Calls {
		late[call.CallID] = call
	}
	for _, call := range late {
		if call.LateAt != 0 && !call.Told && !change.dropsCall(call) {
			size += len(call.Late)
		}
	}
	return size
}
