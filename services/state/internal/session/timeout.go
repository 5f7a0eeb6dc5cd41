package session

// TimeoutCalls answers the open calls of a session whose deadline has passed, and continues the
// session like an answer of a client. It answers the calls of any session, suspended or not.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type TimeoutCalls struct {
	Key
	Response func(Call) []byte // the answer for the next step
	NewRunID string            // of a continuation
	Now      Millis
}

// Need lists the rows for Decide.
func (c TimeoutCalls) Need() Need { return Need{Calls: true, Current: true} }

// Decide answers the overdue calls and returns them. The change is nil if there are none.
func (c TimeoutCalls) Decide(v *View) (*Change, []Call, error) {
	if v.Session == nil {
		return nil, nil, SessionNotFound(c.Key)
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
