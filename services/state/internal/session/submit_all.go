package session

import "slices"

// SubmitAll gives answers to calls of one session, all in one write: a session
// that has waited for all of them is continued once. Each answer is taken as by
// Submit, one after the other, so of two to one call the first counts. But it is for
// who does not know which calls are open: what cannot be taken changes nothing, and
// its status says why. An answer of the wrong kind is a fault only where its call is
// open.
//
// Faults: NotFound (SESSION_NOT_FOUND), Invalid (KIND_MISMATCH), and what
// Answer.Refusal says. Nothing is stored then.
//
// A session that was interrupted or paused does not go on by itself, but GoOn may say that
// these answers resume it: then its next run begins in the same write.
type SubmitAll struct {
	Key         // the session that owns the calls
	Answers     []Answer
	NewRunID    string // of the run that goes on, if there is one
	GoOn        GoOn
	Traceparent string // of a run that resumes the session
	Tracestate  string
	Now         Millis
}

// GoOn says when answers resume a session that was interrupted or paused.
type GoOn int

// The values of GoOn.
const (
	GoOnNever    GoOn = iota
	GoOnAsked         // when the newest run has made one of the calls
	GoOnAnswered      // also when the newest run was stopped before it took the answers to calls of a run before it
)

// Need says what Decide wants to see.
func (c SubmitAll) Need() Need {
	return Need{CallIDs: callIDs(c.Answers), Calls: true, Current: true}
}

// callIDs returns the ids of the calls that the answers are for, each once.
func callIDs(answers []Answer) []string {
	ids := make([]string, len(answers))
	for i, a := range answers {
		ids[i] = a.CallID
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Decide takes the answers. There is one Submitted for each of them, in their
// order; the continuation is that of all.
func (c SubmitAll) Decide(v *View) (*Change, []Submitted, error) {
	if v.Session == nil {
		return nil, nil, NoSession(c.Key)
	}
	calls := make(map[string]Call, len(v.Named))
	for _, call := range v.Named {
		if call.SessionID == c.SessionID {
			calls[call.CallID] = call
		}
	}
	over := v.Session.Status.Terminal()
	all := make([]Submitted, len(c.Answers))
	changed := map[string]bool{}
	for i, answer := range c.Answers {
		call, known := calls[answer.CallID]
		if !known {
			all[i].Status = UnknownCall
			continue
		}
		call, status, news, err := answer.tryApply(call, over, c.Now)
		if err != nil {
			return nil, nil, err
		}
		calls[call.CallID], all[i] = call, Submitted{Status: status, Call: call}
		changed[call.CallID] = changed[call.CallID] || news
	}
	change := &Change{}
	for _, id := range callIDs(c.Answers) {
		if changed[id] {
			change.Calls = append(change.Calls, calls[id])
		}
	}
	if len(change.Calls) > 0 {
		change.continueSession(v, c.NewRunID, c.Now)
	}
	if c.resumesSession(change, v, calls) {
		c.beginResumedRun(change, v)
	}
	next := withContinuation(v, change, Submitted{})
	for i := range all {
		all[i].Continuation, all[i].RunID = next.Continuation, next.RunID
	}
	if change.NewRun == nil && len(change.Calls) == 0 {
		change = nil
	}
	return change, all, nil
}

// resumesSession reports whether the answers resume a session that was interrupted or paused: it
// waits for nothing after the change, and no run has taken the answers yet. calls are those
// that the answers are for.
func (c SubmitAll) resumesSession(change *Change, v *View, calls map[string]Call) bool {
	s := v.Session.Status
	if c.GoOn == GoOnNever || s != Interrupted && s != Paused || v.Current == nil || slices.ContainsFunc(change.unconsumedCalls(v), Call.isAwaited) {
		return false
	}
	for _, call := range calls {
		mine := call.RunID == v.Session.CurrentRunID || c.GoOn == GoOnAnswered && call.RunID != ""
		if mine && !call.isOpen() && call.ConsumedAt == 0 {
			return true
		}
	}
	return false
}

// beginResumedRun begins the run that goes on in the message of the calls.
func (c SubmitAll) beginResumedRun(change *Change, v *View) {
	change.Session = nextChange(v).Session
	post := Post{Key: c.Key, RunID: c.NewRunID, MessageID: v.Current.MessageID, Traceparent: c.Traceparent, Tracestate: c.Tracestate, Now: c.Now}
	post.beginRun(change, EntryResume)
}

// tryApply is take for an answer that may be of the wrong kind, or refused: Invalid
// (KIND_MISMATCH) where the call is open, Answer.Refusal where it would be taken.
func (a Answer) tryApply(call Call, over bool, now Millis) (after Call, status SubmitStatus, news bool, err error) {
	switch {
	case a.matches(call):
		after, status, news = a.apply(call, over, now)
		if news && a.Refusal != nil {
			return call, "", false, a.Refusal
		}
		return after, status, news, nil
	case !call.isOpen():
		return call, AlreadyCompleted, false, nil
	case over:
		return call, NotContinuable, false, nil
	default:
		return call, "", false, a.mismatch(call)
	}
}
