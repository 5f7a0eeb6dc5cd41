package session

import "slices"

// HandOver claims a new run in the write that begins it, so that the executor receives it
// without a lookup. It writes the same rows as the command followed by Claim.
type HandOver struct {
	Claim
	Tail     Tail // of the conversation, sent with the claim
	MaxBytes int  // size limit of the claim; a larger one is left queued
}

// Need adds the rows for HandOver to the need of the command.
func (c HandOver) Need(n Need) Need {
	n.State, n.Live, n.Journal, n.Calls = true, true, true, true
	n.Tail, n.ExecutorID = c.Tail, c.ExecutorID
	return n
}

// Decide claims the run that own begins, and updates own accordingly. It returns the view
// as Claim would have received it, and Claim's change.
//
// Both are nil, own is unchanged and the run stays queued if own.CanHandOver is false, a
// run or a journal exists already, the executor is not registered, the run is not due, or
// the claim is larger than Bytes.
func (c HandOver) Decide(v *View, own *Change) (*View, *Change, error) {
	if !v.ExecutorRegistered || !own.CanHandOver() || v.Live != nil || v.Journal != nil {
		return nil, nil, nil
	}
	begun := &View{
		Session: own.Session, Run: own.NewRun, Definition: own.NewRun.Definition,
		Calls: own.carriedCalls(v), Tail: c.Tail.extend(v.Tail, own.Messages),
	}
	if begun.claimSize() > c.MaxBytes {
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

// CanHandOver reports whether HandOver may claim the run of the change: it is queued, the
// newest, and the change alters nothing else that a claim carries but messages, answers
// and state. The definition of a stored agent must be known.
func (change *Change) CanHandOver() bool {
	return change != nil && !change.Delete && change.Session != nil && change.NewRun != nil &&
		change.NewRun.Status == RunQueued && change.NewRun.RunID == change.Session.CurrentRunID &&
		(change.NewRun.AgentType != StoredAgents || change.NewRun.Definition != "") &&
		change.Dequeued == nil && change.WaitingInput == nil && change.Rewind == nil && change.Copy == nil && len(change.Runs) == 0 &&
		change.Plan == nil && change.Result == nil && len(change.NewCalls) == 0
}

// extend returns the tail of the shown messages followed by more.
func (t Tail) extend(shown, more []Message) []Message {
	all := slices.Concat(shown, more)
	from, size := len(all), 0
	for from > 0 && len(all)-from < t.MaxMessages {
		size += len(all[from-1].Body)
		if size > t.MaxBytes && from < len(all) {
			break
		}
		from--
	}
	return all[from:]
}

// claimSize estimates the size in bytes of a claim of the view's run.
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
