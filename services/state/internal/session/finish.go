package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Finish ends a run outside of a step. A repeat under the same epoch returns the first
// answer and writes nothing, even after the next run was claimed.
//
// The journal is cleared and its usage is kept. Answers to its calls are consumed, since
// the calls may have run. Family.Propagate applies the consequences for the family.
//
// Faults: as for ClaimRef, and Invalid (OUTCOME_INVALID) for a suspending outcome.
type Finish struct {
	ClaimRef
	Outcome Outcome
	Usage   []Usage // added after the journal's usage
	Now     Millis
}

// Finished is the answer to Finish.
type Finished struct {
	Version int64  // of the session
	At      Millis // when the run ended
}

// Need lists the rows for Decide.
func (c Finish) Need() Need { return Need{RunID: c.RunID, Journal: true, Calls: true} }

// Decide ends the run.
func (c Finish) Decide(v *View) (*Change, Finished, error) {
	if c.hasEndedRun(v) && c.isRepeat(v.Run) {
		return nil, Finished{v.Run.FinishVersion, v.Run.CompletedAt}, nil
	}
	if err := c.checkOwner(v); err != nil {
		return nil, Finished{}, err
	}
	if !v.Run.Status.Live() {
		if c.isRepeat(v.Run) {
			return nil, Finished{v.Run.FinishVersion, v.Run.CompletedAt}, nil
		}
		return nil, Finished{}, runFinished(v.Run)
	}
	if Status(c.Outcome.Status).Suspended() {
		return nil, Finished{}, fault.New(fault.Invalid, "OUTCOME_INVALID",
			"a run cannot suspend outside of a step; commit the step with the open calls instead")
	}
	s, r := v.nextVersion(c.Now), *v.Run
	change := &Change{
		Session: s, ClearJournal: v.Journal != nil,
		Usage: usageEntries(c.RunID, s.StepCount+1, c.Now, append(v.Journal.usage(), c.Usage...)),
	}
	change.consumeJournalAnswers(v, c.Now)
	s.endOutsideStep(&r)
	change.endRun(v, &r, c.Outcome, c.Now)
	change.Runs = []Run{r}
	return change, Finished{s.Version, c.Now}, nil
}

// isRepeat reports whether the run ended outside of a step with this outcome.
func (c Finish) isRepeat(r *Run) bool { return r.FinishStep == 0 && c.Outcome.equal(r.Outcome) }

// consumeJournalAnswers consumes the answers to calls of the journal. These calls may have
// run already, and must not run again once the journal is cleared. ConsumedStep stays 0,
// because no step holds the answers.
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

// endRun writes the outcome into the rows of the session and the run. The session has its
// new version already.
//
// A failed run drops its open calls, since models reject a call without a result. A call
// with a stash stays as an orphan.
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

// dropCallsOfRun drops the open calls of a run, or of all runs for an empty id. A call with
// a stash loses its run instead.
func (change *Change) dropCallsOfRun(v *View, runID string) {
	dropped := func(call Call) bool { return call.isOpen() && (runID == "" || call.RunID == runID) }
	var made []Call
	for _, call := range change.NewCalls {
		switch {
		case !dropped(call):
			made = append(made, call)
		case len(call.Stash) > 0:
			call.RunID = ""
			made = append(made, call)
		default:
			change.notMade = append(change.notMade, call)
		}
	}
	change.NewCalls = nil
	for _, call := range change.unconsumedCalls(v) {
		switch {
		case !dropped(call):
		case len(call.Stash) == 0:
			change.DropCalls = append(change.DropCalls, call.CallID)
		case call.RunID != "":
			call.RunID = ""
			change.Calls = append(change.Calls, call)
		}
	}
	change.NewCalls = made
}

// statusAfter returns the session's status after a run with the outcome.
func statusAfter(r RunStatus) Status { return Status(r) }
