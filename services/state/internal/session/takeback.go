package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// takeBack is how a session goes back to a message of one of its users before a run begins,
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
func (c Post) takeBack(v *View, keep bool) (*Change, error) {
	b := v.Back
	if v.Session.Status == Active || v.Session.Waiting > 0 {
		return nil, busy(v.Session)
	}
	if _, _, known := b.Origin(); !known || b.State == "" {
		return nil, fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND",
			"what the custom state was at message %q is not known: its run belongs to another session, and no step before it is kept; send a new message instead", b.Message.ID)
	}
	left := b.Message.Ordinal
	if keep {
		left++
	}
	if err := v.free(c.Messages, left); err != nil {
		return nil, err
	}
	if err := unique(c.Messages, messageIDs(b.Results)); err != nil {
		return nil, err
	}
	change := next(v)
	if err := c.goBack(change, v, keep); err != nil {
		return nil, err
	}
	c.answer(change, v)
	c.abandon(change, v)
	change.dropOpen(v)
	run := c.begin(change, EntryStart)
	if keep { // its own first message
		run.StartMessageCount, run.TurnMessageCount = b.Message.Ordinal, b.Message.Ordinal
	}
	change.append(c.Messages)
	return change, nil
}

// needBack is what takeBack wants to see beside the message.
func (c Post) needBack() Need {
	need := c.need()
	need.Calls, need.Children, need.Current = true, true, true
	return need
}

// asks reports whether the message to go back to is shown, is a user's, and users see it.
func (c Post) asks(v *View, id string) (bool, error) {
	if v.Session == nil || v.Back == nil || v.Back.Message.ID != id || v.Back.Message.Role != userRole {
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

// goBack takes the session of the change back, its status aside.
func (c Post) goBack(change *Change, v *View, keep bool) error {
	b, s := v.Back, change.Session
	version, base, _ := b.Origin()
	change.Rewind = &Rewind{Messages: b.Message.Ordinal, StateVersion: version, CallsFrom: b.Before + 1}
	s.MessageCount = b.Message.Ordinal
	if keep {
		kept, err := c.Bodies.Adopt(b.Message, c.RunID)
		if err != nil {
			return err
		}
		change.append([]Message{kept})
	}
	change.append(b.Results)
	s.State, s.StateVersion, s.StateBase = b.State, version, base
	s.StateWrites, s.StateBytes = longestFold, 0 // as after a rewind
	s.goBackTo(b.Checkpoint)
	change.leaveChildren(v)
	for _, call := range b.Told {
		call.Told, call.ToldStep = false, 0
		change.Calls = append(change.Calls, call)
	}
	return nil
}

// dropOpen lets the calls go that are still open after the change.
func (change *Change) dropOpen(v *View) {
	for _, call := range change.callsOf(v) {
		if call.open() {
			change.DropCalls = append(change.DropCalls, call.CallID)
		}
	}
}

func noMessage(id string) error {
	return fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "the session has no message %q of a user that could be taken back to", id)
}
