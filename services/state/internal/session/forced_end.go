package session

// forcedEnd ends what a session does from outside, whoever owns its run.
type forcedEnd struct {
	status       Status // completed, failed, interrupted or paused
	failure      *Failure
	interruption *Interruption
	now          Millis
}

// needForcedEnd is what force.end wants to see.
var needForcedEnd = Need{Open: true, Journal: true, Calls: true}

// change returns the change after which the session has the status. A live run
// ends with it, and its owner's next write is stale; a run that has suspended
// stays as it is.
func (f forcedEnd) change(v *View) *Change {
	s := *v.Session
	s.Version++
	s.UpdatedAt = f.now
	s.Status = f.status
	s.Failure, s.Interruption, s.Suspension = f.failure, f.interruption, nil
	change := &Change{Session: &s}
	if f.status == Failed {
		s.Output = ""
		change.dropCallsOfRun(v, "")
	}
	if v.Live != nil {
		f.endRun(v, change)
	}
	return change
}

// endRun ends the live run. Nobody holds it after that, and its owner's claim is stale.
func (f forcedEnd) endRun(v *View, change *Change) {
	s, r := change.Session, *v.Live
	r.Outcome = Outcome{Status: f.runStatus(), Failure: f.failure}
	r.Status = r.Outcome.Status
	r.ExecutorID = ""
	r.CompletedAt = f.now
	r.FinishVersion = s.Version
	s.Epoch++
	r.Epoch = s.Epoch // which nobody holds: the owner's end is no repetition of this one
	change.consumeJournalAnswers(v, f.now)
	change.ClearJournal = v.Journal != nil
	change.Usage = usageEntries(r.RunID, s.StepCount+1, f.now, v.Journal.usage())
	s.endOutsideStep(&r)
	change.Runs = append(change.Runs, r)
}

// runStatus is the end of the live run. A run does not pause: it was
// interrupted.
func (f forcedEnd) runStatus() RunStatus {
	switch f.status {
	case Completed:
		return RunCompleted
	case Failed:
		return RunFailed
	default:
		return RunInterrupted
	}
}
