package session

// Claim makes an executor the owner of a queued run.
type Claim struct {
	ExecutorID string
	Now        Millis
}

// Decide claims the run that is due. The change is nil when the run is not
// queued any more, or waits for its time.
func (c Claim) Decide(v *View) (*Change, error) {
	if v.Session == nil || v.Run == nil || v.Run.Status != RunQueued || v.Run.DueAt > c.Now {
		return nil, nil
	}
	s, r := c.raiseEpoch(v)
	r.Status = RunRunning
	if r.StartedAt == 0 {
		r.StartedAt = c.Now
	}
	return &Change{Session: &s, Runs: []Run{r}}, nil
}

// raiseEpoch raises the epoch and names the owner.
func (c Claim) raiseEpoch(v *View) (Session, Run) {
	s, r := *v.Session, *v.Run
	s.Epoch++
	s.Claims++
	s.UpdatedAt = c.Now
	r.Epoch = s.Epoch
	r.Attempt++
	r.ExecutorID = c.ExecutorID
	r.ClaimedAt = c.Now
	return s, r
}

// ClaimOrphaned makes an executor that need not know the run's agent responsible
// for its end, where that has been due for a while: who knows the agent has that time
// to come back.
type ClaimOrphaned struct {
	Claim
	After Millis // how long
}

// Decide claims a queued run that is to stop or whose deadline has passed as Claim
// does. The change is nil for any other: it waits for its agent.
func (c ClaimOrphaned) Decide(v *View) (*Change, error) {
	if v.Run == nil {
		return nil, nil
	}
	if since, ends := v.Run.endDue(); !ends || since+c.After > c.Now {
		return nil, nil
	}
	return c.Claim.Decide(v)
}

// endDue reports whether there is nothing to do for the run but to end it, and since or
// from when.
func (r *Run) endDue() (since Millis, ends bool) {
	switch {
	case r.Stop != nil && r.DeadlineAt > 0:
		return min(r.Stop.At, r.DeadlineAt), true
	case r.Stop != nil:
		return r.Stop.At, true
	default:
		return r.DeadlineAt, r.DeadlineAt > 0
	}
}
