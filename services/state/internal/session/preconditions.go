package session

import (
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// ClaimRef names a claimed run and the epoch of its claim. Every command of an executor has one
// and gives its faults: NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND), Stale (EPOCH_STALE,
// RUN_FINISHED).
type ClaimRef struct {
	Key
	RunID string
	Epoch int64
}

// checkExists gives NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
func (r ClaimRef) checkExists(v *View) error {
	if v.Session == nil {
		return SessionNotFound(r.Key)
	}
	if v.Run == nil {
		return RunNotFound(r.RunID)
	}
	return nil
}

// checkOwner gives the faults of checkExists, and Stale (EPOCH_STALE) if the claim does not
// own the session. The run may have ended.
func (r ClaimRef) checkOwner(v *View) error {
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

// hasEndedRun reports whether this claim was the run's last and the run has ended. Such a
// claim may repeat the end of its run even after the next run was claimed.
func (r ClaimRef) hasEndedRun(v *View) bool {
	return v.Session != nil && v.Run != nil && v.Run.Status.Ended() && v.Run.Epoch == r.Epoch && r.Epoch != 0
}

// checkRunning gives the faults of checkOwner, and Stale (RUN_FINISHED) if the run has ended.
func (r ClaimRef) checkRunning(v *View) error {
	if err := r.checkOwner(v); err != nil {
		return err
	}
	if !v.Run.Status.Live() {
		return runFinished(v.Run)
	}
	return nil
}

// CheckHeld gives Stale (EPOCH_STALE) unless the claim is the last one of the session's newest run, and Stale
// (RUN_FINISHED) if that run has ended, by whomever.
func (r ClaimRef) CheckHeld(s *Session, newest *Run) error {
	if newest == nil || newest.RunID != r.RunID {
		return fault.New(fault.Stale, "EPOCH_STALE", "run %q is not the newest run of its session; stop working on it", r.RunID)
	}
	if newest.Status.Ended() {
		return runFinished(newest)
	}
	return r.checkRunning(&View{Session: s, Run: newest})
}

func runFinished(r *Run) error {
	return fault.New(fault.Stale, "RUN_FINISHED", "run %q has ended (%s) and accepts no more writes", r.RunID, r.Status)
}

// SessionNotFound is the fault for an unknown session.
func SessionNotFound(k Key) error {
	return fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", k.SessionID)
}

// checkVersion gives Stale (VERSION_STALE) if the session has another version. 0 means any.
func (s *Session) checkVersion(expected int64) error {
	if expected == 0 || expected == s.Version {
		return nil
	}
	return fault.New(fault.Stale, "VERSION_STALE",
		"session %q is at version %d, not %d; read it again and decide anew", s.SessionID, s.Version, expected).
		With("currentVersion", strconv.FormatInt(s.Version, 10)).
		With("sessionId", s.SessionID)
}

// checkSession gives NotFound (SESSION_NOT_FOUND), and the faults of checkVersion.
func (k Key) checkSession(v *View, version int64) error {
	if v.Session == nil {
		return SessionNotFound(k)
	}
	return v.Session.checkVersion(version)
}

// checkIdle gives NotFound (SESSION_NOT_FOUND), and Conflict (SESSION_BUSY) while a run is
// live. It needs View.Live.
func (k Key) checkIdle(v *View) error {
	if v.Session == nil {
		return SessionNotFound(k)
	}
	if v.Live != nil || v.Session.Status == Active {
		return sessionBusy(v.Session)
	}
	return nil
}

// conflict returns a fault with the status of the session in its metadata.
func (s *Session) conflict(reason, format string, args ...any) *fault.Fault {
	return s.describeIn(fault.New(fault.Conflict, reason, format, args...))
}

// describeIn adds to the metadata of the fault the status of the session. A nil session adds nothing.
func (s *Session) describeIn(f *fault.Fault) *fault.Fault {
	if s == nil {
		return f
	}
	return f.With("currentStatus", string(s.Status)).With("currentRunId", s.CurrentRunID)
}

func sessionBusy(s *Session) error {
	return s.conflict("SESSION_BUSY", "run %q of session %q has not ended; wait for its end or interrupt it", s.CurrentRunID, s.SessionID)
}

// CallNotFound is the fault for an unknown call.
func CallNotFound(callID string) error {
	return fault.New(fault.NotFound, "UNKNOWN_TOOL_CALL", "there is no call %q", callID)
}

// RunNotFound is the fault for an unknown run.
func RunNotFound(runID string) error {
	return fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run %q", runID)
}

// checkStep gives Stale (STEP_STALE) if step is not the step in flight.
func checkStep(v *View, step int32) error {
	if next := v.Session.StepCount + 1; step != next {
		return fault.New(fault.Stale, "STEP_STALE", "step %d is not the step in flight, %d", step, next)
	}
	return nil
}
