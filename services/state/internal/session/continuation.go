package session

import (
	"maps"
	"slices"
)

// beginContinuation begins the continuation of a suspended session: another run, which
// writes on at the same message and belongs to the same trace and the same turn as
// the one that suspended, and has its deadline. The version is the caller's to raise.
func (s *Session) beginContinuation(suspended *Run, runID string, now Millis) *Run {
	s.Status = Active
	s.Turn++
	s.ResumeCount++
	s.CurrentRunID = runID
	s.Suspension = nil
	s.Output, s.Failure = "", nil
	s.ExpiresAt = 0
	s.UpdatedAt = now
	return &Run{
		RunID: runID, AgentType: suspended.AgentType, Turn: s.Turn, Status: RunQueued, Entry: EntryContinuation,
		MessageID: suspended.MessageID, StartPosition: s.Position,
		StartMessageCount: s.MessageCount, StartStateVersion: s.StateVersion, StartStateBase: s.StateBase,
		TurnMessageCount: suspended.TurnMessageCount, DeadlineAt: suspended.DeadlineAt,
		Traceparent: suspended.Traceparent, Tracestate: suspended.Tracestate, CreatedAt: now,
	}
}

// isWaiting reports whether a suspended session has something left to wait for:
// one of the calls that is awaited, or a child that has not ended.
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

// isAwaited reports whether the call keeps a suspended session from going on: it
// is open, and no failure has made an orphan of it.
func (c Call) isAwaited() bool { return c.isOpen() && c.RunID != "" }

// Awaited counts the calls that sessions wait for.
func Awaited(calls []Call) (n int) {
	for _, call := range calls {
		if call.isAwaited() {
			n++
		}
	}
	return n
}

// awaitedChildren returns the children that the suspension waits for; of no
// suspension none.
func (s *Suspension) awaitedChildren() map[string]ChildWait {
	if s == nil {
		return nil
	}
	return s.Children
}

// withChildStatus returns a copy of the suspension that knows a child's new status, and
// false when it knows it already or does not wait for the child.
func (s *Suspension) withChildStatus(childID string, status Status) (*Suspension, bool) {
	wait, waits := s.awaitedChildren()[childID]
	if !waits || wait.Status == status {
		return s, false
	}
	wait.Status = status
	told := *s
	told.Children = maps.Clone(s.Children)
	told.Children[childID] = wait
	return &told, true
}

// unconsumedCalls returns the calls of the session that no step has taken, as they are
// after the change. The view shows them as they are before it.
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

// dropsCall reports whether the call goes away with the change.
func (change *Change) dropsCall(call Call) bool {
	back := change.Rewind
	return back != nil && back.CallsFrom > 0 && call.Step >= back.CallsFrom || slices.Contains(change.DropCalls, call.CallID)
}

// Unread returns how many bytes of answers whoever continues the session is handed
// after the change.
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
