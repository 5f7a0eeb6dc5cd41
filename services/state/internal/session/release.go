package session

import "slices"

// Release gives a claim back: the run is queued again. The journal stays. What was spent becomes
// usage entries of the run, of no step. A repetition changes nothing.
//
// Faults: those of every write, and Stale (RUN_FINISHED).
type Release struct {
	Ref
	Delay Millis  // the run is not claimed before it has passed; 0 for at once, as for a run that was asked to stop since its claim
	Usage []Usage // of attempts whose plan is not recorded
	Now   Millis
}

// Need says what Decide wants to see.
func (c Release) Need() Need { return Need{RunID: c.RunID} }

// Decide releases the claim.
func (c Release) Decide(v *View) (*Change, error) {
	if err := c.checkExists(v); err != nil {
		return nil, err
	}
	mine := c.Epoch == v.Session.Epoch && c.Epoch == v.Run.Epoch
	if mine && v.Run.Status == RunQueued {
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
	return change, nil
}

// stoppedSince reports whether the run was asked to stop at that time or later: who
// has claimed it may not have seen that. One who has seen it and gives the run back
// all the same cannot do more at once.
func (r *Run) stoppedSince(at Millis) bool { return r.Stop != nil && r.Stop.At >= at }

// RequeueSilent takes a claim away from an executor that is silent, and counts
// the loss: a run that kills whoever executes it is known by it. The journal
// stays.
type RequeueSilent struct {
	Now Millis
}

// Decide queues the run that is due again. The change is nil when it does not
// run any more, or somebody who lives holds it.
func (c RequeueSilent) Decide(v *View) (*Change, error) {
	if v.Session == nil || v.Run == nil || v.Run.Status != RunRunning || !v.HolderSilent {
		return nil, nil
	}
	change := requeue(v, c.Now)
	change.Runs[0].Losses++
	return change, nil
}

// RequeueLost takes the claims away that an executor does not know of: their
// handing over failed on the way, or it has given them up without a word. It counts
// the loss of a run: one whose end is refused again and again is known by it. The
// journal stays.
type RequeueLost struct {
	ExecutorID    string
	Held          []string // the run ids that the executor knows of
	ClaimedBefore Millis   // exclusive: a fresher claim may still be on its way
	Now           Millis
}

// Decide frees the run that is due. The change is nil when the claim is
// another one by now.
func (c RequeueLost) Decide(v *View) (*Change, error) {
	r := v.Run
	if v.Session == nil || r == nil || r.Status != RunRunning || r.ExecutorID != c.ExecutorID {
		return nil, nil
	}
	if r.ClaimedAt >= c.ClaimedBefore || slices.Contains(c.Held, r.RunID) {
		return nil, nil
	}
	change := requeue(v, c.Now)
	change.Runs[0].Losses++
	return change, nil
}

// requeue returns the change after which nobody holds the view's run.
func requeue(v *View, now Millis) *Change {
	s, r := *v.Session, *v.Run
	s.UpdatedAt = now
	r.Status, r.ExecutorID = RunQueued, ""
	return &Change{Session: &s, Runs: []Run{r}}
}
