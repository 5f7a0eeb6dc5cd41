package memory

import (
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var statuses = []session.Status{
	session.Active, session.Completed, session.Failed, session.Interrupted, session.Paused,
	session.SuspendedClientTool, session.SuspendedAwaitingChildren, session.SuspendedStepPartial,
}

var runStatuses = []session.RunStatus{
	session.RunWaiting, session.RunQueued, session.RunRunning, session.RunCompleted, session.RunFailed, session.RunInterrupted,
	session.RunSuspendedClientTool, session.RunSuspendedAwaitingChildren, session.RunSuspendedStepPartial,
}

func validSession(key session.Key, s *session.Session) error {
	switch {
	case s.Key != key, s.SessionID == "", s.Tenant == "", s.AgentType == "", s.RootID == "":
		return fmt.Errorf("the row names session %q of tenant %q, agent %q, root %q", s.SessionID, s.Tenant, s.AgentType, s.RootID)
	case !slices.Contains(statuses, s.Status):
		return fmt.Errorf("the session's status is %q", s.Status)
	case s.Waiting < 0, s.Version < 1, s.Epoch < 0, s.Turn < 0, s.StepCount < 0, s.MessageCount < 0, s.Children < 0, s.UsageCount < 0, s.ResumeCount < 0:
		return fmt.Errorf("a count of the session is too low: %+v", s)
	case s.Position < 0, s.Claims < 0:
		return fmt.Errorf("the session stands at %d with %d claims", s.Position, s.Claims)
	case s.StateBase < 1, s.StateBase > s.StateVersion, s.StateVersion > s.Version:
		return fmt.Errorf("the state is of version %d and its base of %d in the session's version %d", s.StateVersion, s.StateBase, s.Version)
	}
	return nil
}

func validRun(r *session.Run) error {
	switch {
	case r.RunID == "", r.Turn < 0, r.Turn == 0 && r.Status.Live(), r.StepCount < 0, !slices.Contains(runStatuses, r.Status):
		return fmt.Errorf("run %q of turn %d has the status %q", r.RunID, r.Turn, r.Status)
	case !slices.Contains([]session.BusyPolicy{"", session.BusyReject, session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback}, r.OnBusy):
		return fmt.Errorf("run %q has the policy %q", r.RunID, r.OnBusy)
	case r.Status == session.RunWaiting && (r.Turn > 0 || r.Place < 1):
		return fmt.Errorf("run %q waits in turn %d at the place %d", r.RunID, r.Turn, r.Place)
	case (r.Status == session.RunRunning) != (r.ExecutorID != ""):
		return fmt.Errorf("run %q is %s and held by %q", r.RunID, r.Status, r.ExecutorID)
	}
	return nil
}

func validCall(owner session.Key, c *session.Call) error {
	switch {
	case c.CallID == "", c.SessionID != owner.SessionID:
		return fmt.Errorf("call %q names session %q", c.CallID, c.SessionID)
	case c.Kind != session.ClientTool && c.Kind != session.Approval:
		return fmt.Errorf("call %q is of the kind %q", c.CallID, c.Kind)
	case !slices.Contains([]session.AnswerKind{"", session.AnswerClient, session.AnswerTimeout, session.AnswerAbandoned}, c.Answer):
		return fmt.Errorf("call %q has the answer %q", c.CallID, c.Answer)
	}
	return nil
}

func validChild(c *session.Child) error {
	if c.SessionID == "" || c.Mode != session.Ephemeral && c.Mode != session.Persistent || c.Location != session.Local && c.Location != session.Remote {
		return fmt.Errorf("child %q is %q and %q", c.SessionID, c.Mode, c.Location)
	}
	return nil
}
