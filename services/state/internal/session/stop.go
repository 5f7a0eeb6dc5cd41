package session

// RequestStop ends the work of a session early. A live run receives the stop as a record
// that stays with it, whichever executor runs it. A session without a live run is stopped
// at once. A waiting run is always interrupted. A repeat reports StopDone.
//
// Faults: NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
type RequestStop struct {
	Key
	RunID  string // empty for the current work of the session
	Kind   StopKind
	Reason string
	Now    Millis
}

// StopEffect is the effect of a RequestStop.
type StopEffect string

// The effects.
const (
	StopRequested StopEffect = "requested" // the live run has the stop
	StopDone      StopEffect = "done"      // the session has stopped
	StopNone      StopEffect = "none"      // it had ended before
)

// Stopped is the result of RequestStop.
type Stopped struct {
	RunID  string // of the stopped run; empty for none
	Effect StopEffect
}

// Need lists the rows for Decide.
func (c RequestStop) Need() Need {
	need := needForcedEnd
	need.RunID, need.Current = c.RunID, true
	return need
}

// Decide stops the run or the session.
func (c RequestStop) Decide(v *View) (*Change, Stopped, error) {
	if v.Session == nil {
		return nil, Stopped{}, SessionNotFound(c.Key)
	}
	if v.Live != nil && (c.RunID == "" || c.RunID == v.Live.RunID) {
		r := *v.Live
		if !r.addStop(Stop{Kind: c.Kind, Reason: c.Reason, At: c.Now}) {
			return nil, Stopped{r.RunID, StopRequested}, nil
		}
		return &Change{Runs: []Run{r}}, Stopped{r.RunID, StopRequested}, nil
	}
	if c.RunID != "" {
		if v.Run == nil {
			return nil, Stopped{}, RunNotFound(c.RunID)
		}
		if v.Run.Status == RunWaiting {
			r := *v.Run
			r.Stop = &Stop{Kind: c.Kind, Reason: c.Reason, At: c.Now}
			change := &Change{Session: v.nextVersion(c.Now)}
			change.endWaitingRun(r, Outcome{Status: RunInterrupted}, c.Now)
			return change, Stopped{c.RunID, StopDone}, nil
		}
		if c.alreadyDone(v) {
			return nil, Stopped{c.RunID, StopDone}, nil
		}
		if !v.Session.Status.Suspended() || v.Session.CurrentRunID != c.RunID {
			return nil, Stopped{c.RunID, StopNone}, nil
		}
	}
	return c.stopIdleSession(v)
}

// alreadyDone reports whether an equal stop has ended the idle session before. A run that
// ended because of its stop does not count. An interrupt without a run id accepts any
// interrupt.
func (c RequestStop) alreadyDone(v *View) bool {
	s := v.Session
	if c.RunID != "" && v.Run.Turn == 0 {
		return v.Run.Status == RunInterrupted // it was interrupted before it began
	}
	ownEnd := func(status RunStatus) bool { return v.Current != nil && v.Current.Status == status }
	if c.Kind == StopAbort {
		return s.Status == Failed && s.Failure != nil && s.Failure.Code == codeCancelled && s.Failure.Reason == "" &&
			(c.RunID == "" || c.RunID == s.CurrentRunID) && !ownEnd(RunFailed)
	}
	if c.RunID == "" {
		return s.Status == Interrupted
	}
	return s.Status == Interrupted && s.Interruption != nil && s.Interruption.RunID == c.RunID && !ownEnd(RunInterrupted)
}

// addStop records the stop and reports whether anything changed. The first stop wins, but an
// abort replaces an interrupt, and Undo is kept. A delayed run becomes due.
func (r *Run) addStop(stop Stop) bool {
	was := r.Stop
	switch {
	case was == nil:
		r.Stop = &stop
	case stop.Kind == StopAbort && was.Kind == StopInterrupt:
		stop.Undo = stop.Undo || was.Undo
		r.Stop = &stop
	case stop.Undo && !was.Undo:
		updated := *was
		updated.Undo = true
		r.Stop = &updated
	default:
		return false
	}
	r.DueAt = 0
	return true
}

// stopIdleSession stops a session without a live run.
func (c RequestStop) stopIdleSession(v *View) (*Change, Stopped, error) {
	s := *v.Session
	done := Stopped{s.CurrentRunID, StopDone}
	if c.alreadyDone(v) {
		return nil, done, nil
	}
	if s.Status.Terminal() {
		return nil, Stopped{s.CurrentRunID, StopNone}, nil
	}
	s.applyStop(Stop{Kind: c.Kind, Reason: c.Reason, At: c.Now}, s.CurrentRunID, c.Now)
	return forcedEnd{s.Status, s.Failure, s.Interruption, c.Now}.change(v), done, nil
}

// applyStop ends the work of a session without a live run. After an interrupt its calls stay
// open, and the session can be resumed.
func (s *Session) applyStop(stop Stop, runID string, now Millis) {
	s.Suspension = nil
	if stop.Kind == StopAbort {
		s.Status, s.Interruption = Failed, nil
		s.Failure = &Failure{Error: "The session was stopped.", Code: codeCancelled}
		return
	}
	s.Status, s.Failure = Interrupted, nil
	s.Interruption = &Interruption{RunID: runID, Reason: stop.Reason, At: now}
}

// codeCancelled is the specification's failure code of cancelled work.
const codeCancelled = "framework_cancelled"
