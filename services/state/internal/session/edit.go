package session

// Edit puts messages in the place of one of a user's, and begins a run with them. Where
// the conversation does not have that message, they are sent.
//
// A message that stands there as it is was put there before, and its run is the answer;
// but an answer that has failed or was stopped is made anew.
//
// Faults: those of Send, and NotFound (CHECKPOINT_NOT_FOUND).
type Edit struct {
	Send
	Target string // a message's id
}

// Need says what Decide wants to see.
func (c Edit) Need() Need {
	need := c.needRewind()
	need.BackTo = c.Target
	return need
}

// Decide begins the run. The views are those of Send.
func (c Edit) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	there, err := c.showsUserMessage(v, c.Target)
	switch {
	case err != nil:
		return nil, Started{}, err
	case v.Keyed != nil, !there:
		return c.Send.Decide(views...)
	}
	if err := c.checkTarget(v); err != nil {
		return nil, Started{}, err
	}
	stands, err := c.stands(v)
	switch {
	case err != nil:
		return nil, Started{}, err
	case stands:
		return nil, repeatedStart(v, v.Current), nil
	}
	change, err := c.rewindAndBegin(v, false)
	if err != nil {
		return nil, Started{}, err
	}
	return change, change.started(), nil
}

// stands reports whether the message is there as the client wants it, and the newest
// answer is its own and good.
func (c Edit) stands(v *View) (bool, error) {
	if len(c.Messages) != 1 || c.Messages[0].ID != c.Target || !v.wroteNewestAnswer(v.Back.Run) {
		return false, nil
	}
	if v.Current.Status == RunFailed || v.Current.Status == RunInterrupted {
		return false, nil
	}
	return c.Bodies.Same(v.Back.Message, c.Messages[0])
}
