package session

import (
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Ref names a claimed run and the epoch of its claim.
type Ref struct {
	Key
	RunID string
	Epoch int64
}

// checkExists gives NotFound (SESSION_NOT_FOUND) or (RUN_NOT_FOUND) when the view
// lacks what the reference names.
func (r Ref) checkExists(v *View) error {
	if v.Session == nil {
		return NoSession(r.Key)
	}
	if v.Run == nil {
		return NoRun(r.RunID)
	}
	return nil
}

// checkOwner gives Stale (EPOCH_STALE) when the claim is not, or no longer, the one
// that owns the session, and what found gives. The run may have finished.
func (r Ref) checkOwner(v *View) error {
	if err := r.checkExists(v); err != nil {
		return err
	}
	if r.Epoch != v.Session.Epoch || r.Epoch != v.Run.Epoch {
		return fault.New(fault.Stale, "EPOCH_STALE",
			"epoch %d does not own run %q: the session's epoch is %d; stop working on the run", r.Epoch, r.RunID, v.Session.Epoch)
	}
	if v.Run.Status == RunQueued || v.Run.Status == RunWaiting {
		return fault.New(fault.Stale, "EPOCH_STALE",
			"run %q is %s: the claim of epoch %d was released or taken away; stop working on the run", r.RunID, v.Run.Status, r.Epoch)
	}
	return nil
}

// hasEndedRun reports whether the run has ended and this claim was its last. Then it has
// written the run's end, and may repeat that even though the session's next run was
// claimed since.
func (r Ref) hasEndedRun(v *View) bool {
	return v.Session != nil && v.Run != nil && v.Run.Status.Over() && v.Run.Epoch == r.Epoch && r.Epoch != 0
}

// checkRunning gives what owns gives, and Stale (RUN_FINISHED) when the run is over.
func (r Ref) checkRunning(v *View) error {
	if err := r.checkOwner(v); err != nil {
		return err
	}
	if !v.Run.Status.Live() {
		return runFinished(v.Run)
	}
	return nil
}

func runFinished(r *Run) error {
	return fault.New(fault.Stale, "RUN_FINISHED", "run %q has finished (%s) and takes no more writes", r.RunID, r.Status)
}

// NoSession is the fault for a session that does not exist.
func NoSession(k Key) error {
	return fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", k.SessionID)
}

// checkVersion gives Stale (VERSION_STALE) when the session does not have the
// version that the caller has read. 0 fits every version.
func (s *Session) checkVersion(expected int64) error {
	if expected == 0 || expected == s.Version {
		return nil
	}
	return fault.New(fault.Stale, "VERSION_STALE",
		"session %q is at version %d, not %d; read it again and decide anew", s.SessionID, s.Version, expected).
		With("currentVersion", strconv.FormatInt(s.Version, 10)).
		With("sessionId", s.SessionID)
}

// checkSession gives NotFound (SESSION_NOT_FOUND), and what versioned gives.
func (k Key) checkSession(v *View, version int64) error {
	if v.Session == nil {
		return NoSession(k)
	}
	return v.Session.checkVersion(version)
}

// checkIdle gives NotFound (SESSION_NOT_FOUND), and Conflict (SESSION_BUSY) while a
// run is live. The view shows the open runs.
func (k Key) checkIdle(v *View) error {
	if v.Session == nil {
		return NoSession(k)
	}
	if v.Live != nil || v.Session.Status == Active {
		return sessionBusy(v.Session)
	}
	return nil
}

func sessionBusy(s *Session) error {
	return fault.New(fault.Conflict, "SESSION_BUSY", "run %q of session %q is not over; wait for its end or interrupt it", s.CurrentRunID, s.SessionID)
}

// NoCall is the fault for a call that the session does not have.
func NoCall(callID string) error {
	return fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "no call %q waits, or has waited, for an answer here", callID)
}

// NoRun is the fault for a run that its session does not have.
func NoRun(runID string) error {
	return fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run %q", runID)
}

// checkStep gives Stale (STEP_STALE) when step is not the session's next.
func checkStep(v *View, step int32) error {
	if next := v.Session.StepCount + 1; step != next {
		return fault.New(fault.Stale, "STEP_STALE", "step %d is not the step in flight, which is %d", step, next)
	}
	return nil
}
