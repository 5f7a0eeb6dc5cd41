package session

import (
	"cmp"
	"slices"
	"strings"
)

// HandOver claims the run that a command begins in the very write that begins it,
// so that nobody has to look for it. What is written is what the command and Claim
// would have written one after the other.
type HandOver struct {
	Claim
	Tail  Tail // of the conversation, that the claim carries
	Bytes int  // most that the claim may carry; a larger one is for who looks
}

// Need adds to what the command wants to see what a claim carries, and what it
// depends on.
func (c HandOver) Need(n Need) Need {
	n.State, n.Open, n.Journal, n.Calls = true, true, true, true
	n.Tail, n.Executor = c.Tail, c.ExecutorID
	return n
}

// Decide claims the run that own begins in the session of the view, and changes own
// accordingly. It returns the run with its session as Claim would have been shown
// them, and Claim's change.
//
// Both are nil, and own is as it was, where anything is out of the ordinary: own
// begins no run of its own that is due, the executor is not registered, more goes away or comes into being than what a start or an answer
// brings, or the claim would be too large. Such a run is queued.
func (c HandOver) Decide(v *View, own *Change) (*View, *Change, error) {
	if !v.ExecutorLives || !own.Begins() || v.Live != nil || v.Journal != nil {
		return nil, nil, nil
	}
	begun := &View{Session: own.Session, Run: own.NewRun, Calls: own.carriedCalls(v), Tail: c.Tail.extend(v.Tail, own.Messages)}
	if begun.claimSize() > c.Bytes {
		return nil, nil, nil
	}
	change, err := c.Claim.Decide(begun)
	if err != nil || change == nil {
		return nil, nil, err
	}
	session, run := *change.Session, change.Runs[0]
	own.Session, own.NewRun = &session, &run
	return begun, change, nil
}

// Begins reports whether the change begins a run that may be handed over with it:
// nothing in it makes what a claim carries other than the view shows it, but for
// messages, answers and writes.
func (change *Change) Begins() bool {
	return change != nil && !change.Delete && change.Session != nil && change.NewRun != nil && change.NewRun.Status == RunQueued && change.NewRun.RunID == change.Session.CurrentRunID &&
		change.Begun == nil && change.Held == nil && change.Rewind == nil && change.Copy == nil && len(change.Runs) == 0 &&
		change.Plan == nil && change.Result == nil && len(change.NewCalls) == 0
}

// carriedCalls returns the calls of the session that a claim carries after the change, in
// the order of View.Calls.
func (change *Change) carriedCalls(v *View) (calls []Call) {
	after := make(map[string]Call, len(v.Calls))
	for _, call := range slices.Concat(v.Calls, change.Calls) {
		after[call.CallID] = call
	}
	for _, call := range after {
		if (call.ConsumedAt == 0 || call.LateAt > 0 && !call.Told) && !change.dropsCall(call) {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.CallID, b.CallID))
	})
	return calls
}

// extend returns the tail of a conversation that ends with the shown messages, when
// more follow them.
func (t Tail) extend(shown, more []Message) []Message {
	all := slices.Concat(shown, more)
	from, size := len(all), 0
	for from > 0 && len(all)-from < t.Messages {
		size += len(all[from-1].Body)
		if size > t.Bytes && from < len(all) {
			break
		}
		from--
	}
	return all[from:]
}

// claimSize is about how many bytes the claim of the view's run carries.
func (v *View) claimSize() int {
	size := len(v.Session.State)
	for _, m := range v.Tail {
		size += len(m.Body)
	}
	for _, call := range v.Calls {
		size += len(call.Input) + len(call.Stash) + len(call.Response) + len(call.Late)
	}
	return size
}
