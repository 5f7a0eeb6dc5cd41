package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
)

// Commit makes a step durable. A repetition of the last committed step under
// the same epoch is answered as before and changes nothing: that of one which
// ended its run also when the next run was claimed since, for as long as no step
// follows it.
//
// A step that suspends the session, fails it or ends it goes through
// Family.Spread, which also continues a session whose answers were faster than
// its suspension.
//
// Faults: those of every write, Stale (STEP_STALE, VERSION_STALE,
// ANSWER_CHANGED), Conflict (MESSAGE_EXISTS, CALL_EXISTS, CALL_UNANSWERED,
// CALL_CONSUMED, LOCATION_FIXED, CHILD_UNKNOWN), NotFound (UNKNOWN_TOOL_CALL),
// Invalid (OUTCOME_INVALID), TooLarge (STATE_SIZE_EXCEEDED).
type Commit struct {
	Ref
	Step            int32
	ExpectedVersion int64 // 0 for any
	Messages        []Message
	Ops             []StateOp // applied after those of the journal's results; those of its plan are among them
	Record          []byte    // opaque, for Checkpoint.Record
	Usage           []Usage   // goes behind that of the journal
	Calls           []Call    // that somebody outside answers from now on; SessionID, RunID, Step and CreatedAt are given by Decide
	Consume         []Consume // the answers that the step's messages hold
	Told            []string  // the calls of whose late answers the step's messages tell
	Children        []Child   // new ones, and what is new of those known
	Outcome         *Outcome
	Suspension      *Suspension // of an outcome that suspends
	ExpireAfter     Millis      // how long a suspended session is kept; 0 for ever
	CheckpointID    string
	Limits          Limits
	Now             Millis
}

// Need says what Decide wants to see. The custom state may be large, and most
// steps leave it, the calls and the children as they are.
func (c Commit) Need() Need {
	return Need{
		RunID: c.RunID, MessageIDs: messageIDs(c.Messages), CallIDs: c.callIDs(), CheckpointAt: c.Step,
		State: len(c.Ops) > 0, Written: true, Journal: true,
		Current: c.suspends(), Calls: c.suspends() || c.fails(), Children: len(c.Suspension.awaitedChildren())+len(c.Children) > 0,
	}
}

func (c Commit) suspends() bool { return c.Outcome != nil && Status(c.Outcome.Status).Suspended() }
func (c Commit) fails() bool    { return c.Outcome != nil && c.Outcome.Status == RunFailed }

// Decide commits the step. The answer is the step's checkpoint.
func (c Commit) Decide(v *View) (*Change, Checkpoint, error) {
	if c.hasEndedRun(v) && c.isRepeat(v) {
		return nil, *v.Checkpoint, nil
	}
	if c.wasUndone(v) {
		return nil, Checkpoint{RunID: c.RunID, Step: c.Step, Version: v.Run.FinishVersion, MessageCount: v.Session.MessageCount}, nil
	}
	if err := c.checkOwner(v); err != nil {
		return nil, Checkpoint{}, err
	}
	if c.isRepeat(v) {
		return nil, *v.Checkpoint, nil
	}
	if !v.Run.Status.Live() {
		return nil, Checkpoint{}, runFinished(v.Run)
	}
	if err := checkStep(v, c.Step); err != nil {
		return nil, Checkpoint{}, err
	}
	if err := v.Session.checkVersion(c.ExpectedVersion); err != nil {
		return nil, Checkpoint{}, err
	}
	if err := v.checkMessageIDs(c.Messages, v.Session.MessageCount); err != nil {
		return nil, Checkpoint{}, err
	}
	return c.commit(v)
}

// isRepeat reports whether the view shows that this very step was committed by
// this very claim.
func (c Commit) isRepeat(v *View) bool {
	last := v.Checkpoint
	if last == nil || last.Step != c.Step || last.Epoch != c.Epoch || last.RunID != c.RunID {
		return false
	}
	if v.Run.Status.Live() {
		return c.Outcome == nil
	}
	return c.Outcome != nil && v.Run.FinishStep == c.Step && c.Outcome.equal(v.Run.Outcome)
}

// wasUndone reports whether this very step has ended the run, and its checkpoint is
// gone: the run was taken back, or the session was. Nothing is left of what the
// commit has answered. Behind further steps that is known of a run only that was
// asked to end so.
func (c Commit) wasUndone(v *View) bool {
	if v.Session == nil || v.Run == nil || v.Checkpoint != nil || c.Outcome == nil || c.Epoch != v.Run.Epoch {
		return false
	}
	r := v.Run
	return r.Status.Over() && r.FinishStep == c.Step && c.Outcome.equal(r.Outcome) &&
		(v.Session.StepCount == c.Step || r.Stop != nil && r.Stop.Undo)
}

