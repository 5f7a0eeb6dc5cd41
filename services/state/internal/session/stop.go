package session

// RequestStop asks that a session's work ends early. A live run is asked by a
// record that stays with it until its end, whoever executes it; a session that
// only waits is stopped at once. A run that waits for its turn is given up:
// interrupted, whatever the kind. A repetition finds the stop done.
//
// Faults: NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
type RequestStop struct {
	Key
	RunID  string // empty for whatever the session does
	Kind   StopKind
	Reason string
	Now    Millis
}

// StopEffect is what became of a stop.
type StopEffect string

// The effects of stops.
const (
	StopRequested StopEffect = "requested" // the run will see it
	StopDone      StopEffect = "done"      // the session has stopped
	StopNone      StopEffect = "none"      // it was over already
)

// Stopped is the answer to RequestStop.
type Stopped struct {
	RunID  string // the run that the stop is about; empty for none
	Effect StopEffect
}

// Need says what Decide wants to see.
func (c RequestStop) Need() Need {
	need := needForcedEnd
	need.RunID, need.Current = c.RunID, true
	return need
}

// Decide stops the run or the session.
func (c RequestStop) Decide(v *View) (*Change, Stopped, error) {
	if v.Session == nil {
		return nil, Stopped{}, NoSession(c.Key)
	}
	if v.Live != nil && (c.RunID == "" || c.RunID == v.Live.RunID) {
		return c.stopLiveRun(v), Stopped{v.Live.RunID, StopRequested}, nil
	}
	if c.RunID != "" {
		if v.Run == nil {
			return nil, Stopped{}, NoRun(c.RunID)
		}
		if v.Run.Status == RunWaiting {
			return c.cancelWaitingRun(v), Stopped{c.RunID, StopDone}, nil
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

// alreadyDone reports whether such a stop has ended the session before, while it only
// waited. The end of a run that saw its stop is the run's own: nothing is left to
// stop then. An interrupt of whatever it does is content with each interrupt.
func (c RequestStop) alreadyDone(v *View) bool {
	s := v.Session
	if c.RunID != "" && v.Run.Turn == 0 {
		return v.Run.Status == RunInterrupted // it was given up before it began
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

// stopLiveRun leaves the stop with the live run. The first one stands, but an abort
// outranks an interrupt. A run that waits for its time waits no more.
func (c RequestStop) stopLiveRun(v *View) *Change {
	r := *v.Live
	if !r.addStop(Stop{Kind: c.Kind, Reason: c.Reason, At: c.Now}) {
		return nil
	}
	return &Change{Runs: []Run{r}}
}

// addStop leaves the stop with the live run, and reports whether that is news.
func (r *Run) addStop(stop Stop) bool {
	was := r.Stop
	switch {
	case was == nil:
		r.Stop = &stop
	case stop.Kind == StopAbort && was.Kind == StopInterrupt:
		stop.Undo = stop.Undo || was.Undo
		r.Stop = &stop
	case stop.Undo && !was.Undo:
		kept := *was
		kept.Undo = true
		r.Stop = &kept
	default:
		return false
	}
	r.DueAt = 0
	return true
}

// cancelWaitingRun ends the run that waits: it is interrupted before it began.
func (c RequestStop) cancelWaitingRun(v *View) *Change {
	s, r := *v.Session, *v.Run
	s.Version++
	s.UpdatedAt = c.Now
	r.Stop = &Stop{Kind: c.Kind, Reason: c.Reason, At: c.Now}
	change := &Change{Session: &s}
	change.endWaitingRun(r, Outcome{Status: RunInterrupted}, c.Now)
	return change
}

// stopIdleSession stops a session that has no live run.
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

// applyStop gives a session that nobody executes the end that a stop asks for. Its
// calls stay open after an interrupt: the session can be resumed.
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

// codeCancelled is the specification's code for work that somebody else gave up.
const codeCancelled = "framework_cancelled"
