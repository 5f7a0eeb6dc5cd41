package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// rewindAndBegin is how a session goes back to a message of one of its users before a run begins,
// to answer it again or to put another in its place.
//
//	messages     behind it go, and it itself unless it is kept; but the results of
//	             calls of earlier steps stay, since such a call is not asked again and
//	             what was done for a human's yes is not done again
//	state        is what it was when the message's run began; where this session has
//	             no such run, since it is a branch, as of the newest checkpoint before
//	checkpoints  behind it go
//	calls        of steps behind it go, whatever became of them, and so do those before
//	             it that are open and not abandoned: answers find them unknown
//	late answers of calls before it, of which steps behind it have told, are told again
//	children     that the session waits for end, as with a parent that fails
//	usage        stays, and so do the numbers of turns and steps
//
// Its faults are Conflict (SESSION_BUSY), also while runs wait, since they would begin on
// what is no more, Conflict (MESSAGE_EXISTS) and NotFound (CHECKPOINT_NOT_FOUND).
func (c Post) rewindAndBegin(v *View, keep bool) (*Change, error) {
	b := v.Back
	if v.Session.Status == Active || v.Session.Waiting > 0 {
		return nil, sessionBusy(v.Session)
	}
	if _, _, known := b.Origin(); !known || b.State == "" {
		return nil, fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND",
			"what the custom state was at message %q is not known: its run belongs to another session, and no step before it is kept; send a new message instead", b.Message.ID)
	}
	left := b.Message.Ordinal
	if keep {
		left++
	}
	if err := v.checkMessageIDs(c.Messages, left); err != nil {
		return nil, err
	}
	if err := checkUnique(c.Messages, messageIDs(b.Results)); err != nil {
		return nil, err
	}
	change := nextChange(v)
	if err := c.rewindToMessage(change, v, keep); err != nil {
		return nil, err
	}
	c.takeAnswers(change, v)
	c.abandonOpenCalls(change, v)
	change.dropOpenCalls(v)
	run := c.beginRun(change, EntryStart)
	if keep { // its own first message
		run.StartMessageCount, run.TurnMessageCount = b.Message.Ordinal, b.Message.Ordinal
	}
	change.appendMessages(c.Messages)
	return change, nil
}

// needRewind is what takeBack wants to see beside the message.
func (c Post) needRewind() Need {
	need := c.need()
	need.Calls, need.Children, need.Current = true, true, true
	return need
}

// showsUserMessage reports whether the message to go back to is shown, is a user's, and users see it.
func (c Post) showsUserMessage(v *View, id string) (bool, error) {
	if v.Session == nil || v.Back == nil || v.Back.Message.ID != id || v.Back.Message.Role != roleUser {
		return false, nil
	}
	return c.Bodies.Shown(v.Back.Message)
}

// Back is what there is of a session around a message that it is taken back to.
type Back struct {
	Message    Message
	Run        *Run        // of the message; nil: it is none of this session
	Before     int32       // the step of the last message of a step that stands before it; 0 for none
	Checkpoint *Checkpoint // the newest before the message, and of no later state than its run began with; nil: there is none
	State      string      // the custom state as of Origin; empty when that is not kept
	Results    []Message   // behind the message, in their order: of role tool, of steps that have consumed answers to calls of steps up to Before
	Told       []Call      // of steps up to Before, of whose late answer a step behind it has told; by id
}

// Origin names the custom state as of the message, as in Session. It is false when
// that is not known.
func (b *Back) Origin() (version, base int64, known bool) {
	switch {
	case b.Run != nil && b.Run.StartStateVersion > 0:
		return b.Run.StartStateVersion, b.Run.StartStateBase, true
	case b.Checkpoint != nil:
		return b.Checkpoint.StateVersion, b.Checkpoint.StateBase, true
	default:
		return 0, 0, false
	}
}

// rewindToMessage takes the session of the change back, its status aside.
func (c Post) rewindToMessage(change *Change, v *View, keep bool) error {
	b, s := v.Back, change.Session
	version, base, _ := b.Origin()
	change.Rewind = &Rewind{Messages: b.Message.Ordinal, StateVersion: version, CallsFrom: b.Before + 1}
	s.MessageCount = b.Message.Ordinal
	if keep {
		kept, err := c.Bodies.Adopt(b.Message, c.RunID)
		if err != nil {
			return err
		}
		change.appendMessages([]Message{kept})
	}
	change.appendMessages(b.Results)
	s.State, s.StateVersion, s.StateBase = b.State, version, base
	s.StateWrites, s.StateBytes = maxStateWrites, 0 // as after a rewind
	s.resetToCheckpoint(b.Checkpoint)
	change.endAwaitedChildren(v)
	for _, call := range b.Told {
		call.Told, call.ToldStep = false, 0
		change.Calls = append(change.Calls, call)
	}
	return nil
}

// dropOpenCalls lets the calls go that are still open after the change.
func (change *Change) dropOpenCalls(v *View) {
	for _, call := range change.unconsumedCalls(v) {
		if call.isOpen() {
			change.DropCalls = append(change.DropCalls, call.CallID)
		}
	}
}

func messageNotFound(id string) error {
	return fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "the session has no message %q of a user that could be taken back to", id)
}
