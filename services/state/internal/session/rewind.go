package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// RewindTo takes a session back to one of its checkpoints: its messages and its
// custom state. Steps are not numbered twice: the next one follows the last one
// that there ever was. Calls of the steps that did not happen go, whatever became of
// them, and so do open ones: answers find them unknown, and an id that a model gives
// once more is another call. The sub-sessions that it waits for end, as with a parent
// that fails. What becomes known to the family is for Family.Spread.
//
// Faults: NotFound (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND), Conflict
// (SESSION_BUSY).
type RewindTo struct {
	Key
	CheckpointID string
	Now          Millis
}

// Need says what Decide wants to see.
func (c RewindTo) Need() Need {
	return Need{CheckpointID: c.CheckpointID, Open: true, Calls: true, Children: true}
}

// Decide rewinds the session, which is paused then.
func (c RewindTo) Decide(v *View) (*Change, Session, error) {
	if err := c.checkIdle(v); err != nil {
		return nil, Session{}, err
	}
	to := v.Checkpoint
	if to == nil {
		return nil, Session{}, checkpointNotFound(c.CheckpointID)
	}
	s := *v.Session
	s.Version++
	s.Status = Paused
	change := &Change{Session: &s}
	change.rewind(v)
	s.Output, s.Failure, s.Suspension, s.Interruption = "", nil, nil, nil
	s.UpdatedAt = c.Now
	return change, s, nil
}

// rewind takes the session of the change back to the view's checkpoint, its
// status aside.
func (change *Change) rewind(v *View) {
	s, to := change.Session, v.Checkpoint
	// Messages may have been truncated since, and do not come back.
	s.MessageCount = min(s.MessageCount, to.MessageCount)
	s.State, s.StateVersion, s.StateBase = v.CheckpointState, to.StateVersion, to.StateBase
	s.StateWrites, s.StateBytes = maxStateWrites, 0 // the next write keeps a whole state: how many led here is not known
	s.resetToCheckpoint(to)
	change.Rewind = &Rewind{Messages: s.MessageCount, StateVersion: to.StateVersion, Step: to.Step, CallsFrom: to.Step + 1}
	change.dropOpenCalls(v)
	change.endAwaitedChildren(v)
}

func checkpointNotFound(id string) error {
	return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "the session has no checkpoint %q", id)
}