func (c Commit) commit(v *View) (*Change, Checkpoint, error) {
	ops := slices.Concat(v.Journal.resultOps(), c.Ops)
	merged, err := merge(v.Session.State, ops, c.Limits.State)
	if err != nil {
		return nil, Checkpoint{}, err
	}
	s, r := *v.Session, *v.Run
	change := &Change{Session: &s, ClearJournal: v.Journal != nil}
	c.advance(&s, &r)
	change.Messages = withOrdinals(c.Messages, v.Session.MessageCount)
	change.Usage = usageEntries(c.RunID, c.Step, c.Now, append(v.Journal.usage(), c.Usage...))
	s.storeState(change, ops, merged.state)
	if err := c.changeCalls(v, change); err != nil {
		return nil, Checkpoint{}, err
	}
	if err := c.changeChildren(v, change); err != nil {
		return nil, Checkpoint{}, err
	}
	if err := c.endRun(v, change, &r); err != nil {
		return nil, Checkpoint{}, err
	}
	change.Runs = []Run{r}
	change.Checkpoint = &Checkpoint{
		ID: c.CheckpointID, RunID: c.RunID, Step: c.Step, Epoch: c.Epoch, Version: s.Version, MessageCount: s.MessageCount,
		Status: s.Status, StateVersion: s.StateVersion, StateBase: s.StateBase,
		Warnings: merged.warnings, CreatedAt: c.Now, Record: c.Record,
	}
	answer := *change.Checkpoint
	answer.Record = nil // as a repetition is answered
	return change, answer, nil
}

// advance moves the counters and the position over the step.
func (c Commit) advance(s *Session, r *Run) {
	s.Version++
	s.StepCount++
	s.MessageCount += int64(len(c.Messages))
	s.CheckpointID = c.CheckpointID
	s.UpdatedAt = c.Now
	s.Position, s.Claims = position.Committed(c.Step), 0
	r.StepCount++
	r.Losses = 0
}

// endRun ends the run with the step, if the step has an outcome.
func (c Commit) endRun(v *View, change *Change, r *Run) error {
	if c.Outcome == nil {
		return nil
	}
	r.FinishStep = c.Step
	r.EndPosition = position.Ended(c.Step)
	change.Session.Position = r.EndPosition
	change.endRun(v, r, *c.Outcome, c.Now)
	if c.suspends() {
		return c.suspend(v, change, r)
	}
	return nil
}

// suspend notes what the session waits for. A stop that came while the step
// was on its way takes effect here: the run that it was meant for looks no more.
func (c Commit) suspend(v *View, change *Change, r *Run) (err error) {
	s := change.Session
	if s.Suspension, err = c.Suspension.withCurrentStatuses(v, change); err != nil {
		return err
	}
	calls := change.unconsumedCalls(v)
	if r.Status == RunSuspendedAwaitingChildren && len(s.Suspension.Children) == 0 {
		return fault.New(fault.Invalid, "OUTCOME_INVALID", "the outcome %s names no sub-session to wait for in its suspension", r.Status)
	}
	if r.Status != RunSuspendedAwaitingChildren && len(calls) == 0 {
		return fault.New(fault.Invalid, "OUTCOME_INVALID", "the outcome %s needs a call that waits for its answer after the step; add the calls to the same step", r.Status)
	}
	if r.Stop != nil {
		s.applyStop(*r.Stop, r.RunID, c.Now)
		if s.Status == Failed {
			change.dropCallsOfRun(v, "")
		}
		return nil
	}
	if len(s.Suspension.Children) == 0 && !slices.ContainsFunc(calls, Call.isAwaited) {
		calls = change.adoptCalls(calls, r.RunID)
	}
	if c.ExpireAfter > 0 {
		c.setExpiry(s, calls)
	}
	return nil
}

// setExpiry says until when the suspended session is kept: for as long as it waits
// for one of the calls, at least.
func (c Commit) setExpiry(s *Session, calls []Call) {
	s.ExpiresAt = c.Now + c.ExpireAfter
	for _, call := range calls {
		if call.isAwaited() {
			s.ExpiresAt = max(s.ExpiresAt, call.DeadlineAt)
		}
	}
	if len(s.Suspension.Children) > 0 {
		s.Suspension.Keep, s.Suspension.ExpiresAt = c.ExpireAfter, s.ExpiresAt
		s.ExpiresAt = s.Suspension.expiry()
	}
}

// adoptCalls lets the run wait for the open calls that nobody waits for any more: a
// run that suspends on nothing else means them.
func (change *Change) adoptCalls(calls []Call, runID string) []Call {
	adopted := slices.Clone(calls)
	for i := range adopted {
		if call := &adopted[i]; call.isOpen() {
			call.RunID = runID
			change.Calls = append(change.Calls, *call)
		}
	}
	return adopted
}

func usageEntries(runID string, step int32, at Millis, usage []Usage) []UsageEntry {
	list := make([]UsageEntry, len(usage))
	for i, u := range usage {
		list[i] = UsageEntry{RunID: runID, Step: step, Position: int32(i), At: at, Usage: u}
	}
	return list
}
