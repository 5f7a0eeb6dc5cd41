package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Ref names a claimed run and the epoch of its claim.
type Ref struct {
	Key
	RunID string
	Epoch int64
}

// found gives NotFound (SESSION_NOT_FOUND) or (RUN_NOT_FOUND) when the view
// lacks what the reference names.
func (r Ref) found(v *View) error {
	if v.Session == nil {
		return NoSession(r.Key)
	}
	if v.Run == nil {
		return NoRun(r.RunID)
	}
	return nil
}

// owns gives Stale (EPOCH_STALE) when the claim is not, or no longer, the one
// that owns the session, and what found gives. The run may have finished.
func (r Ref) owns(v *View) error {
	if err := r.found(v); err != nil {
		return err
	}
	if r.Epoch != v.Session.Epoch || r.Epoch != v.Run.Epoch {
		return fault.New(fault.Stale, "EPOCH_STALE",
			"epoch %d does not own run %q: the session's epoch is %d; stop working on the run", r.Epoch, r.RunID, v.Session.Epoch)
	}
	if v.Run.Status == RunQueued {
		return fault.New(fault.Stale, "EPOCH_STALE",
			"run %q is queued again: the claim of epoch %d was released or taken away; stop working on the run", r.RunID, r.Epoch)
	}
	return nil
}

// runs gives what owns gives, and Stale (RUN_FINISHED) when the run is over.
func (r Ref) runs(v *View) error {
	if err := r.owns(v); err != nil {
		return err
	}
	if !v.Run.Status.Live() {
		return finished(v.Run)
	}
	return nil
}

func finished(r *Run) error {
	return fault.New(fault.Stale, "RUN_FINISHED", "run %q has finished (%s) and takes no more writes", r.RunID, r.Status)
}

// NoSession is the fault for a session that does not exist.
func NoSession(k Key) error {
	return fault.New(fault.NotFound, "SESSION_NOT_FOUND", "there is no session %q", k.SessionID)
}

// NoRun is the fault for a run that its session does not have.
func NoRun(runID string) error {
	return fault.New(fault.NotFound, "RUN_NOT_FOUND", "the session has no run %q", runID)
}

// inFlight gives Stale (STEP_STALE) when step is not the session's next.
func inFlight(v *View, step int32) error {
	if next := v.Session.StepCount + 1; step != next {
		return fault.New(fault.Stale, "STEP_STALE", "step %d is not the step in flight, which is %d", step, next)
	}
	return nil
}
