package session

// forcedEnd ends the work of a session from outside, without the epoch of its owner.
type forcedEnd struct {
	status       Status // completed, failed, interrupted or paused
	failure      *Failure
	interruption *Interruption
	now          Millis
}

// needForcedEnd lists the rows for forcedEnd.change.
var needForcedEnd = Need{Live: true, Journal: true, Calls: true}

// change returns the change to the status. A live run ends with it, and the next write of
// its owner is stale. A suspended run has ended already and stays as it is.
func (f forcedEnd) change(v *View) *Change {
	change := &Change{Session: v.nextVersion(f.now)}
	f.endSession(v, change)
	if v.Live != nil {
		f.endRun(v, change)
	}
	return change
}

// endSession ends the session of a change that has no live run any more.
func (f forcedEnd) endSession(v *View, change *Change) {
	s := change.Session
	s.Status = f.status
	s.Failure, s.Interruption, s.Suspension = f.failure, f.interruption, nil
	if f.status == Failed {
		s.Output = ""
		change.dropCallsOfRun(v, "")
	}
}

// endRun ends the live run and makes the claim of its owner stale.
func (f forcedEnd) endRun(v *View, change *Change) {
	s, r := change.Session, *v.Live
	change.CutOff = v.Live
	r.Outcome = Outcome{Status: f.runStatus(), Failure: f.failure}
	r.Status = r.Outcome.Status
	r.ExecutorID = ""
	r.CompletedAt = f.now
	r.FinishVersion = s.Version
	s.Epoch++
	r.Epoch = s.Epoch // of no claim, so the owner cannot repeat this end as its own
	change.consumeJournalAnswers(v, f.now)
	change.ClearJournal = v.Journal != nil
	change.Usage = usageEntries(r.RunID, s.StepCount+1, f.now, v.Journal.usage())
	s.endOutsideStep(&r)
	change.Runs = append(change.Runs, r)
}

// runStatus returns the end of the live run. A paused session interrupts its run.
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
