package session

// Claim makes an executor the owner of a queued run.
type Claim struct {
	ExecutorID string
	// EpochStep is how far the claim raises the epoch; 0 means 1. A random one keeps a database that has lost commits from
	// giving a new claim the epoch of a lost one: see "Lost commits".
	EpochStep int64
	Now       Millis
}

// Decide claims View.Run. The change is nil if the run is not queued or not due yet.
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

// raiseEpoch begins a new epoch with the executor as its owner.
func (c Claim) raiseEpoch(v *View) (Session, Run) {
	s, r := *v.Session, *v.Run
	s.Epoch += max(c.EpochStep, 1)
	s.Claims++
	s.UpdatedAt = c.Now
	r.Epoch = s.Epoch
	r.Attempt++
	r.ExecutorID = c.ExecutorID
	r.ClaimedAt = c.Now
	if r.AgentType == StoredAgents {
		r.Definition = v.Definition
	}
	return s, r
}

// ClaimOrphaned lets any executor claim a run only to end it, although no executor serves
// its agent. The end has been due for After, so that an executor with the agent could
// return in time.
type ClaimOrphaned struct {
	Claim
	Grace Millis
}

// Decide claims a queued run with a stop or a passed deadline. The change is nil for any
// other run, which waits for its agent.
func (c ClaimOrphaned) Decide(v *View) (*Change, error) {
	if v.Run == nil {
		return nil, nil
	}
	if since, ends := v.Run.endDue(); !ends || since+c.Grace > c.Now {
		return nil, nil
	}
	return c.Claim.Decide(v)
}

// ClaimUnserved lets any executor claim a run only to fail it: no executor has served its agent for at
// least as long as the run has been queued, and that was too long.
type ClaimUnserved struct {
	Claim
	QueuedBefore Millis // runs that were created or claimed later wait on
	Reason       string // of the stop, for people
}

// Decide claims a queued run and stops it with StopAgentGone. A stop or a deadline that the run
// already has keeps its meaning: see ClaimOrphaned. The change is nil for a run that waits on.
func (c ClaimUnserved) Decide(v *View) (*Change, error) {
	if v.Run == nil || v.Run.Stop != nil || v.Run.QueuedSince() > c.QueuedBefore {
		return nil, nil
	}
	change, err := c.Claim.Decide(v)
	if change != nil {
		change.Runs[0].Stop = &Stop{Kind: StopAgentGone, Reason: c.Reason, At: c.Now}
	}
	return change, err
}

// QueuedSince returns since when a queued run waits, as far as its row says: its creation, or its newest
// claim.
func (r *Run) QueuedSince() Millis { return max(r.CreatedAt, r.ClaimedAt) }

// endDue reports whether the run has a stop or a deadline, and the earlier of their times.
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
