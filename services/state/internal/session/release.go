package session

import "slices"

// Release returns a claim: the run is queued again and its journal stays. Usage is recorded
// outside of steps. A repeat writes nothing.
//
// Faults: as for ClaimRef.
type Release struct {
	ClaimRef
	Delay Millis  // before the next claim; ignored if the run was asked to stop since its claim
	Usage []Usage // of attempts without a recorded plan
	Seen  LostWork
	Now   Millis
}

// LostWork is how far the session had come before the database lost commits, as far as the live log or the executor
// has seen. The zero value is nothing.
type LostWork struct {
	Epoch int64
	Step  int32
}

// Need lists the rows for Decide.
func (c Release) Need() Need { return Need{RunID: c.RunID} }

// Decide releases the claim.
func (c Release) Decide(v *View) (*Change, error) {
	if err := c.checkExists(v); err != nil {
		return nil, err
	}
	if c.Epoch == v.Run.Epoch && v.Run.Status == RunQueued {
		return nil, nil
	}
	if err := c.checkRunning(v); err != nil {
		return nil, err
	}
	change := requeue(v, c.Now)
	change.addUsage(c.RunID, c.Usage, c.Now)
	change.Runs[0].DueAt = 0
	if c.Delay > 0 && !v.Run.stoppedSince(v.Run.ClaimedAt) {
		change.Runs[0].DueAt = c.Now + c.Delay
	}
	change.Session.continueAfter(c.Seen)
	return change, nil
}

// continueAfter lets the session go on with epochs and steps that were never used. The journal stays the one of the step
// in flight, under its new number.
func (s *Session) continueAfter(lost LostWork) {
	s.Epoch = max(s.Epoch, lost.Epoch)
	if lost.Step > s.StepCount {
		s.StepCount = lost.Step
		s.Claims = 0
	}
}

// stoppedSince reports whether the run was asked to stop at that time or later. The executor
// may not have seen such a stop. An executor that has seen it and returns the run needs the
// delay.
func (r *Run) stoppedSince(at Millis) bool { return r.Stop != nil && r.Stop.At >= at }

// RequeueSilent takes a run from an unregistered executor and counts the loss. Losses expose
// a run that kills its executors. The journal stays.
type RequeueSilent struct {
	Now Millis
}

// Decide queues View.Run. The change is nil if the run is not running or its executor is
// registered.
func (c RequeueSilent) Decide(v *View) (*Change, error) {
	if v.Session == nil || v.Run == nil || v.Run.Status != RunRunning || !v.OwnerUnregistered {
		return nil, nil
	}
	change := requeue(v, c.Now)
	change.Runs[0].Losses++
	return change, nil
}

// RequeueLost takes the runs from an executor that it does not know of: their claim was lost
// on the way, or the executor has dropped them. It counts the loss. The journal stays.
type RequeueLost struct {
	ExecutorID    string
	HeldRunIDs    []string // ids of the executor's runs
	ClaimedBefore Millis   // exclusive; a newer claim may still be on its way
	Now           Millis
}

// Decide queues View.Run. The change is nil if the claim has changed.
func (c RequeueLost) Decide(v *View) (*Change, error) {
	r := v.Run
	if v.Session == nil || r == nil || r.Status != RunRunning || r.ExecutorID != c.ExecutorID {
		return nil, nil
	}
	if r.ClaimedAt >= c.ClaimedBefore || slices.Contains(c.HeldRunIDs, r.RunID) {
		return nil, nil
	}
	change := requeue(v, c.Now)
	change.Runs[0].Losses++
	return change, nil
}

// requeue returns the change that queues the view's run again.
func requeue(v *View, now Millis) *Change {
	s, r := *v.Session, *v.Run
	s.UpdatedAt = now
	r.Status, r.ExecutorID = RunQueued, ""
	return &Change{Session: &s, Runs: []Run{r}}
}
