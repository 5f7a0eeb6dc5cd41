package session

// Commit makes a step durable. A repetition of the last committed step under
// the same epoch is answered as before and changes nothing.
//
// Faults: those of every write, Stale (STEP_STALE), Conflict
// (MESSAGE_EXISTS), TooLarge (STATE_SIZE_EXCEEDED).
type Commit struct {
	Ref
	Step         int32
	Messages     []Message
	Ops          []StateOp // applied after those of the journal
	Sequence     int64     // of the stream, where StreamStep ends
	StreamStep   int32     // the last step that is whole in the stream; at most Step
	Usage        []Usage   // goes behind that of the journal
	Outcome      *Outcome
	CheckpointID string
	Limits       Limits
	Now          Millis
}

// Need says what Decide wants to see. The custom state may be large, and most
// steps leave it as it is.
func (c Commit) Need() Need {
	return Need{RunID: c.RunID, MessageIDs: messageIDs(c.Messages), State: len(c.Ops) > 0, Written: true, Journal: true, Checkpoint: true}
}

// Decide commits the step. The answer is the step's checkpoint.
func (c Commit) Decide(v *View) (*Change, Checkpoint, error) {
	if err := c.owns(v); err != nil {
		return nil, Checkpoint{}, err
	}
	if c.repeats(v) {
		return nil, *v.Checkpoint, nil
	}
	if !v.Run.Status.Live() {
		return nil, Checkpoint{}, finished(v.Run)
	}
	if err := inFlight(v, c.Step); err != nil {
		return nil, Checkpoint{}, err
	}
	if err := unique(c.Messages, v.Taken); err != nil {
		return nil, Checkpoint{}, err
	}
	return c.write(v)
}

// repeats reports whether the view shows that this very step was committed by
// this very claim.
func (c Commit) repeats(v *View) bool {
	last := v.Checkpoint
	if last == nil || last.Step != c.Step || last.Epoch != c.Epoch || last.RunID != c.RunID {
		return false
	}
	if v.Run.Status.Live() {
		return c.Outcome == nil
	}
	return c.Outcome != nil && v.Run.FinishStep == c.Step && c.Outcome.equal(v.Run.Outcome)
}

func (c Commit) write(v *View) (*Change, Checkpoint, error) {
	merged, err := merge(v.Session.State, append(v.Journal.ops(), c.Ops...), c.Limits.State)
	if err != nil {
		return nil, Checkpoint{}, err
	}
	s, r := *v.Session, *v.Run
	change := &Change{Session: &s, ClearJournal: v.Journal != nil}
	change.Messages = place(c.Messages, s.MessageCount)
	s.Version++
	s.StepCount++
	s.MessageCount += int64(len(c.Messages))
	s.StreamSequence = max(s.StreamSequence, c.Sequence)
	s.StreamStep = max(s.StreamStep, c.StreamStep)
	s.UpdatedAt = c.Now
	r.StepCount++
	if merged.state != s.State {
		s.State, s.StateVersion, change.NewState = merged.state, s.Version, true
	}
	if c.Outcome != nil {
		end(&s, &r, *c.Outcome, c.Now)
		r.FinishStep = c.Step
	}
	change.Runs = []Run{r}
	change.Usage = entries(c.RunID, c.Step, c.Now, append(v.Journal.usage(), c.Usage...))
	change.Checkpoint = &Checkpoint{
		ID: c.CheckpointID, RunID: c.RunID, Step: c.Step, Epoch: c.Epoch, Version: s.Version, MessageCount: s.MessageCount,
		StreamSequence: s.StreamSequence, Status: s.Status, StateVersion: s.StateVersion, Warnings: merged.warnings, CreatedAt: c.Now,
	}
	return change, *change.Checkpoint, nil
}

func entries(runID string, step int32, at Millis, usage []Usage) []UsageEntry {
	list := make([]UsageEntry, len(usage))
	for i, u := range usage {
		list[i] = UsageEntry{RunID: runID, Step: step, Position: int32(i), At: at, Usage: u}
	}
	return list
}
