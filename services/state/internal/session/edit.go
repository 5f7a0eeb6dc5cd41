package session

// Edit replaces a message of a user and everything after it, and begins a run. If the
// conversation does not have the message, Edit sends its messages like Send. If the message still
// waits for the session's work, its run and those that wait behind it end, and the new one waits in their
// place.
//
// An equal message in the same place is a repeat: its run is returned, unless that run
// failed or was interrupted.
//
// Faults: as for Send, and NotFound (CHECKPOINT_NOT_FOUND).
type Edit struct {
	Send
	Target string // id of the message to replace
}

// Need lists the rows for Decide.
func (c Edit) Need() Need {
	need := c.needRewind()
	need.RewindToMessage = c.Target
	return need
}

// Decide begins the run. The views are as for Send.
func (c Edit) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	found, err := c.showsUserMessage(v, c.Target)
	switch {
	case err != nil:
		return nil, Started{}, err
	case v.KeyedRun != nil:
		return c.Send.Decide(views...)
	case !found:
		return c.sendOrReplaceWaiting(views)
	}
	if err := c.checkNewTarget(v); err != nil {
		return nil, Started{}, err
	}
	answered, err := c.isAnswered(v)
	switch {
	case err != nil:
		return nil, Started{}, err
	case answered:
		return nil, repeatedStart(v, v.Current), nil
	}
	change, err := c.rewindAndBegin(views, false)
	if err != nil {
		return nil, Started{}, err
	}
	started := change.started()
	started.Removed = v.Session.MessageCount - v.RewindPoint.Message.Ordinal
	return change, started, nil
}

// sendOrReplaceWaiting is Send, but first ends the run that waits with the target and those behind it.
func (c Edit) sendOrReplaceWaiting(views []*View) (*Change, Started, error) {
	v := views[0]
	at, err := c.findWaitingRun(v, c.Target)
	if err != nil {
		return nil, Started{}, err
	}
	if at < 0 {
		return c.Send.Decide(views...)
	}
	if busy, err := isBusy(views); !busy || err != nil {
		if err != nil {
			return nil, Started{}, err
		}
		return c.Send.Decide(views...)
	}
	if run, err := c.findRepeatedRun(v); run != nil || err != nil {
		return c.Send.Decide(views...)
	}
	replaced := v.Waiting[at:]
	s, before := *v.Session, *v
	s.Waiting -= int32(len(replaced))
	before.Session, before.Waiting = &s, v.Waiting[:at]
	change, started, err := c.Send.Decide(append([]*View{&before}, views[1:]...)...)
	if err != nil {
		return nil, Started{}, err
	}
	change.Session.Waiting += int32(len(replaced))
	for _, w := range replaced {
		change.endWaitingRun(w.Run, Outcome{Status: RunInterrupted}, c.Now)
	}
	started.Session = *change.Session
	return change, started, nil
}

// isAnswered reports whether the message is in place already and the newest run answers it
// without a failure or an interruption.
func (c Edit) isAnswered(v *View) (bool, error) {
	if len(c.Messages) != 1 || c.Messages[0].ID != c.Target || !v.wroteNewestAnswer(v.RewindPoint.answeringRun()) {
		return false, nil
	}
	if v.Current.Status == RunFailed || v.Current.Status == RunInterrupted {
		return false, nil
	}
	return c.Bodies.SameContent(v.RewindPoint.Message, c.Messages[0])
}
