package session

import "slices"

// runToUndo returns the run stopped with Undo and ended by the change, or by the suspension before it; nil for none.
func (m *member) runToUndo() *Run {
	if m.change == nil || m.view.Session == nil {
		return nil
	}
	for i := range m.change.Runs {
		r := &m.change.Runs[i]
		if r.RunID == m.view.Session.CurrentRunID && r.Status.Ended() && r.Stop != nil && r.Stop.Undo {
			return r
		}
	}
	if r := m.view.Current; m.view.Session.Status.Suspended() && r != nil && r.Stop != nil && r.Stop.Undo {
		return r
	}
	return nil
}

// undoRun undoes the messages and state writes of the ended run. Messages that Run.UndoKeeps
// stay in their order. Step numbers, usage and consumed answers stay too, so that no approved
// call runs twice. Late answers that the run has reported are reported again, since their
// messages are deleted. before is the last step of earlier runs.
func (change *Change) undoRun(v *View, r *Run, before int32) {
	s := change.Session
	kept := slices.Clone(v.KeptMessages)
	var calls []Call
	consumed := map[int32]bool{}
	for _, call := range change.Calls {
		switch {
		case call.ConsumedStep > v.Session.StepCount: // consumed by the last step
			calls = append(calls, call)
			consumed[call.ConsumedStep] = consumed[call.ConsumedStep] || call.Step <= before
		case call.ConsumedAt != 0 && call.ConsumedStep == 0 && !call.LateReported: // consumed by the end of the run
			calls = append(calls, call)
		}
	}
	for _, m := range change.Messages {
		if r.UndoKeeps(m, func(step int32) bool { return consumed[step] }) {
			kept = append(kept, m)
		}
	}
	from := min(r.StartMessageCount, v.Session.MessageCount)
	change.Rewind = &Rewind{Messages: from, StateVersion: r.StartStateVersion, RunID: r.RunID}
	change.Messages = withOrdinals(kept, from)
	s.MessageCount = from + int64(len(kept))
	change.Checkpoint = nil
	s.resetToCheckpoint(v.FormerCheckpoint)
	if r.StartStateVersion != 0 {
		change.NewState, change.StateWrite = false, nil
		s.restoreState(v.StartState, r.StartStateVersion, r.StartStateBase)
	}
	change.Calls = calls
	change.dropCallsOfRun(v, r.RunID)
	for _, call := range change.unconsumedCalls(v) {
		if call.RunID == r.RunID && !call.isOpen() {
			change.DropCalls = append(change.DropCalls, call.CallID)
		}
	}
	for _, call := range v.ReportedLate {
		if call.Step <= before {
			change.reportAgain(call)
		}
	}
}

// reportAgain marks the late answer of a call as unreported, since the report is undone.
func (change *Change) reportAgain(call Call) {
	call.LateReported, call.LateReportedStep = false, 0
	change.Calls = append(change.Calls, call)
}

// The roles of messages that may survive an undo.
const (
	roleUser = "user"
	roleTool = "tool"
)

// UndoKeeps reports whether the message survives an undo of the run: it belongs to another run,
// was sent to this run, or is the result of an earlier run's call. consumed reports whether the
// step has consumed the answer to such a call.
func (r *Run) UndoKeeps(m Message, consumed func(step int32) bool) bool {
	switch {
	case m.RunID != r.RunID, m.Role == roleUser && m.Step == 0:
		return true
	default:
		return m.Role == roleTool && consumed(m.Step)
	}
}
