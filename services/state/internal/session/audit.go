package session

import (
	"encoding/json"
	"maps"
	"slices"
)

// AuditEvent is an entry of the audit log: the actor, the act, its target and its outcome. It never holds the content
// of messages, of custom state or of calls.
type AuditEvent struct {
	ID         string // unique in its tenant and session
	At         Millis
	SessionID  string // empty for an event outside of sessions
	Actor      string // as in state.v1.Caller
	Action     AuditAction
	TargetKind string // such as session, call, run, user, tenant or key
	TargetID   string
	Outcome    string // done, late or refused
	Detail     string // a small JSON object; empty for none
}

// AuditAction is the stable name of an action. Gateways report further actions.
type AuditAction string

// The actions of commands.
const (
	ActionApproved     AuditAction = "call.approved"
	ActionDenied       AuditAction = "call.denied"
	ActionInterrupted  AuditAction = "run.interrupted"
	ActionAborted      AuditAction = "run.aborted"
	ActionDeleted      AuditAction = "session.deleted"
	ActionOwnerChanged AuditAction = "session.owner_changed"
	ActionExpirySet    AuditAction = "session.expiry_set"
	ActionRewound      AuditAction = "session.rewound"
	ActionStateChanged AuditAction = "state.changed"
	ActionStoreChanged AuditAction = "store.changed"
	ActionUserErased   AuditAction = "user.erased"
	ActionTenantErased AuditAction = "tenant.erased"
	ActionAgentStored  AuditAction = "agent.stored"
	ActionAgentDeleted AuditAction = "agent.deleted"

	ActionAnswered    AuditAction = "call.answered"       // for the session's user, by another actor; or by callback
	ActionChanged     AuditAction = "session.changed"     // for the session's user, by another actor
	ActionCreated     AuditAction = "session.created"     // for a user, by another actor
	ActionStarted     AuditAction = "run.started"         // for the session's user, by another actor
	ActionResumed     AuditAction = "run.resumed"         // by a request, not by an answer
	ActionRetried     AuditAction = "run.retried"         // the last step of a run was removed, and the run goes on
	ActionEdited      AuditAction = "message.edited"      // a message was replaced, and what followed was removed
	ActionRegenerated AuditAction = "message.regenerated" // an answer was removed, and a new one begins
	ActionAppended    AuditAction = "messages.appended"
	ActionBranched    AuditAction = "session.branched" // the new session

	ActionStatusSet     AuditAction = "session.status_set"
	ActionSubSessionPut AuditAction = "session.sub_session_put" // a reference to a sub-session was written
	ActionUsageRecorded AuditAction = "usage.recorded"          // outside of steps

	ActionWebhookSet      AuditAction = "webhook.set"
	ActionWebhookDeleted  AuditAction = "webhook.deleted"
	ActionWebhookReplayed AuditAction = "webhook.replayed" // one delivery, or all dead ones
)

// The outcomes.
const (
	OutcomeDone      = "done"
	OutcomeLate      = "late"      // an approval after its deadline, which had no effect
	OutcomeRequested = "requested" // an erasure, before it removes anything
)

// Audit makes the entries of a command from its change. Commands without an actor, such as those
// of executors and of the service itself, leave no entries.
type Audit struct {
	Actor    string
	Intent   AuditAction // of a command that may begin a run, or that has one effect; empty for others
	Now      Millis
	NewID    func() string
	NewEvent func() string              // the id of an event; nil records no events
	Approved func(response []byte) bool // reads the answer to an approval
}

// Record adds the entries to the change of the command's own session, which is the first. The changes belong to the
// views in their order.
func (a Audit) Record(views []*View, changes []*Change) {
	if a.Actor == "" || len(changes) == 0 || changes[0] == nil {
		return
	}
	v, change := views[0], changes[0]
	switch {
	case v.Session == nil:
		a.recordCreation(change)
		return
	case change.Delete:
		a.add(v.Session, change, ActionDeleted, "session", v.Session.SessionID, OutcomeDone, CountRemoved(views, changes).Detail())
		return
	case a.recordEffect(v.Session, change):
		return
	}
	a.recordAnswers(v, change)
	a.recordStops(v, change)
	a.recordRun(v, change)
	a.recordSession(v, change)
}

// actsFor reports whether the actor is known and another than the user.
func (a Audit) actsFor(userID string) bool {
	return userID != "" && IsIdentified(a.Actor) && a.Actor != userActor(userID)
}

