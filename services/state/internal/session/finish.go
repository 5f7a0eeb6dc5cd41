package session

// Finish ends a run outside of a step. A repetition of it under the same
// epoch is answered as before and changes nothing. The journal is cleared, but
// its usage is kept.
//
// Faults: those of every write.
type Finish struct {
	Ref
	Outcome  Outcome
	Sequence int64
	Now      Millis
}

// Need says what Decide wants to see.
func (c Finish) Need() Need { return Need{RunID: c.RunID, Journal: true} }

// Decide ends the run. The answer is the session's version after it.
func (c Finish) Decide(v *View) (*Change, int64, error) {
	if err := c.owns(v); err != nil {
		return nil, 0, err
	}
	if !v.Run.Status.Live() {
		if v.Run.FinishStep == 0 && c.Outcome.equal(v.Run.Outcome) {
			return nil, v.Run.FinishVersion, nil
		}
		return nil, 0, finished(v.Run)
	}
	s, r := *v.Session, *v.Run
	s.Version++
	s.StreamSequence = max(s.StreamSequence, c.Sequence)
	s.UpdatedAt = c.Now
	end(&s, &r, c.Outcome, c.Now)
	change := &Change{
		Session: &s, Runs: []Run{r}, ClearJournal: v.Journal != nil,
		Usage: entries(c.RunID, s.StepCount+1, c.Now, v.Journal.usage()),
	}
	return change, s.Version, nil
}

// end writes the outcome into both rows. The session's version is the one
// after the write.
func end(s *Session, r *Run, o Outcome, now Millis) {
	s.Status = statusAfter(o.Status)
	s.Output, s.Failure = o.Output, o.Failure
	r.Status = o.Status
	r.Outcome = o
	r.CompletedAt = now
	r.FinishVersion = s.Version
}

// statusAfter is the session's status after a run with the outcome. The names
// are the same: what a run ended as is what the session is.
func statusAfter(r RunStatus) Status { return Status(r) }
