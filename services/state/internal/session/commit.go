package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
)

// Commit makes a step durable. A repeat under the same epoch returns the first answer and
// writes nothing, as long as no later step is committed. This holds after the next claim
// too if the step has ended its run.
//
// Family.Propagate applies the consequences of a step that ends its run. It also continues
// a session whose answers came before its suspension.
//
// Faults: as for ClaimRef, Stale (STEP_STALE, VERSION_STALE, ANSWER_CHANGED), Conflict
// (MESSAGE_EXISTS, CALL_EXISTS, CALL_UNANSWERED, CALL_CONSUMED, LOCATION_FIXED,
// CHILD_UNKNOWN, SESSION_EXISTS, TREE_TOO_LARGE), NotFound (UNKNOWN_TOOL_CALL), Invalid (OUTCOME_INVALID),
// TooLarge (STATE_SIZE_EXCEEDED).
type Commit struct {
	ClaimRef
	Step            int32
	ExpectedVersion int64 // 0 for any
	Messages        []Message
	Ops             []StateOp // applied after the ops of the results; includes the ops of the plan
	Record          []byte    // opaque, for Checkpoint.Record
	Usage           []Usage   // added after the journal's usage
	Calls           []Call    // opened by the step; Decide sets SessionID, RunID, Step and CreatedAt
	Consume         []Consume // answers in the step's messages
	LateReported    []string  // ids of calls whose late answer is in the step's messages
	Children        []Child   // new or updated
	NewChildren     []NewChild
	Outcome         *Outcome
	Suspension      *Suspension // with a suspending outcome
	ExpireAfter     Millis      // how long to keep a suspended session; 0 for ever
	CheckpointID    string
	Limits          Limits
	Now             Millis
}

// Need lists the rows for Decide. It asks for the state, the calls and the children only
// if the step touches them.
func (c Commit) Need() Need {
	need := Need{
		RunID: c.RunID, MessageIDs: messageIDs(c.Messages), CallIDs: c.callIDs(), CallsOfStep: true, CheckpointStep: c.Step,
		State: len(c.Ops) > 0, StateIfWritten: true, Journal: true,
		Current: c.suspends(), Calls: c.suspends() || c.fails(),
		Children: len(c.Children)+len(c.NewChildren) > 0 || slices.ContainsFunc(c.Calls, Call.awaitsChild),
	}
	if len(c.NewChildren) > 0 {
		need.LiveBelow = c.Limits.Tree
	}
	return need
}

func (c Commit) suspends() bool { return c.Outcome != nil && Status(c.Outcome.Status).Suspended() }

func (c Commit) fails() bool { return c.Outcome != nil && c.Outcome.Status == RunFailed }

// Decide commits the step and returns its checkpoint.
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

// isRepeat reports whether the same claim has committed the same step before.
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

// wasUndone reports whether this step has ended the run and was undone since, with its
// checkpoint. It is certain while no later step is committed; afterwards only if the stop
// of the run asked for the undo.
func (c Commit) wasUndone(v *View) bool {
	if v.Session == nil || v.Run == nil || v.Checkpoint != nil || c.Outcome == nil || c.Epoch != v.Run.Epoch {
		return false
	}
	r := v.Run
	return r.Status.Ended() && r.FinishStep == c.Step && c.Outcome.equal(r.Outcome) &&
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
	if s.Status != Failed {
		if err := c.beginChildren(v, change); err != nil {
			return nil, Checkpoint{}, err
		}
	}
	change.Runs = []Run{r}
	change.Checkpoint = &Checkpoint{
		ID: c.CheckpointID, RunID: c.RunID, Step: c.Step, Epoch: c.Epoch, Version: s.Version, MessageCount: s.MessageCount,
		Status: s.Status, StateVersion: s.StateVersion, StateBase: s.StateBase,
		Warnings: merged.warnings, CreatedAt: c.Now, Record: c.Record,
	}
	answer := *change.Checkpoint
	answer.Record = nil // as in the answer to a repeat
	return change, answer, nil
}

// advance counts the step and moves the position behind it.
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

// endRun ends the run if the step has an outcome.
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

// suspend records the awaited calls of the session. A stop that came during the step takes effect here: no executor
// will look at the ended run.
func (c Commit) suspend(v *View, change *Change, r *Run) error {
	s := change.Session
	s.Suspension = &Suspension{}
	if c.Suspension != nil {
		*s.Suspension = *c.Suspension
	}
	calls := change.unconsumedCalls(v)
	if len(calls) == 0 {
		return fault.New(fault.Invalid, "OUTCOME_INVALID",
			"outcome %s needs a call that is unconsumed after the step; add the calls to the same step", r.Status)
	}
	ofOthers := func(c Call) bool { return c.Kind == SubAgent || c.Kind == Callback }
	if r.Status == RunSuspendedAwaitingChildren && !slices.ContainsFunc(calls, ofOthers) {
		return fault.New(fault.Invalid, "OUTCOME_INVALID", "outcome %s needs an unconsumed call of a sub-agent or for a callback", r.Status)
	}
	if r.Stop != nil {
		s.applyStop(*r.Stop, r.RunID, c.Now)
		if s.Status == Failed {
			change.dropCallsOfRun(v, "")
		}
		return nil
	}
	if !awaitsAny(calls) {
		calls = change.adoptCalls(calls, r.RunID)
	}
	if c.ExpireAfter > 0 {
		c.setExpiry(s, calls)
	}
	return nil
}

// setExpiry keeps the suspended session at least until the deadlines of its awaited calls. A
// session that awaits a child never expires: the child does, and its end answers the call.
func (c Commit) setExpiry(s *Session, calls []Call) {
	if slices.ContainsFunc(calls, Call.awaitsChild) {
		return
	}
	s.ExpiresAt = c.Now + c.ExpireAfter
	for _, call := range calls {
		if call.isAwaited() {
			s.ExpiresAt = max(s.ExpiresAt, call.DeadlineAt)
		}
	}
}

// adoptCalls assigns orphaned open calls to the run: if it suspends on nothing else, it
// waits for them.
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
