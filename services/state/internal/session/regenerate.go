package session

// Regenerate answers a message of a user again. Where the conversation does not have the
// message, the messages of the request are sent.
//
// An answer is replaced once: who names an answer that is not there any more gets the one
// that stands in its place, and who names none gets the one that is being written.
//
// Faults: those of Send, and NotFound (MESSAGE_NOT_FOUND, CHECKPOINT_NOT_FOUND).
type Regenerate struct {
	Send
	Target   string // the id of the message, or of an answer to it
	AnswerID string // of the answer to replace; empty for whichever there is
}

// Need says what Decide wants to see.
func (c Regenerate) Need() Need {
	need := c.needRewind()
	need.BackTo, need.Answer = c.Target, c.AnswerID
	return need
}

// Decide begins the run. The views are those of Send.
func (c Regenerate) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	there, err := c.canGoBack(v)
	switch {
	case err != nil:
		return nil, Started{}, err
	case v.Keyed != nil, !there && len(c.Messages) > 0:
		return c.Send.Decide(views...)
	}
	if err := c.checkTarget(v); err != nil {
		return nil, Started{}, err
	}
	if v.Session == nil {
		return nil, Started{}, NoSession(c.Key)
	}
	switch made, err := c.alreadyAnswered(v, there); {
	case err != nil:
		return nil, Started{}, err
	case made:
		return nil, repeatedStart(v, v.Current), nil
	case !there:
		return nil, Started{}, c.findQuestion(v)
	}
	c.Messages = nil // the question stands
	change, err := c.rewindAndBegin(v, true)
	if err != nil {
		return nil, Started{}, err
	}
	return change, change.started(), nil
}

// canGoBack reports whether the message to go back to is shown: the one that is named, or the
// one that find has asked for.
func (c Regenerate) canGoBack(v *View) (bool, error) {
	id := c.Target
	if v.Back != nil && v.Answer != nil && v.Answer.Run != nil && len(c.Messages) == 0 {
		id = v.Back.Message.ID
	}
	return c.showsUserMessage(v, id)
}

// alreadyAnswered reports whether the newest answer is the one that the client asks for. Conflict
// (RUN_STALE): the answer was replaced, and the conversation has moved on since.
func (c Regenerate) alreadyAnswered(v *View, there bool) (bool, error) {
	if v.Current == nil {
		return false, nil
	}
	answer := v.Answer
	if answer == nil || answer.Run == nil { // whichever there is
		return there && v.Session.Status == Active && v.wroteNewestAnswer(v.Back.Run), nil
	}
	newest, start := v.wroteNewestAnswer(answer.Run), answer.Run.StartMessageCount
	behind := v.Current.TurnMessageCount > start
	switch {
	case newest, answer.Stands && behind:
		return false, nil
	case behind && (v.Back == nil || !v.wroteNewestAnswer(v.Back.Run)):
		return false, Stale(c.Key)
	default:
		return true, nil
	}
}

// findQuestion asks for the last message that users see before the answer, which is the one to
// go back to. NotFound (MESSAGE_NOT_FOUND).
func (c Regenerate) findQuestion(v *View) error {
	if v.Answer == nil { // the target may be the answer
		return &Wider{[]Target{{c.Key, Need{Answer: c.Target}}}}
	}
	for _, m := range v.Answer.Asked {
		shown, err := c.Bodies.Shown(m)
		if err != nil {
			return err
		}
		if shown {
			return &Wider{[]Target{{c.Key, Need{BackTo: m.ID}}}}
		}
	}
	return messageNotFound(c.Target)
}
