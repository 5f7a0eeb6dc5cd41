package session

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// checkMayWait gives Conflict (SESSION_BUSY) when the run does not wait for the one that is live:
// its client has decided by what the session was, or nobody has said that it may.
func (c Send) checkMayWait(v *View) error {
	s := v.Session
	if c.Expect.isSet() || c.Seen != "" {
		return sessionBusy(s)
	}
	policy := cmp.Or(c.OnBusy, v.OnBusy)
	if policy == "" && s.Status == Active {
		return &Wider{[]Target{{c.Key, Need{Busy: true}}}}
	}
	if policy == BusyReject {
		return sessionBusy(s)
	}
	if most := int32(c.Limits.Waiting); s.Waiting >= most {
		return fault.New(fault.Exhausted, "TOO_MANY_WAITING",
			"%d runs of session %q wait already, which is the limit; send the message again when one has begun", s.Waiting, c.SessionID)
	}
	return nil
}

// enqueue returns the change after which the run waits, behind those that wait already. The
// answers that it brings are taken now. Of a suspended session the other calls are
// abandoned, and so the first of those that wait begins.
func (c Send) enqueue(v *View) (*Change, Started, error) {
	change := nextChange(v)
	s := change.Session
	policy := cmp.Or(c.OnBusy, v.OnBusy, BusyEnqueue)
	s.Waiting++
	s.UpdatedAt = c.Now
	change.Held = &Held{Messages: c.Messages}
	change.NewRun = c.newRun(s, EntryStart)
	change.NewRun.Turn, change.NewRun.Status, change.NewRun.StartPosition = 0, RunWaiting, 0
	change.NewRun.StartStateVersion, change.NewRun.StartStateBase, change.NewRun.StartMessageCount, change.NewRun.TurnMessageCount = 0, 0, 0, 0
	change.NewRun.OnBusy, change.NewRun.Place = policy, s.Version
	if policy == BusyEnqueue && s.Status == Active {
		if err := c.refuseEarlyAnswers(v); err != nil {
			return nil, Started{}, err
		}
	}
	c.takeAnswers(change, v)
	switch {
	case s.Status.Suspended():
		c.abandonOpenCalls(change, v)
		s.Status, s.Suspension, s.ExpiresAt = Paused, nil, 0
	case policy != BusyEnqueue && v.Live == nil:
		return nil, Started{}, &Wider{[]Target{{c.Key, Need{Open: true}}}}
	case policy != BusyEnqueue:
		live := *v.Live
		live.addStop(Stop{Kind: StopInterrupt, Reason: fmt.Sprintf("superseded by run %s", c.RunID), At: c.Now, Undo: policy == BusyRollback})
		change.Runs = []Run{live}
	}
	started := change.started()
	started.Waiting = true
	return change, started, nil
}

// endWaitingRun ends a run that waits: its messages are never appended. The session's position
// stays: the run has shown nothing, and another one may be at work.
func (change *Change) endWaitingRun(r Run, o Outcome, now Millis) {
	change.Session.Waiting--
	r.Status, r.Outcome = o.Status, o
	r.CompletedAt = now
	r.FinishVersion = change.Session.Version
	r.StartPosition, r.EndPosition = change.Session.Position, change.Session.Position
	change.Runs = append(change.Runs, r)
	change.Unheld = append(change.Unheld, r.RunID)
}

// startWaitingRun lets the first of the runs that wait begin, when the session has come
// to an end that is no suspension, whatever ended it. When the session was failed
// or given up from outside, all of them end with it.
//
// It reports false when it has to see more first.
func (s *propagation) startWaitingRun(m *member) (seen bool) {
	after := m.after()
	if after == nil || after.Waiting == 0 || after.Status == Active || after.Status.Suspended() {
		return true
	}
	undone := m.runToUndo()
	need := Need{Waiting: true, Calls: true, Undo: undone != nil}
	if len(m.view.Waiting) == 0 || !m.target.Need.Calls || need.Undo && !m.target.Need.Undo {
		s.missing.add(Target{m.target.Key, need})
		return false
	}
	after = m.touch(s.Now)
	if m.change.endWaiting {
		m.endWaitingRuns(s.Now)
		return true
	}
	after.Version++ // of its own: what the ended run has left is the version before
	if undone != nil && slices.ContainsFunc(m.view.Waiting, func(w Waiting) bool { return w.OnBusy == BusyRollback }) {
		before := m.view.Session.StepCount - undone.StepCount
		if undone.FinishStep > 0 {
			before++ // the step that ends the run counts in undone alone
		}
		m.change.undoRun(m.view, undone, before)
	}
	m.abandonOpenCalls(s.Abandon, s.Now)
	m.beginFirstWaiting(s.Now)
	return true
}

func (m *member) endWaitingRuns(now Millis) {
	s := m.touch(now)
	for _, w := range m.view.Waiting {
		m.change.endWaitingRun(w.Run, Outcome{Status: RunFailed, Failure: s.Failure}, now)
	}
}

// abandonOpenCalls answers the calls of the session that are open. A run that begins with
// open calls would be suspended again before it has read its messages.
func (m *member) abandonOpenCalls(answer func(Call) []byte, now Millis) {
	if answer == nil {
		return
	}
	for _, call := range m.change.unconsumedCalls(m.view) {
		if call.isOpen() {
			m.change.putCall(call.withAnswer(AnswerAbandoned, answer(call), now))
		}
	}
}

// putCall writes a call of the session, in the place of what the change has of it.
func (change *Change) putCall(call Call) {
	for _, calls := range [][]Call{change.NewCalls, change.Calls} {
		if i := slices.IndexFunc(calls, func(c Call) bool { return c.CallID == call.CallID }); i >= 0 {
			calls[i] = call
			return
		}
	}
	change.Calls = append(change.Calls, call)
}

// beginFirstWaiting makes the first of the runs that wait the session's newest.
func (m *member) beginFirstWaiting(now Millis) {
	change, s := m.change, m.change.Session
	r := m.view.Waiting[0].Run
	s.Waiting--
	s.beginTurn(now)
	r.StartMessageCount, r.TurnMessageCount = s.MessageCount, s.MessageCount
	change.appendMessages(m.view.Held.Messages)
	r.Status, r.Turn, r.StartPosition = RunQueued, s.Turn, s.Position
	r.StartStateVersion, r.StartStateBase = s.StateVersion, s.StateBase
	s.CurrentRunID = r.RunID
	change.Begun = &r
	change.Unheld = append(change.Unheld, r.RunID)
}

// beginTurn makes the session active in its next turn.
func (s *Session) beginTurn(now Millis) {
	s.Status = Active
	s.Turn++
	s.Output, s.Failure = "", nil
	s.Suspension, s.Interruption = nil, nil
	s.UpdatedAt = now
	s.ExpiresAt = 0
}

// appendMessages puts messages behind the conversation as it is after the change.
func (change *Change) appendMessages(messages []Message) {
	s := change.Session
	change.Messages = append(change.Messages, withOrdinals(messages, s.MessageCount)...)
	s.MessageCount += int64(len(messages))
}
