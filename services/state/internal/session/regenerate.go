package session

// Regenerate answers a message of a user again. If the conversation does not have the
// message, Regenerate sends its messages like Send. If the message still waits for a live run, the
// waiting run is returned.
//
// A repeat replaces an answer only once. If AnswerID names a replaced answer, that run is
// returned. If AnswerID is empty while a run is answering the message, that run is returned unless
// the policy is to end it.
//
// Faults: as for Send, and NotFound (MESSAGE_NOT_FOUND, CHECKPOINT_NOT_FOUND).
type Regenerate struct {
	Send
	Target   string // id of the message, or of an answer to it
	AnswerID string // id of the answer to replace; empty for any
}

// Need lists the rows for Decide.
func (c Regenerate) Need() Need {
	need := c.needRewind()
	need.RewindToMessage, need.AnswerID = c.Target, c.AnswerID
	return need
}

// Decide begins the run. The views are as for Send.
func (c Regenerate) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	found, err := c.canGoBack(v)
	switch {
	case err != nil:
		return nil, Started{}, err
	case v.KeyedRun != nil:
		return c.Send.Decide(views...)
	}
	var waiting *Run
	if !found {
		var at int
		if at, err = c.findWaitingRun(v, c.Target); at >= 0 {
			waiting = &v.Waiting[at].Run
		}
	}
	switch {
	case err != nil:
		return nil, Started{}, err
	case !found && waiting == nil && len(c.Messages) > 0:
		return c.Send.Decide(views...)
	}
	if err := c.checkNewTarget(v); err != nil {
		return nil, Started{}, err
	}
	switch {
	case waiting != nil:
		return nil, repeatedStart(v, waiting), nil
	case v.Session == nil:
		return nil, Started{}, SessionNotFound(c.Key)
	}
	switch answered, err := c.alreadyAnswered(views, found); {
	case err != nil:
		return nil, Started{}, err
	case answered:
		return nil, repeatedStart(v, v.Current), nil
	case !found:
		return nil, Started{}, c.findQuestion(v)
	}
	c.Messages = nil // the question stays in place
	change, err := c.rewindAndBegin(views, true)
	if err != nil {
		return nil, Started{}, err
	}
	started := change.started()
	started.Removed = v.Session.MessageCount - v.RewindPoint.Message.Ordinal - 1
	return change, started, nil
}

// canGoBack reports whether View.RewindPoint shows the target: the named message, or the question
// that findQuestion has asked for.
func (c Regenerate) canGoBack(v *View) (bool, error) {
	id := c.Target
	if v.RewindPoint != nil && v.Answer != nil && v.Answer.Run != nil && len(c.Messages) == 0 {
		id = v.RewindPoint.Message.ID
	}
	return c.showsUserMessage(v, id)
}

// alreadyAnswered reports whether the newest answer is the requested one. Conflict (RUN_STALE)
// if the answer was replaced and the conversation has moved on since.
func (c Regenerate) alreadyAnswered(views []*View, found bool) (bool, error) {
	v := views[0]
	if v.Current == nil {
		return false, nil
	}
	answer := v.Answer
	if answer == nil || answer.Run == nil { // any answer
		if !found || !v.wroteNewestAnswer(v.RewindPoint.answeringRun()) {
			return false, nil
		}
		if busy, err := isBusy(views); !busy || err != nil {
			return false, err
		}
		policy, err := c.busyPolicy(v)
		return policy == BusyReject || policy == BusyEnqueue, err
	}
	newest, start := v.wroteNewestAnswer(answer.Run), answer.Run.StartMessageCount
	behind := v.Current.TurnMessageCount > start
	switch {
	case newest, answer.QuestionInPlace && behind:
		return false, nil
	case behind && (v.RewindPoint == nil || !v.wroteNewestAnswer(v.RewindPoint.answeringRun())):
		return false, v.Session.runStale(c.Key)
	default:
		return true, nil
	}
}

// findQuestion asks for the last visible user message before the answer. NotFound
// (MESSAGE_NOT_FOUND) if there is none.
func (c Regenerate) findQuestion(v *View) error {
	if v.Answer == nil { // the target may be an answer
		return &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{AnswerID: c.Target}}}}
	}
	for _, m := range v.Answer.Questions {
		shown, err := c.Bodies.IsVisible(m)
		if err != nil {
			return err
		}
		if shown {
			return &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{RewindToMessage: m.ID}}}}
		}
	}
	return messageNotFound(c.Target)
}
