package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// SetStatus ends the work of a session from outside, if the session is as expected. A live
// run ends with it, and later writes of its owner are stale. Family.Propagate applies the
// consequences for the family.
//
// Faults: NotFound (SESSION_NOT_FOUND), Invalid (STATUS_INVALID, FAILURE_MISSING).
type SetStatus struct {
	Key
	Expected        []Status // any of these; empty for any
	ExpectedVersion int64    // 0 for any
	Status          Status   // completed, failed, interrupted or paused
	Failure         *Failure // required for failed
	Reason          string   // of an interruption
	Now             Millis
}

// StatusSet is the result of SetStatus: the session after the command, or as found if it was
// not as expected.
type StatusSet struct {
	OK      bool
	Version int64
	Status  Status
}

// Need lists the rows for Decide.
func (c SetStatus) Need() Need { return needForcedEnd }

// Decide sets the status. The change is nil if the session is not as expected.
func (c SetStatus) Decide(v *View) (*Change, StatusSet, error) {
	if err := c.check(); err != nil {
		return nil, StatusSet{}, err
	}
	s := v.Session
	if s == nil {
		return nil, StatusSet{}, SessionNotFound(c.Key)
	}
	if !statusAllowed(c.Expected, s.Status) || c.ExpectedVersion != 0 && c.ExpectedVersion != s.Version {
		return nil, StatusSet{Version: s.Version, Status: s.Status}, nil
	}
	f := forcedEnd{status: c.Status, now: c.Now}
	if c.Status == Failed {
		f.failure = c.Failure
	}
	if c.Status == Interrupted {
		f.interruption = &Interruption{RunID: s.CurrentRunID, Reason: c.Reason, At: c.Now}
	}
	change := f.change(v)
	change.endWaiting = c.Status == Failed
	return change, StatusSet{OK: true, Version: change.Session.Version, Status: c.Status}, nil
}

func (c SetStatus) check() error {
	switch c.Status {
	case Completed, Interrupted, Paused:
		return nil
	case Failed:
		if c.Failure == nil {
			return fault.New(fault.Invalid, "FAILURE_MISSING", "the status failed needs a failure")
		}
		return nil
	case Active:
		return fault.New(fault.Invalid, "STATUS_INVALID", "a session becomes active when a run begins; start or resume a run instead")
	default:
		return fault.New(fault.Invalid, "STATUS_INVALID", "the status %q cannot be set; use completed, failed, interrupted or paused", c.Status)
	}
}