// recordCreation records a branch, and a root created by another caller for its user.
func (a Audit) recordCreation(change *Change) {
	s := change.Session
	if s == nil || s.ParentID != "" {
		return
	}
	detail := map[string]any{}
	if a.actsFor(s.UserID) {
		detail["user"] = s.UserID
	}
	switch {
	case change.Copy != nil:
		detail["from"], detail["messages"] = change.Copy.From, change.Copy.Messages
		a.add(s, change, ActionBranched, "session", s.SessionID, OutcomeDone, detail)
	case detail["user"] == nil:
	case change.NewRun != nil:
		a.add(s, change, ActionStarted, "run", change.NewRun.RunID, OutcomeDone, detail)
	default:
		a.add(s, change, ActionCreated, "session", s.SessionID, OutcomeDone, detail)
	}
}

// recordRun records a run begun by a request. A request of the session's user with nothing but messages leaves no
// entry.
func (a Audit) recordRun(v *View, change *Change) {
	if change.NewRun == nil || a.Intent == "" {
		return
	}
	action, detail := a.Intent, map[string]any{}
	if change.Rewind != nil && change.Rewind.Messages < v.Session.MessageCount {
		detail["messages"] = v.Session.MessageCount - change.Rewind.Messages
		if action == ActionRegenerated { // the question is written again
			detail["messages"] = v.Session.MessageCount - change.Rewind.Messages - int64(len(change.Messages))
		}
	}
	if action == ActionStarted && len(detail) > 0 {
		action = ActionRewound // the message takes the place of a running turn
	}
	if a.actsFor(v.Session.UserID) {
		detail["user"] = v.Session.UserID
	}
	if action != ActionStarted || len(detail) > 0 {
		a.add(v.Session, change, action, "run", change.NewRun.RunID, OutcomeDone, detail)
	}
}

// recordAnswers records approvals and denials, results by callback, and results given by others than the session's user.
func (a Audit) recordAnswers(v *View, change *Change) {
	for _, call := range change.Calls {
		before, known := v.callBefore(call.CallID)
		if !known {
			continue
		}
		response, outcome := call.Response, OutcomeDone
		switch {
		case call.LateAt != before.LateAt:
			response, outcome = call.Late, OutcomeLate
		case call.Answer != AnswerClient || call.Revision == before.Revision:
			continue
		}
		action := ActionDenied
		switch {
		case call.Kind != Approval && call.Kind != Callback && !a.actsFor(v.Session.UserID):
			continue
		case call.Kind != Approval:
			action = ActionAnswered
		case a.Approved(response):
			action = ActionApproved
		}
		a.add(v.Session, change, action, "call", call.CallID, outcome, map[string]any{"tool": call.ToolName})
	}
}

// callBefore returns a call of the view.
func (v *View) callBefore(id string) (Call, bool) {
	for _, calls := range [][]Call{v.NamedCalls, v.Calls} {
		for _, call := range calls {
			if call.CallID == id {
				return call, true
			}
		}
	}
	return Call{}, false
}

// recordEffect records a command whose intent names its one effect. It reports false for other commands.
func (a Audit) recordEffect(s *Session, change *Change) bool {
	detail := map[string]any{}
	switch a.Intent {
	case ActionStatusSet:
		detail["from"], detail["to"] = s.Status, change.Session.Status
	case ActionSubSessionPut:
		detail["subSession"] = change.Children[0].SessionID
	case ActionStoreChanged:
		detail["put"], detail["deleted"] = len(change.StorePuts), len(change.StoreDeletes)
	case ActionUsageRecorded:
		detail["entries"] = len(change.Usage)
	default:
		return false
	}
	a.add(s, change, a.Intent, "session", s.SessionID, OutcomeDone, detail)
	return true
}

// recordStops records interrupts and aborts. A new message that interrupts the live run is none.
func (a Audit) recordStops(v *View, change *Change) {
	if change.NewRun != nil {
		return
	}
	for _, r := range change.Runs {
		if before := v.stopOf(r.RunID); r.Stop != nil && (before == nil || before.Kind != r.Stop.Kind) {
			a.add(v.Session, change, stopAction(r.Stop.Kind == StopAbort), "run", r.RunID, OutcomeDone, nil)
			return
		}
	}
	s := change.Session
	if s != nil && s.Status != v.Session.Status && (s.Status == Failed || s.Status == Interrupted) {
		a.add(v.Session, change, stopAction(s.Status == Failed), "run", s.CurrentRunID, OutcomeDone, nil)
	}
}

func stopAction(abort bool) AuditAction {
	if abort {
		return ActionAborted
	}
	return ActionInterrupted
}

// stopOf returns the stop of a run in the view; nil for none.
func (v *View) stopOf(runID string) *Stop {
	for _, r := range []*Run{v.Live, v.Run, v.Current} {
		if r != nil && r.RunID == runID {
			return r.Stop
		}
	}
	return nil
}

// sameProperties reports whether a session has the same title, tags, metadata and organization.
func sameProperties(a, b *Session) bool {
	return a.Title == b.Title && a.OrganizationID == b.OrganizationID && slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Metadata, b.Metadata)
}

