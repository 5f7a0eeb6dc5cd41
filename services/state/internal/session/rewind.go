package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// RewindTo resets the messages and the custom state of a session to a checkpoint. Steps keep
// counting: no step number is used twice. Calls of undone steps and open calls are deleted,
// so their ids are unknown and free again. Children that the session waits for end.
// Family.Propagate applies the consequences for the family.
//
// Faults: NotFound (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND), Conflict (SESSION_BUSY).
type RewindTo struct {
	Key
	CheckpointID string
	Schemas      SchemaFuncs
	Now          Millis
}

// Need lists the rows for Decide.
func (c RewindTo) Need() Need {
	return Need{CheckpointID: c.CheckpointID, Live: true, Calls: true, Children: true, OwnAgent: true}
}

// Decide rewinds and pauses the session.
func (c RewindTo) Decide(v *View) (*Change, Session, error) {
	if err := c.checkIdle(v); err != nil {
		return nil, Session{}, err
	}
	to := v.Checkpoint
	if to == nil {
		return nil, Session{}, checkpointNotFound(c.CheckpointID)
	}
	s := v.nextVersion(c.Now)
	s.Status = Paused
	change := &Change{Session: s}
	change.rewind(v)
	if err := c.Schemas.addDefaults(change, v.OwnAgent); err != nil {
		return nil, Session{}, err
	}
	s.Output, s.Failure, s.Suspension, s.Interruption = "", nil, nil, nil
	return change, *s, nil
}

// rewind resets the session to the view's checkpoint, except for its status.
func (change *Change) rewind(v *View) {
	s, to := change.Session, v.Checkpoint
	// Truncated messages do not come back.
	s.MessageCount = min(s.MessageCount, to.MessageCount)
	s.restoreState(v.CheckpointState, to.StateVersion, to.StateBase)
	s.resetToCheckpoint(to)
	change.Rewind = &Rewind{Messages: s.MessageCount, StateVersion: to.StateVersion, Step: to.Step, CallsFrom: to.Step + 1}
	change.dropOpenCalls(v)
}

func checkpointNotFound(id string) error {
	return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "the session has no checkpoint %q", id)
}
