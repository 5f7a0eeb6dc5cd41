package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Finish ends a run outside of a step. A repetition of it under the same
// epoch is answered as before and changes nothing, even if the session's next
// run was claimed since. The journal is cleared, but
// its usage is kept, and so are the answers consumed to which its calls run. What
// becomes of the family is for Family.Spread.
//
// Faults: those of every write, Invalid (OUTCOME_INVALID): a run suspends with
// a step.
type Finish struct {
	Ref
	Outcome Outcome
	Usage   []Usage // goes behind that of the journal
	Now     Millis
}

// Need says what Decide wants to see.
func (c Finish) Need() Need { return Need{RunID: c.RunID, Journal: true, Calls: true} }

// Decide ends the run. The answer is the session's version after it.
func (c Finish) Decide(v *View) (*Change, int64, error) {
	if c.hasEndedRun(v) && c.isRepeat(v.Run) {
		return nil, v.Run.FinishVersion, nil
	}
	if err := c.checkOwner(v); err != nil {
		return nil, 0, err
	}
	if !v.Run.Status.Live() {
		if c.isRepeat(v.Run) {
			return nil, v.Run.FinishVersion, nil
		}
		return nil, 0, runFinished(v.Run)
	}
	if Status(c.Outcome.Status).Suspended() {
		return nil, 0, fault.New(fault.Invalid, "OUTCOME_INVALID", "a run suspends with the commit of the step whose calls are open, not outside of a step")
	}
	s, r := *v.Session, *v.Run
	s.Version++
	s.UpdatedAt = c.Now
	change := &Change{
		Session: &s, ClearJournal: v.Journal != nil,
		Usage: usageEntries(c.RunID, s.StepCount+1, c.Now, append(v.Journal.usage(), c.Usage...)),
	}
	change.consumeJournalAnswers(v, c.Now)
	s.endOutsideStep(&r)
	change.endRun(v, &r, c.Outcome, c.Now)
	change.Runs = []Run{r}
	return change, s.Version, nil
}

// isRepeat reports whether the finished run ended like this, outside of a step.
func (c Finish) isRepeat(r *Run) bool { return r.FinishStep == 0 && c.Outcome.equal(r.Outcome) }

// consumeJournalAnswers consumes the answers to the calls that the journal names: they may have
// run for these already, and nobody will know when the journal is cleared. No message
// holds them, so it is no step that takes them.
func (change *Change) consumeJournalAnswers(v *View, now Millis) {
	if v.Journal == nil {
		return
	}
	for _, call := range change.unconsumedCalls(v) {
		if !call.isOpen() && slices.Contains(v.Journal.CallIDs, call.CallID) {
			call.ConsumedAt = now
			change.putCall(call)
		}
	}
}

// endRun writes the outcome into the session's row and the run's. The session's
// version is the one after the write.
//
// A run that fails takes its open calls with it: nobody could use the answers,
// and no model takes a call without a result. A call that still holds somebody's
// message stays, but no suspension waits for it.
func (change *Change) endRun(v *View, r *Run, o Outcome, now Millis) {
	s := change.Session
	s.Status = statusAfter(o.Status)
	s.Output, s.Failure = o.Output, o.Failure
	s.Interruption = nil
	r.Status = o.Status
	r.Outcome = o
	r.ExecutorID = ""
	r.CompletedAt = now
	r.FinishVersion = s.Version
	if o.Status == RunFailed {
		change.dropCallsOfRun(v, r.RunID)
	}
	if o.Status == RunInterrupted {
		s.Interruption = &Interruption{RunID: r.RunID, At: now}
		if r.Stop != nil {
			s.Interruption.Reason = r.Stop.Reason
		}
	}
}

// dropCallsOfRun lets the open calls of a run go, or those of all runs for an empty id.
// The new ones among them are not made at all. One with a stash stays, without
// a run.
func (change *Change) dropCallsOfRun(v *View, runID string) {
	mine := func(call Call) bool { return call.isOpen() && (runID == "" || call.RunID == runID) }
	var made []Call
	for _, call := range change.NewCalls {
		switch {
		case !mine(call):
			made = append(made, call)
		case len(call.Stash) > 0:
			call.RunID = ""
			made = append(made, call)
		}
	}
	change.NewCalls = nil
	for _, call := range change.unconsumedCalls(v) {
		switch {
		case !mine(call):
		case len(call.Stash) == 0:
			change.DropCalls = append(change.DropCalls, call.CallID)
		case call.RunID != "":
			call.RunID = ""
			change.Calls = append(change.Calls, call)
		}
	}
	change.NewCalls = made
}

// statusAfter is the session's status after a run with the outcome. The names
// are the same: what a run ended as is what the session is.
func statusAfter(r RunStatus) Status { return Status(r) }
