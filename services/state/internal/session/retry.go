package session

// Retry undoes the failed step of the newest run and begins a run in its place. If the first
// step of the run failed, Retry undoes the whole run, and the new run
// gets its messages.
//
// A step with tools that have run is kept, since a second run would repeat their effects;
// its calls all have results. So is the last allowed step.
//
// Faults: as for RunRequest, and of a session that has not failed, those of Resume (Conflict SESSION_BUSY,
// SESSION_COMPLETED, SESSION_SUSPENDED) or Conflict (SESSION_CHANGED), Conflict (RUN_CANCELLED), TooLarge
// (STATE_SIZE_EXCEEDED), Invalid (STATE_INVALID).
type Retry struct {
	RunRequest
	Addition
}

// Need lists the rows for Decide.
func (c Retry) Need() Need {
	need := c.need()
	need.MessageIDs = append(messageIDs(c.allMessages(c.Messages)), c.EarlierIDs...)
	need.Calls, need.Current, need.Children, need.FailedStep, need.Undo = true, true, true, true, true
	need.OwnAgent = need.OwnAgent || len(c.Ops) > 0
	return need
}

// Decide begins the run. The first view is the session's.
func (c Retry) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	if v.KeyedRun != nil {
		return c.answerRepeat(v, EntryResume)
	}
	if err := c.checkRetryable(v); err != nil {
		return nil, Started{}, err
	}
	keeps, err := c.keepsFailedStep(v)
	if err != nil {
		return nil, Started{}, err
	}
	if !keeps && v.Failed.Checkpoint == nil {
		return c.restart(v)
	}
	change, remaining := &Change{Session: v.nextVersion(c.Now)}, v.Session.MessageCount
	if !keeps {
		before := *v
		before.Checkpoint, before.CheckpointState = v.Failed.Checkpoint, v.Failed.State
		change.rewind(&before)
		remaining = change.Session.MessageCount
	}
	if err := v.checkMessageIDs(c.allMessages(c.Messages), remaining); err != nil {
		return nil, Started{}, err
	}
	if err := c.resumeRun(change, v, c.Addition); err != nil {
		return nil, Started{}, err
	}
	change.NewRun.inheritAuthor(v.Current)
	return change, change.started(), nil
}

func (c Retry) checkRetryable(v *View) error {
	if v.Session == nil {
		return SessionNotFound(c.Key)
	}
	if err := c.checkTarget(v); err != nil {
		return err
	}
	if err := c.checkNotAborted(v.Session); err != nil {
		return err
	}
	switch s := v.Session; {
	case s.Status == Failed:
		return nil
	case s.Status == Active:
		return sessionBusy(s)
	case s.Status == Completed:
		return s.completed()
	case s.Status.Suspended():
		return s.conflict("SESSION_SUSPENDED", "session %q waits for answers (%s); submit them or abandon them", s.SessionID, s.Status)
	default:
		return s.conflict("SESSION_CHANGED", "session %q is %s: only a failed session can be retried; resume it", s.SessionID, s.Status)
	}
}

// codeMaxSteps is the failure code of a run that has used all its steps.
const codeMaxSteps = "framework_max_steps"

// keepsFailedStep reports whether nothing is undone: the failed step is kept, there is none,
// or the state before it is unknown.
func (c Retry) keepsFailedStep(v *View) (bool, error) {
	switch run, failed := v.Current, v.Failed; {
	case run == nil || failed == nil, v.Session.Failure != nil && v.Session.Failure.Code == codeMaxSteps:
		return true, nil
	case failed.Checkpoint != nil && failed.State == "":
		return true, nil
	case failed.Checkpoint == nil && (run.FinishStep == 0 || v.StartState == ""):
		return true, nil
	case v.Session.StateVersion < run.StartStateVersion: // the session was rewound to before the run
		return true, nil
	default:
		return c.Bodies.RanTool(failed.Messages)
	}
}

// restart undoes the whole run and begins another with its messages.
func (c Retry) restart(v *View) (*Change, Started, error) {
	failed := v.Current
	if err := v.checkMessageIDs(c.allMessages(c.Messages), v.Session.MessageCount); err != nil {
		return nil, Started{}, err
	}
	change := &Change{Session: v.nextVersion(c.Now)}
	change.undoRun(v, failed, v.Session.StepBefore(failed))
	for i, m := range change.Messages {
		if m.RunID != failed.RunID || m.Role != roleUser {
			continue
		}
		adopted, err := c.Bodies.MoveToRun(m, c.RunID)
		if err != nil {
			return nil, Started{}, err
		}
		change.Messages[i] = adopted
	}
	if err := c.resumeRun(change, v, c.Addition); err != nil {
		return nil, Started{}, err
	}
	change.NewRun.inheritAuthor(failed)
	start := min(failed.StartMessageCount, v.Session.MessageCount)
	change.NewRun.StartMessageCount, change.NewRun.TurnMessageCount = start, start
	return change, change.started(), nil
}
