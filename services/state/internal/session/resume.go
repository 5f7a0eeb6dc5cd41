package session

import (
	"slices"
)

// Resume continues a stopped session, from its end or from a checkpoint.
//
// Faults: as for RunRequest, and Conflict (SESSION_SUSPENDED, SESSION_COMPLETED,
// RUN_CANCELLED), NotFound (CHECKPOINT_NOT_FOUND), TooLarge (STATE_SIZE_EXCEEDED),
// Invalid (STATE_INVALID).
type Resume struct {
	RunRequest
	CheckpointID string // to rewind to first; empty for none
	Addition
}

// Need lists the rows for Decide.
func (c Resume) Need() Need {
	need := c.need()
	need.MessageIDs = append(messageIDs(c.allMessages(c.Messages)), c.EarlierIDs...)
	need.CheckpointID, need.Children = c.CheckpointID, c.CheckpointID != ""
	need.Calls, need.Current, need.OwnAgent = true, true, need.OwnAgent || len(c.Ops) > 0 || c.CheckpointID != ""
	return need
}

// Decide begins the run.
// The first view is the session's; the others may include its descendants.
func (c Resume) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	if v.KeyedRun != nil {
		return c.answerRepeat(v, EntryResume)
	}
	if err := c.checkResumable(views); err != nil {
		return nil, Started{}, err
	}
	remaining := v.Session.MessageCount
	if c.CheckpointID != "" {
		remaining = min(remaining, v.Checkpoint.MessageCount)
	}
	if err := v.checkMessageIDs(c.allMessages(c.Messages), remaining); err != nil {
		return nil, Started{}, err
	}
	change := &Change{Session: v.nextVersion(c.Now)}
	if c.CheckpointID != "" {
		change.rewind(v)
		if err := c.Schemas.addDefaults(change, v.OwnAgent); err != nil {
			return nil, Started{}, err
		}
	} else {
		if err := c.takeAnswers(change, v); err != nil {
			return nil, Started{}, err
		}
		change.abandonOpenCalls(v, c.Abandon, c.Now)
	}
	if err := c.resumeRun(change, v, c.Addition); err != nil {
		return nil, Started{}, err
	}
	change.NewRun.inheritAuthor(v.Current)
	if c.continuesMessage(v) {
		change.NewRun.MessageID = v.Current.MessageID
	}
	return change, change.started(), nil
}

func (c Resume) checkResumable(views []*View) error {
	v := views[0]
	if err := c.checkTarget(v); err != nil {
		return err
	}
	busy, err := isBusy(views)
	if err != nil {
		return err
	}
	s := v.Session
	switch {
	case s == nil:
		return SessionNotFound(c.Key)
	case c.CheckpointID != "" && v.Checkpoint == nil:
		return checkpointNotFound(c.CheckpointID)
	case busy, c.CheckpointID != "" && s.Waiting > 0:
		return sessionBusy(s)
	case c.CheckpointID != "":
		return nil
	case s.Status == Completed:
		return s.completed()
	case !s.Status.Suspended():
		return c.checkNotAborted(s)
	}
	if open := len(slices.DeleteFunc(slices.Clone(v.Calls), func(call Call) bool { return !call.isAwaited() })); open > 0 && c.Abandon == nil {
		return s.conflict("SESSION_SUSPENDED",
			"session %q waits for the answers to %d calls (%s); submit them or abandon them", c.SessionID, open, s.Status)
	}
	return nil
}

func (s *Session) completed() error {
	return s.conflict("SESSION_COMPLETED",
		"session %q is completed: there is nothing to resume or to retry; start a run with a message", s.SessionID)
}

// continuesMessage reports whether the run continues the message of the newest run, like a
// continuation, because it takes answers to calls in that message.
func (c Resume) continuesMessage(v *View) bool {
	return c.Abandon == nil && c.CheckpointID == "" && len(c.allMessages(c.Messages)) == 0 && v.Current != nil &&
		slices.ContainsFunc(v.Calls, func(call Call) bool { return call.ConsumedAt == 0 && call.RunID != "" })
}
