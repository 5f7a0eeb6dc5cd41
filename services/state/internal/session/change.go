package session

import (
	"cmp"
	"slices"
	"strings"
)

// Change is the rows to write, all or none of them. Nil and empty fields keep the stored rows.
// The store writes the exported fields in their order.
type Change struct {
	Delete  bool     // delete the session with everything that belongs to it; the other fields are ignored, except for Audit, Events and LogErasure
	Session *Session // inserted if Created, else updated
	Created bool

	Rewind *Rewind // deletes the end of the conversation first
	Copy   *Copy   // initial messages from another session

	NewState     bool      // store Session.State whole as of StateVersion, which equals StateBase
	StateWrite   []StateOp // stored instead of the whole state, as of Session.StateVersion
	Runs         []Run     // updated by id
	Dequeued     *Run      // a waiting run that begins; Runs may have the run before it
	NewRun       *Run      // inserted after Runs, so that one run is live at any moment
	WaitingInput *RunInput // of NewRun, if it waits
	DropInputs   []string  // ids of the runs that wait no more; their input is deleted
	Messages     []Message
	Plan         *Journal // begins the journal; its Results are ignored
	Result       *Result  // added to the journal's results
	ResultAt     int32    // index of Result
	ClearJournal bool
	Checkpoint   *Checkpoint
	Usage        []UsageEntry
	DropCalls    []string // ids of calls to delete
	NewCalls     []Call   // inserted under the session's root
	Calls        []Call   // updated by id
	Children     []Child  // inserted, or updated by id
	StorePuts    []StoreEntry
	StoreDeletes []string // keys, none of StorePuts

	Audit      []AuditEvent // also written with Delete
	Events     []Event      // as Audit; stored for the subscriptions that want them
	LogErasure *LogErasure  // only with Delete

	CutOff *Run // a run as its executor had it when somebody else ended it; for the scheduler

	// For Family.Propagate.
	newChild    *Child     // the record of a created session in its parent
	newChildren []NewChild // children that begin with the change
	notMade     []Call     // calls of the step that were dropped before they were stored
	endWaiting  bool       // the waiting runs end with the session
	stopsWork   *Stop      // the children that the suspended session awaits are stopped
}

// Rewind deletes the end of a session. Its targets must exist.
type Rewind struct {
	Messages     int64  // delete the messages from this ordinal on, and the checkpoints that count more
	StateVersion int64  // delete later states with their checkpoints; 0 keeps all
	RunID        string // delete the checkpoints of this run; empty for none
	Step         int32  // delete the checkpoints of later steps, also those with equal messages and state; 0 for none
	CallsFrom    int32  // delete the calls of this and later steps; 0 keeps all
}

// Copy takes over the first messages of another session of the tenant. The same command must
// lock its row.
type Copy struct {
	From     string // session id
	Messages int64
}

// FileIDs returns the ids of the files in new messages and in the input of a new waiting run, sorted and without
// repetitions.
func (change *Change) FileIDs() (ids []string) {
	messages := [][]Message{change.Messages}
	if change.WaitingInput != nil {
		messages = append(messages, change.WaitingInput.Messages)
	}
	for _, list := range messages {
		for i := range list {
			ids = append(ids, list[i].FileIDs...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// unconsumedCalls returns the session's unconsumed calls as they are after the change.
func (change *Change) unconsumedCalls(v *View) []Call {
	after := map[string]Call{}
	for _, call := range change.Calls {
		after[call.CallID] = call
	}
	var calls []Call
	for _, call := range slices.Concat(v.Calls, change.NewCalls) {
		if changed, ok := after[call.CallID]; ok {
			call = changed
		}
		if call.ConsumedAt == 0 && !change.dropsCall(call) {
			calls = append(calls, call)
		}
	}
	return calls
}

// After returns the session, its newest run and its unconsumed calls after the change of a command that has neither deleted
// nor rewound it. The view has the session, the current run and the calls. A nil change changes nothing.
func (v *View) After(change *Change) (s *Session, current *Run, calls []Call) {
	s, current = v.Session, v.Current
	if change == nil {
		return s, current, (&Change{}).unconsumedCalls(v)
	}
	if change.Session != nil {
		s = change.Session
	}
	if current != nil {
		current = new(change.runAfter(current, s.CurrentRunID))
	}
	return s, current, change.unconsumedCalls(v)
}

// dropsCall reports whether the change deletes the call.
func (change *Change) dropsCall(call Call) bool {
	rewind := change.Rewind
	return rewind != nil && rewind.CallsFrom > 0 && call.Step >= rewind.CallsFrom || slices.Contains(change.DropCalls, call.CallID)
}

// UnreadBytes returns the size in bytes of the unread answers after the change, which a claim of
// the session carries.
func (change *Change) UnreadBytes(v *View) (size int) {
	for _, call := range change.carriedCalls(v) {
		if call.ConsumedAt == 0 {
			size += len(call.Response)
		} else {
			size += len(call.Late)
		}
	}
	return size
}

// putCall adds a call to the change, or replaces it there.
func (change *Change) putCall(call Call) {
	for _, calls := range [][]Call{change.NewCalls, change.Calls} {
		if i := slices.IndexFunc(calls, func(c Call) bool { return c.CallID == call.CallID }); i >= 0 {
			calls[i] = call
			return
		}
	}
	change.Calls = append(change.Calls, call)
}

// abandonOpenCalls answers the open calls with the responses of answer. A nil answer leaves them all open, and a nil
// response its call.
func (change *Change) abandonOpenCalls(v *View, answer func(Call) []byte, now Millis) {
	if answer == nil {
		return
	}
	for _, call := range change.unconsumedCalls(v) {
		if !call.isOpen() {
			continue
		}
		if response := answer(call); response != nil {
			change.putCall(call.withAnswer(AnswerAbandoned, response, now))
		}
	}
}

// appendMessages appends messages to the conversation of the change.
func (change *Change) appendMessages(messages []Message) {
	s := change.Session
	change.Messages = append(change.Messages, withOrdinals(messages, s.MessageCount)...)
	s.MessageCount += int64(len(messages))
}

// putChild adds a child to the change, or replaces it there.
func (change *Change) putChild(child Child, known bool) {
	if !known {
		change.Session.Children++
	}
	i := slices.IndexFunc(change.Children, func(c Child) bool { return c.SessionID == child.SessionID })
	if i >= 0 {
		change.Children[i] = child
		return
	}
	change.Children = append(change.Children, child)
}

// dropOpenCalls drops the calls that are still open after the change.
func (change *Change) dropOpenCalls(v *View) {
	for _, call := range change.unconsumedCalls(v) {
		if call.isOpen() {
			change.DropCalls = append(change.DropCalls, call.CallID)
		}
	}
}

// carriedCalls returns the calls in a claim after the change, in the order of View.Calls.
func (change *Change) carriedCalls(v *View) (calls []Call) {
	after := make(map[string]Call, len(v.Calls))
	for _, call := range slices.Concat(v.Calls, change.Calls) {
		after[call.CallID] = call
	}
	for _, call := range after {
		if (call.ConsumedAt == 0 || call.LateAt > 0 && !call.LateReported) && !change.dropsCall(call) {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), strings.Compare(a.CallID, b.CallID))
	})
	return calls
}
