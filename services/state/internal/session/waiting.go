package session

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// checkMayWait gives Conflict (SESSION_BUSY) if the run may not wait: the request expects a
// certain session, or the policy rejects it. Exhausted (TOO_MANY_WAITING) at the limit.
func (c Send) checkMayWait(v *View, busy bool) error {
	s := v.Session
	if c.Expect.isSet() || c.LastSeenRunID != "" {
		return sessionBusy(s)
	}
	if busy {
		policy, err := c.busyPolicy(v)
		if err != nil {
			return err
		}
		if policy == BusyReject {
			return sessionBusy(s)
		}
	} else if c.OnBusy == BusyReject {
		return sessionBusy(s)
	}
	if most := int32(c.Limits.Waiting); s.Waiting >= most {
		return fault.New(fault.Exhausted, "TOO_MANY_WAITING",
			"%d runs of session %q wait already, which is the limit; send the message again after one has begun", s.Waiting, c.SessionID)
	}
	return nil
}

// busyPolicy returns the policy for a busy session. It gives an IncompleteViewError to
// see the agent's.
func (c RunRequest) busyPolicy(v *View) (BusyPolicy, error) {
	switch {
	case c.OnBusy != "":
		return c.OnBusy, nil
	case v.OwnAgent == nil:
		return "", &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{OwnAgent: true}}}}
	default:
		return cmp.Or(v.OwnAgent.OnBusy, c.DefaultOnBusy, BusyReject), nil
	}
}

// findWaitingRun returns the index in View.Waiting of the run that waits with the message; -1 for
// none. It gives an IncompleteViewError to see the waiting runs.
func (c RunRequest) findWaitingRun(v *View, messageID string) (int, error) {
	switch {
	case v.Session == nil || v.Session.Waiting == 0:
		return -1, nil
	case len(v.Waiting) == 0:
		return -1, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{Waiting: true}}}}
	}
	return slices.IndexFunc(v.Waiting, func(w WaitingRun) bool { return slices.Contains(w.MessageIDs, messageID) }), nil
}

// enqueue returns the change that appends the run to the waiting ones. It applies the answers
// of the request at once. In a suspended session it abandons the other calls, except for those that
// children at work answer. Without such calls the first waiting run begins.
func (c Send) enqueue(v *View, atWork map[string]bool) (*Change, Started, error) {
	s := v.nextVersion(c.Now)
	change := &Change{Session: s}
	policy := cmp.Or(c.OnBusy, BusyEnqueue)
	if s.Status == Active || len(atWork) > 0 {
		var err error
		if policy, err = c.busyPolicy(v); err != nil {
			return nil, Started{}, err
		}
	}
	s.Waiting++
	change.WaitingInput = &RunInput{Messages: c.Messages}
	change.NewRun = c.newRun(s, v, EntryStart)
	change.NewRun.Status, change.NewRun.OnBusy, change.NewRun.QueuePlace = RunWaiting, policy, s.Version
	if policy == BusyEnqueue && s.Status == Active {
		if err := c.refuseEarlyAnswers(v); err != nil {
			return nil, Started{}, err
		}
	}
	if err := c.takeAnswers(change, v); err != nil {
		return nil, Started{}, err
	}
	stop := Stop{Kind: StopInterrupt, Reason: fmt.Sprintf("superseded by run %s", c.RunID), At: c.Now, Undo: policy == BusyRollback}
	switch {
	case len(atWork) > 0:
		change.abandonOpenCalls(v, c.abandonExcept(atWork), c.Now)
		if policy == BusyEnqueue {
			break
		}
		if v.Current == nil {
			return nil, Started{}, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{Current: true}}}}
		}
		change.stopWork(v, stop)
	case s.Status.Suspended():
		change.abandonOpenCalls(v, c.Abandon, c.Now)
		s.Status, s.Suspension, s.ExpiresAt = Paused, nil, 0
	case policy != BusyEnqueue && v.Live == nil:
		return nil, Started{}, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{Live: true}}}}
	case policy != BusyEnqueue:
		live := *v.Live
		live.addStop(stop)
		change.Runs = []Run{live}
	}
	started := change.started()
	started.Waiting = true
	return change, started, nil
}

// abandonExcept returns Abandon for all but these calls.
func (c Send) abandonExcept(calls map[string]bool) func(Call) []byte {
	if c.Abandon == nil {
		return nil
	}
	return func(call Call) []byte {
		if calls[call.CallID] {
			return nil
		}
		return c.Abandon(call)
	}
}

// endWaitingRun ends a run before it began. Its messages are dropped. The session's position
// stays, since another run may be live.
func (change *Change) endWaitingRun(r Run, o Outcome, now Millis) {
	change.Session.Waiting--
	r.Status, r.Outcome = o.Status, o
	r.CompletedAt = now
	r.FinishVersion = change.Session.Version
	r.StartPosition, r.EndPosition = change.Session.Position, change.Session.Position
	change.Runs = append(change.Runs, r)
	change.DropInputs = append(change.DropInputs, r.RunID)
}

// startWaitingRun begins the first waiting run if the member's work ends without a
// suspension. If the session was failed from outside, it ends all waiting runs instead. It
// reports false if more rows are needed.
func (s *propagation) startWaitingRun(m *member) (complete bool) {
	after := m.after()
	if after == nil || after.Waiting == 0 || after.Status == Active || after.Status.Suspended() {
		return true
	}
	undone := m.runToUndo()
	need := Need{Waiting: true, Calls: true, Undo: undone != nil}
	if len(m.view.Waiting) == 0 || !m.target.Need.Calls || need.Undo && !m.target.Need.Undo {
		s.missing.add(Target{Key: m.target.Key, Need: need})
		return false
	}
	after = m.touch(s.Now)
	if m.change.endWaiting {
		for _, w := range m.view.Waiting {
			m.change.endWaitingRun(w.Run, Outcome{Status: RunFailed, Failure: after.Failure}, s.Now)
		}
		return true
	}
	after.Version++ // the ended run has the version before
	if undone != nil && slices.ContainsFunc(m.view.Waiting, func(w WaitingRun) bool { return w.OnBusy == BusyRollback }) {
		counted := m.view.Session.StepCount - undone.StepCount
		if undone.FinishStep > m.view.Session.StepCount {
			counted++ // the last step counts for the run, but not yet for the session
		}
		m.change.undoRun(m.view, undone, undone.stepBefore(counted))
	}
	m.change.abandonOpenCalls(m.view, s.Abandon, s.Now) // they would suspend the run at once
	first := m.view.Waiting[0].Run
	after.Waiting--
	after.beginRun(&first)
	m.change.appendMessages(m.view.WaitingInput.Messages)
	m.change.Dequeued = &first
	m.change.DropInputs = append(m.change.DropInputs, first.RunID)
	return true
}
