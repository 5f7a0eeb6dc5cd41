package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// rewindAndBegin rewinds the session to the user message of View.RewindPoint and begins a run: to
// answer it again if keep is set, else to replace it.
//
//	messages     from the message on are deleted, except the message itself if keep is set, and
//	             results of calls from earlier steps, since such a call does not run again
//	state        is restored to the start of the message's run. A branch lacks that run, and
//	             uses the newest checkpoint before the message. It gets the defaults of the
//	             agent's schema, since the session may have had another agent then
//	checkpoints  behind the message are deleted
//	calls        of steps behind the message are deleted, and earlier ones that are open and
//	             not abandoned
//	late answers of earlier calls are reported again if a deleted step has reported them
//	children     that the session waits for end
//	usage        stays, and turns and steps keep counting
//	live work    a live run, children at work and the runs that wait for them are ended, unless the policy is
//	             BusyReject. They do not finish first, because what they write would be deleted
//
// Faults: Conflict (SESSION_BUSY, MESSAGE_EXISTS), NotFound (CHECKPOINT_NOT_FOUND), and an
// IncompleteViewError to see the live run and the waiting ones.
func (c RunRequest) rewindAndBegin(views []*View, keep bool) (*Change, error) {
	v := views[0]
	b := v.RewindPoint
	if err := c.checkMayEndWork(views); err != nil {
		return nil, err
	}
	if _, _, known := b.StateOrigin(); !known || b.State == "" {
		return nil, fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND",
			"the custom state at message %q is unknown: its run belongs to another session, and no earlier checkpoint is stored; "+
				"send a new message instead", b.Message.ID)
	}
	remaining := b.Message.Ordinal
	if keep {
		remaining++
	}
	if err := v.checkMessageIDs(c.Messages, remaining); err != nil {
		return nil, err
	}
	if err := v.Session.checkUnique(c.Messages, messageIDs(b.Results)); err != nil {
		return nil, err
	}
	change := &Change{Session: v.nextVersion(c.Now)}
	c.endWork(change, v)
	if err := c.rewindToMessage(change, v, keep); err != nil {
		return nil, err
	}
	change.Calls = slices.DeleteFunc(change.Calls, change.dropsCall)
	if err := c.takeAnswers(change, v); err != nil {
		return nil, err
	}
	change.abandonOpenCalls(v, c.Abandon, c.Now)
	change.dropOpenCalls(v)
	var err error
	if c.namesOtherAgent(change.Session) {
		err = c.changeAgent(change, v)
	} else {
		err = c.Schemas.addDefaults(change, v.OwnAgent)
	}
	if err != nil {
		return nil, err
	}
	run := c.beginRun(change, v, EntryStart)
	if keep { // the message is the run's own
		run.StartMessageCount, run.TurnMessageCount = b.Message.Ordinal, b.Message.Ordinal
		run.inheritAuthor(b.answeringRun())
	}
	change.appendMessages(c.Messages)
	return change, nil
}

// checkMayEndWork gives Conflict (SESSION_BUSY) if the session has live work that the request may
// not end.
func (c RunRequest) checkMayEndWork(views []*View) error {
	v := views[0]
	s := v.Session
	busy, err := isBusy(views)
	if err != nil || !busy && s.Waiting == 0 {
		return err
	}
	policy, err := c.busyPolicy(v)
	switch {
	case err != nil:
		return err
	case policy == BusyReject:
		return sessionBusy(s)
	case s.Status == Active && v.Live == nil, s.Waiting > 0 && len(v.Waiting) == 0:
		need := needForcedEnd
		need.Waiting = true
		return &IncompleteViewError{[]Target{{Key: c.Key, Need: need}}}
	}
	return nil
}

// endWork interrupts the live run and the waiting runs.
func (c RunRequest) endWork(change *Change, v *View) {
	if v.Session.Status == Active {
		forcedEnd{status: Interrupted, now: c.Now}.endRun(v, change)
	}
	if v.Session.Waiting == 0 {
		return
	}
	for _, w := range v.Waiting {
		change.endWaitingRun(w.Run, Outcome{Status: RunInterrupted}, c.Now)
	}
}

// needRewind lists the rows for rewindAndBegin, except the message.
func (c RunRequest) needRewind() Need {
	need := c.need()
	need.Calls, need.Children, need.Current, need.OwnAgent = true, true, true, true
	return need
}

// showsUserMessage reports whether View.RewindPoint shows the message and users see it.
func (c RunRequest) showsUserMessage(v *View, id string) (bool, error) {
	if v.Session == nil || v.RewindPoint == nil || v.RewindPoint.Message.ID != id || v.RewindPoint.Message.Role != roleUser {
		return false, nil
	}
	return c.Bodies.IsVisible(v.RewindPoint.Message)
}

// RewindPoint is a message of a session to rewind to, and the rows around it.
type RewindPoint struct {
	Message      Message
	Run          *Run        // of the message; nil if this session has none, as in a branch
	StepBefore   int32       // the last step with a message before this one; 0 for none
	Checkpoint   *Checkpoint // the newest before the message whose state is not newer than the start of Run; nil for none
	State        string      // the custom state of Origin; empty if it was deleted
	Results      []Message   // tool messages behind the message, of steps that consumed answers to calls of steps up to Before
	ReportedLate []Call      // of steps up to Before, with a late answer reported behind the message; by id
}

// answeringRun returns the run that answers the message; nil if it has none here. The users' messages
// of a client's history belong to the first run, because its state is theirs, but it does not answer
// them.
func (b *RewindPoint) answeringRun() *Run {
	if b.Run == nil || b.Message.Ordinal < b.Run.StartMessageCount {
		return nil
	}
	return b.Run
}

// StateOrigin returns the version and base of the custom state at the message. known is false if
// the session does not have them.
func (b *RewindPoint) StateOrigin() (version, base int64, known bool) {
	switch {
	case b.Run != nil && b.Run.StartStateVersion > 0:
		return b.Run.StartStateVersion, b.Run.StartStateBase, true
	case b.Checkpoint != nil:
		return b.Checkpoint.StateVersion, b.Checkpoint.StateBase, true
	default:
		return 0, 0, false
	}
}

// rewindToMessage rewinds the session of the change, except for its status.
func (c RunRequest) rewindToMessage(change *Change, v *View, keep bool) error {
	b, s := v.RewindPoint, change.Session
	version, base, _ := b.StateOrigin()
	change.Rewind = &Rewind{Messages: b.Message.Ordinal, StateVersion: version, CallsFrom: b.StepBefore + 1}
	s.MessageCount = b.Message.Ordinal
	if keep {
		message, err := c.Bodies.MoveToRun(b.Message, c.RunID)
		if err != nil {
			return err
		}
		change.appendMessages([]Message{message})
	}
	change.appendMessages(b.Results)
	s.restoreState(b.State, version, base)
	s.resetToCheckpoint(b.Checkpoint)
	for _, call := range b.ReportedLate {
		change.reportAgain(call)
	}
	return nil
}

func messageNotFound(id string) error {
	return fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "the session has no user message %q to go back to", id)
}
