package postgres

import (
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// check returns an error for a change with a row that the commands of package session never write. PostgreSQL would parse
// a CHECK constraint anew for each statement that writes its table.
func check(c *session.Change) error {
	for i := range c.Audit { // a deletion writes these rows alone
		if e := &c.Audit[i]; e.ID == "" || e.Action == "" {
			return fmt.Errorf("the row of an audit event breaks a rule: id %q, action %q", e.ID, e.Action)
		}
	}
	for i := range c.Events {
		if e := &c.Events[i]; e.ID == "" || e.Kind == "" {
			return fmt.Errorf("the row of an event breaks a rule: id %q, kind %q", e.ID, e.Kind)
		}
	}
	if c.Delete {
		return nil
	}
	if s := c.Session; s != nil && !isValidSession(s) { // no text of a user in an error
		return fmt.Errorf("the row of session %q breaks a rule: status %q, version %d, turn %d", s.SessionID, s.Status, s.Version, s.Turn)
	}
	for i := range c.Runs {
		if err := checkRun(&c.Runs[i]); err != nil {
			return err
		}
	}
	for _, r := range [...]*session.Run{c.Dequeued, c.NewRun} {
		if err := checkRun(r); err != nil {
			return err
		}
	}
	for i := range c.Messages {
		if m := &c.Messages[i]; m.ID == "" || m.Ordinal < 0 {
			return fmt.Errorf("the row of a message breaks a rule: id %q, ordinal %d", m.ID, m.Ordinal)
		}
	}
	if r := c.Result; r != nil && (r.CallID == "" || c.ResultAt < 0) {
		return fmt.Errorf("the row of a result breaks a rule: call %q, position %d", r.CallID, c.ResultAt)
	}
	if p := c.Checkpoint; p != nil && (p.ID == "" || p.Step < 1) {
		return fmt.Errorf("the row of a checkpoint breaks a rule: id %q, step %d", p.ID, p.Step)
	}
	for _, calls := range [][]session.Call{c.NewCalls, c.Calls} {
		for i := range calls {
			if !isValidCall(&calls[i]) {
				return fmt.Errorf("the row of call %q breaks a rule: kind %q, answer %q", calls[i].CallID, calls[i].Kind, calls[i].Answer)
			}
		}
	}
	return nil
}

func isValidSession(s *session.Session) bool {
	switch s.Status {
	case session.Active, session.Completed, session.Failed, session.Interrupted, session.Paused,
		session.SuspendedClientTool, session.SuspendedAwaitingChildren, session.SuspendedStepPartial:
	default:
		return false
	}
	return s.Tenant != "" && s.SessionID != "" && s.AgentType != "" && s.RootID != "" &&
		1 <= s.StateBase && s.StateBase <= s.StateVersion && s.StateVersion <= s.Version &&
		min(s.Epoch, s.MessageCount, s.Position) >= 0 && min(s.Turn, s.StepCount, s.Claims, s.Waiting) >= 0
}

// checkRun accepts nil.
func checkRun(r *session.Run) error {
	if r == nil || isValidRun(r) {
		return nil
	}
	return fmt.Errorf("the row of run %q breaks a rule: status %q, turn %d, executor %q", r.RunID, r.Status, r.Turn, r.ExecutorID)
}

func isValidRun(r *session.Run) bool {
	switch r.OnBusy {
	case "", session.BusyReject, session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback:
	default:
		return false
	}
	placed := true // in a turn, or in the queue of its session
	switch r.Status {
	case session.RunWaiting:
		placed = r.Turn == 0 && r.QueuePlace >= 1
	case session.RunQueued, session.RunRunning:
		placed = r.Turn >= 1
	case session.RunCompleted, session.RunFailed, session.RunInterrupted,
		session.RunSuspendedClientTool, session.RunSuspendedAwaitingChildren, session.RunSuspendedStepPartial:
	default:
		return false
	}
	return placed && r.RunID != "" && min(r.Turn, r.StepCount) >= 0 && (r.Status == session.RunRunning) == (r.ExecutorID != "")
}

func isValidCall(c *session.Call) bool {
	switch c.Kind {
	case session.ClientTool, session.Approval, session.SubAgent, session.Callback:
	default:
		return false
	}
	switch c.Answer {
	case "", session.AnswerClient, session.AnswerTimeout, session.AnswerAbandoned, session.AnswerChild:
	default:
		return false
	}
	return c.CallID != "" && c.SessionID != "" && (c.Approvers == session.ApproversAny || c.Approvers == session.ApproversOthers)
}
