package session

// Timeout answers the open calls of a session whose deadline has passed, and
// continues the session as an answer of a client does. Calls of a session that
// does not wait for them are answered too: they are overdue for good.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type Timeout struct {
	Key
	Response func(Call) []byte // what the next step reads as the answer
	NewRunID string            // of the continuation, if there is one
	Now      Millis
}

// Need says what Decide wants to see.
func (c Timeout) Need() Need { return Need{Calls: true, Current: true} }

// Decide answers the calls that are overdue, and returns them. The change is
// nil when none is.
func (c Timeout) Decide(v *View) (*Change, []Call, error) {
	if v.Session == nil {
		return nil, nil, NoSession(c.Key)
	}
	var calls []Call
	for _, call := range v.Calls {
		if call.isOpen() && call.DeadlineAt != 0 && call.DeadlineAt <= c.Now {
			calls = append(calls, call.withAnswer(AnswerTimeout, c.Response(call), c.Now))
		}
	}
	if len(calls) == 0 {
		return nil, nil, nil
	}
	change := &Change{Calls: calls}
	change.continueSession(v, c.NewRunID, c.Now)
	return change, calls, nil
}
