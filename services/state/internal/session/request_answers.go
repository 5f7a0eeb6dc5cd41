package session

import (
	"cmp"
	"math"
	"slices"
)

// takeAnswers takes the answers that the request brings, as SubmitAll takes them, but that none
// keeps the messages from being said: those to calls that go away, or are none of the
// session's, change nothing, and neither do those that do not fit, are refused, or would
// be more than one journal may have together with what is unread. Their calls stay open.
func (c Post) takeAnswers(change *Change, v *View) {
	if len(c.Answers) == 0 {
		return
	}
	calls := make(map[string]Call, len(v.Named))
	for _, call := range slices.Concat(v.Named, change.Calls) {
		if call.SessionID == c.SessionID && !change.dropsCall(call) {
			calls[call.CallID] = call
		}
	}
	room := cmp.Or(c.Limits.Journal, math.MaxInt) - change.Unread(v)
	for _, answer := range c.Answers {
		call, known := calls[answer.CallID]
		if !known {
			continue
		}
		after, _, news, err := answer.tryApply(call, false, c.Now)
		more := len(after.Response) + len(after.Late) - len(call.Response) - len(call.Late)
		if err != nil || !news || more > room {
			continue
		}
		room -= more
		calls[call.CallID] = after
		change.putCall(after)
	}
}

// refuseEarlyAnswers gives Unavailable (CALL_NOT_OPEN) for a request that is to wait and brings the
// answer to a call that the live run has planned and not opened: nobody would take the
// answer, and behind that run the session would wait for it. A step whose plan is not
// recorded, or has none, says nothing of its calls: their answers are passed over.
func (c Post) refuseEarlyAnswers(v *View) error {
	family := map[string]bool{}
	for _, call := range v.Named {
		family[call.CallID] = true
	}
	for _, answer := range c.Answers {
		switch {
		case family[answer.CallID]:
		case v.Live == nil:
			return &Wider{[]Target{{c.Key, Need{Open: true, Journal: true}}}}
		case v.Journal.mayOpen(answer.CallID):
			return callNotOpen(answer.CallID)
		}
	}
	return nil
}

// abandonOpenCalls answers the calls of the session that are still open, where the request
// says that nobody waits for them any more.
func (c Post) abandonOpenCalls(change *Change, v *View) {
	if c.Abandon == nil {
		return
	}
	for _, call := range change.unconsumedCalls(v) {
		if call.isOpen() {
			change.putCall(call.withAnswer(AnswerAbandoned, c.Abandon(call), c.Now))
		}
	}
}
