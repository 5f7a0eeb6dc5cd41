package session

// force ends what a session does from outside, whoever owns its run.
type force struct {
	status       Status // completed, failed, interrupted or paused
	failure      *Failure
	interruption *Interruption
	now          Millis
}

// needForce is what force.end wants to see.
var needForce = Need{Open: true, Journal: true, Calls: true}

// end returns the change after which the session has the status. A live run
// ends with it, and its owner's next write is stale; a run that has suspended
// stays as it is.
func (f force) end(v *View) *Change {
	s := *v.Session
	s.Version++
	s.UpdatedAt = f.now
	s.Status = f.status
	s.Failure, s.Interruption, s.Suspension = f.failure, f.interruption, nil
	change := &Change{Session: &s}
	if f.status == Failed {
		s.Output = ""
		change.drop(v, "")
	}
	if v.Live != nil {
		f.run(v, change)
	}
	return change
}

// run ends the live run. Nobody holds it after that, and its owner's claim is stale.
func (f force) run(v *View, change *Change) {
	s, r := change.Session, *v.Live
	r.Outcome = Outcome{Status: f.runStatus(), Failure: f.failure}
	r.Status = r.Outcome.Status
	r.ExecutorID = ""
	r.CompletedAt = f.now
	r.FinishVersion = s.Version
	s.Epoch++
	r.Epoch = s.Epoch // which nobody holds: the owner's end is no repetition of this one
	change.settleDrain(v, f.now)
	change.ClearJournal = v.Journal != nil
	change.Usage = entries(r.RunID, s.StepCount+1, f.now, v.Journal.usage())
	s.endOutside(&r)
	change.Runs = append(change.Runs, r)
}

// runStatus is the end of the live run. A run does not pause: it was
// interrupted.
func (f force) runStatus() RunStatus {
	switch f.status {
	case Completed:
		return RunCompleted
	case Failed:
		return RunFailed
	default:
		return RunInterrupted
	}
}