// recordSession records new properties, a new owner, a new expiry, appended messages, a rewind, and a write of the custom state. The
// rewind of an edit belongs to its message. An expiry that changes with the status belongs to the
// command that changed the status.
func (a Audit) recordSession(v *View, change *Change) {
	id := v.Session.SessionID
	if s := change.Session; s != nil && s.UserID != v.Session.UserID {
		a.add(v.Session, change, ActionOwnerChanged, "session", id, OutcomeDone, map[string]any{"from": v.Session.UserID, "to": s.UserID})
	}
	if s := change.Session; s != nil && s.ExpiresAt != v.Session.ExpiresAt && s.Status == v.Session.Status && change.NewRun == nil {
		a.add(v.Session, change, ActionExpirySet, "session", id, OutcomeDone, map[string]any{"from": v.Session.ExpiresAt, "to": s.ExpiresAt})
	}
	if s := change.Session; s != nil && a.actsFor(v.Session.UserID) && !sameProperties(s, v.Session) {
		a.add(v.Session, change, ActionChanged, "session", id, OutcomeDone, map[string]any{"user": v.Session.UserID})
	}
	switch {
	case change.Rewind == nil && change.NewRun == nil && len(change.Messages) > 0:
		a.add(v.Session, change, ActionAppended, "session", id, OutcomeDone, map[string]any{"messages": len(change.Messages)})
	case change.Rewind != nil && change.NewRun == nil:
		a.add(v.Session, change, ActionRewound, "session", id, OutcomeDone,
			map[string]any{"messages": v.Session.MessageCount - change.Rewind.Messages})
	case change.Rewind == nil && (change.NewState || len(change.StateWrite) > 0):
		a.add(v.Session, change, ActionStateChanged, "session", id, OutcomeDone, map[string]any{"version": change.Session.StateVersion})
	}
}

func (a Audit) add(s *Session, change *Change, action AuditAction, kind, id, outcome string, detail map[string]any) {
	change.Audit = append(change.Audit, AuditEvent{
		ID: a.NewID(), At: a.Now, SessionID: s.SessionID, Actor: a.Actor, Action: action,
		TargetKind: kind, TargetID: id, Outcome: outcome, Detail: AuditDetail(detail),
	})
}

// AuditDetail encodes details; nil gives an empty text.
func AuditDetail(detail map[string]any) string {
	if len(detail) == 0 {
		return ""
	}
	text, err := json.Marshal(detail)
	if err != nil { // texts and numbers always encode
		panic(err)
	}
	return string(text)
}

// Removed counts what was removed, by kind.
type Removed map[string]int64

// Add adds the counts of other.
func (r Removed) Add(other Removed) {
	for kind, n := range other {
		r[kind] += n
	}
}

// Detail returns the counts above 0 for AuditDetail.
func (r Removed) Detail() map[string]any {
	detail := map[string]any{}
	for kind, n := range r {
		if n > 0 {
			detail[kind] = n
		}
	}
	return detail
}

// CountRemoved counts what the changes delete. The views have the counts of their sessions, if their
// command needs them.
func CountRemoved(views []*View, changes []*Change) Removed {
	r := Removed{}
	for i, change := range changes {
		if change != nil && change.Delete {
			r["sessions"]++
			r.Add(views[i].Stored)
		}
	}
	return r
}

// LogErasure is the live log of a deleted session, or of a whole family. It is due for removal
// until a gateway has removed it after DueAt.
type LogErasure struct {
	Tenant    string
	RootID    string
	SessionID string // empty for the whole family
	DueAt     Millis
}

// LogErasureDelay is when the live log of a deleted session is removed for the last time. Until then its executor
// has learned that the session is gone, and writes no more.
const LogErasureDelay = Millis(60 * 1000)

// EraseLogs marks the deleted sessions with live logs to remove. The root of a family stands for all of it.
func EraseLogs(views []*View, changes []*Change, now Millis) {
	due := now + LogErasureDelay
	roots := map[string]bool{}
	for i, change := range changes {
		if change != nil && change.Delete && views[i].Session != nil && views[i].Session.ParentID == "" {
			roots[views[i].Session.SessionID] = true
		}
	}
	for i, change := range changes {
		if change == nil || !change.Delete || views[i].Session == nil {
			continue
		}
		s := views[i].Session
		switch {
		case s.ParentID == "":
			change.LogErasure = &LogErasure{Tenant: s.Tenant, RootID: s.SessionID, DueAt: due}
		case !roots[s.RootID]:
			change.LogErasure = &LogErasure{Tenant: s.Tenant, RootID: s.RootID, SessionID: s.SessionID, DueAt: due}
		}
	}
}
