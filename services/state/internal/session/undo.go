package session

import "slices"

// runToUndo returns the run that ends with what is to be written and is to be
// taken back; nil for none.
func (m *member) runToUndo() *Run {
	if m.change == nil || m.view.Session == nil {
		return nil
	}
	for i := range m.change.Runs {
		r := &m.change.Runs[i]
		if r.RunID == m.view.Session.CurrentRunID && r.Status.Over() && r.Stop != nil && r.Stop.Undo {
			return r
		}
	}
	return nil
}

// undoRun takes back what the ended run has appended and written; Run.Spares says
// which messages stay, in their order. So do the numbers of its steps and its usage,
// and the answers that it has consumed: a call that was approved has run, and does not
// run again. Late answers that it has told of are to be told once more, since nothing
// in the conversation does.
//
// before is the last step of former runs.
func (change *Change) undoRun(v *View, r *Run, before int32) {
	s := change.Session
	kept := slices.Clone(v.Kept)
	var calls []Call
	took := map[int32]bool{}
	for _, call := range change.Calls {
		switch {
		case call.ConsumedStep > v.Session.StepCount: // the step that ends the run has consumed it
			calls = append(calls, call)
			took[call.ConsumedStep] = took[call.ConsumedStep] || call.Step <= before
		case call.ConsumedAt != 0 && call.ConsumedStep == 0 && !call.Told: // the end of the run has
			calls = append(calls, call)
		}
	}
	for _, m := range change.Messages {
		if r.Spares(m, func(step int32) bool { return took[step] }) {
			kept = append(kept, m)
		}
	}
	from := min(r.StartMessageCount, v.Session.MessageCount)
	change.Rewind = &Rewind{Messages: from, StateVersion: r.StartStateVersion, RunID: r.RunID}
	change.Messages = withOrdinals(kept, from)
	s.MessageCount = from + int64(len(kept))
	change.Checkpoint = nil
	s.resetToCheckpoint(v.Former)
	if r.StartStateVersion != 0 {
		change.NewState, change.StateWrite = false, nil
		s.State, s.StateVersion, s.StateBase = v.StartState, r.StartStateVersion, r.StartStateBase
		s.StateWrites, s.StateBytes = maxStateWrites, 0 // as after a rewind
	}
	change.Calls = calls
	change.dropCallsOfRun(v, r.RunID)
	for _, call := range v.Told {
		if call.Step <= before {
			call.Told, call.ToldStep = false, 0
			change.Calls = append(change.Calls, call)
		}
	}
}

// The roles of the messages that may stay when their run is taken back.
const (
	roleUser = "user"
	roleTool = "tool"
)

// Spares reports whether the message stays in the conversation when the run is
// taken back: it came from elsewhere, or it was sent to the run, or it is the result of
// a call of a former run, which stands. took says whether the step has consumed the
// answer to such a call; its other messages of the runtime's own go.
func (r *Run) Spares(m Message, took func(step int32) bool) bool {
	switch {
	case m.RunID != r.RunID, m.Role == roleUser && m.Step == 0:
		return true
	default:
		return m.Role == roleTool && took(m.Step)
	}
}
