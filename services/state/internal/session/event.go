package session

// Event is something that has happened to a session, as subscribers are told. It is stored in the transaction of what it
// tells, once for each subscription that wants it. It has no content: a delivery adds what is stored when it is sent.
type Event struct {
	ID        string // unique; the same for all attempts of all deliveries
	Kind      EventKind
	RootID    string // of the session's family
	RunID     string // of the run; for a call, of the run that made it; else empty
	CallID    string // of a call; else empty
	AgentType string // of the session
	At        Millis
	Facts     string // a small JSON object of what is not stored elsewhere, or may change; empty for none
}

// EventKind is the stable name of a kind of event.
type EventKind string

// The kinds of events.
const (
	EventRunCompleted   EventKind = "run.completed"
	EventRunFailed      EventKind = "run.failed"
	EventRunInterrupted EventKind = "run.interrupted"
	EventRunSuspended   EventKind = "run.suspended"
	EventCallPending    EventKind = "call.pending"  // a client has to answer a call
	EventCallAnswered   EventKind = "call.answered" // by a client, a timeout, or abandoned for a new message
	EventSessionDeleted EventKind = "session.deleted"
	EventTest           EventKind = "webhook.test" // of a request for a test, to its subscription alone
)

// EventKinds are the kinds that a subscription can choose.
var EventKinds = []EventKind{
	EventRunCompleted, EventRunFailed, EventRunInterrupted, EventRunSuspended, EventCallPending, EventCallAnswered, EventSessionDeleted,
}

// RecordEvents adds the events to the changes, which belong to the views in their order. The events of a session are in
// the order in which they are delivered: calls before the run that suspends on them. A nil newID records none.
func RecordEvents(views []*View, changes []*Change, now Millis, newID func() string) {
	if newID == nil {
		return
	}
	for i, change := range changes {
		if change == nil {
			continue
		}
		v := views[i]
		s := v.Session
		if change.Session != nil {
			s = change.Session
		}
		if s == nil {
			continue
		}
		add := func(kind EventKind, runID, callID string, facts map[string]any) {
			change.Events = append(change.Events, Event{
				ID: newID(), Kind: kind, RootID: s.RootID, RunID: runID, CallID: callID, AgentType: s.AgentType, At: now,
				Facts: AuditDetail(facts),
			})
		}
		if change.Delete {
			// The receiver may have to erase what it knows of the user, and the session is gone.
			add(EventSessionDeleted, "", "", map[string]any{"userId": s.UserID})
			continue
		}
		recordCalls(v, change, add)
		for _, r := range change.endedRuns(v) {
			add(endOf(r.Status), r.RunID, "", map[string]any{"status": r.Status})
		}
	}
}

// recordCalls tells the calls that the change opens for clients, and those that it answers. A call that a client has
// answered before the step opened it is both.
func recordCalls(v *View, change *Change, add func(kind EventKind, runID, callID string, facts map[string]any)) {
	answered := func(call Call) {
		add(EventCallAnswered, call.RunID, call.CallID, map[string]any{"answer": call.Answer, "toolName": call.ToolName})
	}
	for _, call := range change.NewCalls {
		if call.Kind == SubAgent {
			continue
		}
		add(EventCallPending, call.RunID, call.CallID, map[string]any{"kind": call.Kind, "toolName": call.ToolName})
		if !call.isOpen() {
			answered(call)
		}
	}
	for _, call := range change.Calls {
		if call.Kind == SubAgent || call.isOpen() {
			continue
		}
		if before, known := v.callBefore(call.CallID); !known || before.Revision != call.Revision {
			answered(call)
		}
	}
}

// endedRuns returns the runs that end with the change. A suspended run that gets a stop has ended before.
func (change *Change) endedRuns(v *View) (ended []*Run) {
	add := func(r *Run) {
		if r != nil && r.Status.Ended() && !v.hasEnded(r.RunID) {
			ended = append(ended, r)
		}
	}
	for i := range change.Runs {
		add(&change.Runs[i])
	}
	add(change.Dequeued)
	add(change.NewRun)
	return ended
}

// hasEnded reports whether a run of the view has ended.
func (v *View) hasEnded(runID string) bool {
	for _, r := range []*Run{v.Run, v.Current, v.Live, v.KeyedRun} {
		if r != nil && r.RunID == runID {
			return r.Status.Ended()
		}
	}
	return false
}

// endOf returns the kind of event of an ended run.
func endOf(status RunStatus) EventKind {
	switch status {
	case RunCompleted:
		return EventRunCompleted
	case RunFailed:
		return EventRunFailed
	case RunInterrupted:
		return EventRunInterrupted
	default:
		return EventRunSuspended
	}
}
