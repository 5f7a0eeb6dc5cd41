package table

import "github.com/holdfast-run/holdfast/services/state/internal/session"

// ofSession is the scope of tables with rows of a session.
var ofSession = []string{"tenant", "session_id"}

// Sessions holds sessions without their custom states.
var Sessions = Table[session.Session]{
	Name:  "sessions",
	Scope: ofSession,
	Step: Columns[session.Session]{
		integer("version", func(s *session.Session) *int64 { return &s.Version }),
		integer("step_count", func(s *session.Session) *int32 { return &s.StepCount }),
		integer("message_count", func(s *session.Session) *int64 { return &s.MessageCount }),
		integer("state_version", func(s *session.Session) *int64 { return &s.StateVersion }),
		integer("state_base", func(s *session.Session) *int64 { return &s.StateBase }),
		integer("state_writes", func(s *session.Session) *int32 { return &s.StateWrites }),
		integer("state_bytes", func(s *session.Session) *int64 { return &s.StateBytes }),
		text("checkpoint_id", func(s *session.Session) *string { return &s.CheckpointID }),
		integer("usage_count", func(s *session.Session) *int32 { return &s.UsageCount }),
		integer("updated_at", func(s *session.Session) *int64 { return (*int64)(&s.UpdatedAt) }),
		integer("position", func(s *session.Session) *int64 { return &s.Position }),
		integer("claims", func(s *session.Session) *int32 { return &s.Claims }),
	},
	Small: Columns[session.Session]{
		text("status", func(s *session.Session) *string { return (*string)(&s.Status) }),
		integer("epoch", func(s *session.Session) *int64 { return &s.Epoch }),
		integer("turn", func(s *session.Session) *int32 { return &s.Turn }),
		integer("resume_count", func(s *session.Session) *int32 { return &s.ResumeCount }),
		text("current_run_id", func(s *session.Session) *string { return &s.CurrentRunID }),
		integer("children", func(s *session.Session) *int32 { return &s.Children }),
		integer("waiting", func(s *session.Session) *int32 { return &s.Waiting }),
		integer("expires_at", func(s *session.Session) *int64 { return (*int64)(&s.ExpiresAt) }),
		integer("store_bytes", func(s *session.Session) *int64 { return &s.StoreBytes }),
	},
	Large: Columns[session.Session]{
		text("output", func(s *session.Session) *string { return &s.Output }),
		asJSON("failure", func(s *session.Session) **session.Failure { return &s.Failure }),
		asJSON("suspension_context", func(s *session.Session) **session.Suspension { return &s.Suspension }),
		asJSON("interruption", func(s *session.Session) **session.Interruption { return &s.Interruption }),
		text("agent_type", func(s *session.Session) *string { return &s.AgentType }),
		text("user_id", func(s *session.Session) *string { return &s.UserID }),
		text("organization_id", func(s *session.Session) *string { return &s.OrganizationID }),
		text("title", func(s *session.Session) *string { return &s.Title }),
		asJSON("tags", func(s *session.Session) *[]string { return &s.Tags }),
		asJSON("metadata", func(s *session.Session) *map[string]string { return &s.Metadata }),
	},
	Fixed: Columns[session.Session]{
		text("parent_id", func(s *session.Session) *string { return &s.ParentID }),
		text("root_id", func(s *session.Session) *string { return &s.RootID }),
		integer("depth", func(s *session.Session) *int32 { return &s.Depth }),
		integer("created_at", func(s *session.Session) *int64 { return (*int64)(&s.CreatedAt) }),
	},
}

// State is one version of a session's custom state: the complete text, or the
// writes to the version before it.
type State struct {
	Version int64
	Base    int64             // the version of the text under the writes; Version itself for a text
	Text    string            // one JSON text
	Writes  []session.StateOp // stored in place of Text when not empty
}

// States holds the versions of custom states. They are read as text.
var States = Table[State]{
	Name:  "states",
	Scope: ofSession,
	Key:   Columns[State]{integer("version", func(s *State) *int64 { return &s.Version })},
	Fixed: Columns[State]{
		integer("base_version", func(s *State) *int64 { return &s.Base }),
		{Name: "state", Kind: Text, Field: func(s *State) any {
			if len(s.Writes) > 0 {
				return AsJSON(&s.Writes)
			}
			return &s.Text
		}},
	},
}

// Runs holds runs without their Outcome.Status. It is the status of an ended run.
var Runs = Table[session.Run]{
	Name:  "runs",
	Scope: ofSession,
	Key:   Columns[session.Run]{text("run_id", func(r *session.Run) *string { return &r.RunID })},
	Step: Columns[session.Run]{
		integer("step_count", func(r *session.Run) *int32 { return &r.StepCount }),
		integer("losses", func(r *session.Run) *int32 { return &r.Losses }),
	},
	Small: Columns[session.Run]{
		integer("turn", func(r *session.Run) *int32 { return &r.Turn }),
		text("status", func(r *session.Run) *string { return (*string)(&r.Status) }),
		integer("attempt", func(r *session.Run) *int32 { return &r.Attempt }),
		integer("epoch", func(r *session.Run) *int64 { return &r.Epoch }),
		text("executor_id", func(r *session.Run) *string { return &r.ExecutorID }),
		integer("claimed_at", func(r *session.Run) *int64 { return (*int64)(&r.ClaimedAt) }),
		text("definition", func(r *session.Run) *string { return &r.Definition }),
		integer("finish_step", func(r *session.Run) *int32 { return &r.FinishStep }),
		integer("finish_version", func(r *session.Run) *int64 { return &r.FinishVersion }),
		asJSON("stop", func(r *session.Run) **session.Stop { return &r.Stop }),
		integer("due_at", func(r *session.Run) *int64 { return (*int64)(&r.DueAt) }),
		integer("started_at", func(r *session.Run) *int64 { return (*int64)(&r.StartedAt) }),
		integer("completed_at", func(r *session.Run) *int64 { return (*int64)(&r.CompletedAt) }),
		integer("start_message_count", func(r *session.Run) *int64 { return &r.StartMessageCount }),
		integer("start_state_version", func(r *session.Run) *int64 { return &r.StartStateVersion }),
		integer("start_state_base", func(r *session.Run) *int64 { return &r.StartStateBase }),
		integer("turn_message_count", func(r *session.Run) *int64 { return &r.TurnMessageCount }),
		integer("start_position", func(r *session.Run) *int64 { return &r.StartPosition }),
		integer("end_position", func(r *session.Run) *int64 { return &r.EndPosition }),
	},
	Large: Columns[session.Run]{
		text("output", func(r *session.Run) *string { return &r.Outcome.Output }),
		asJSON("failure", func(r *session.Run) **session.Failure { return &r.Outcome.Failure }),
		text("completion_reason", func(r *session.Run) *string { return &r.Outcome.CompletionReason }),
		text("finish_reason", func(r *session.Run) *string { return &r.Outcome.FinishReason }),
		asJSON("usage", func(r *session.Run) **session.Tokens { return &r.Outcome.Usage }),
	},
	Fixed: Columns[session.Run]{
		text("agent_type", func(r *session.Run) *string { return &r.AgentType }),
		text("stored_agent", func(r *session.Run) *string { return &r.StoredAgent }),
		text("entry", func(r *session.Run) *string { return (*string)(&r.Entry) }),
		text("request_key", func(r *session.Run) *string { return &r.RequestKey }),
		byteString("request_hash", func(r *session.Run) *[]byte { return &r.RequestHash }),
		text("message_id", func(r *session.Run) *string { return &r.MessageID }),
		text("traceparent", func(r *session.Run) *string { return &r.Traceparent }),
		text("tracestate", func(r *session.Run) *string { return &r.Tracestate }),
		text("started_by", func(r *session.Run) *string { return &r.StartedBy }),
		text("author", func(r *session.Run) *string { return &r.Author }),
		integer("created_at", func(r *session.Run) *int64 { return (*int64)(&r.CreatedAt) }),
		integer("deadline_at", func(r *session.Run) *int64 { return (*int64)(&r.DeadlineAt) }),
		text("on_busy", func(r *session.Run) *string { return (*string)(&r.OnBusy) }),
		integer("place", func(r *session.Run) *int64 { return &r.QueuePlace }),
		integer("priority", func(r *session.Run) *int32 { return &r.Priority }),
		text("user_id", func(r *session.Run) *string { return &r.UserID }),
	},
}

// WaitingInput is the input of a waiting run.
type WaitingInput struct {
	RunID      string
	MessageIDs []string
	Input      *session.RunInput
}

// WaitingInputs holds the inputs of waiting runs.
var WaitingInputs = Table[WaitingInput]{
	Name:  "held_runs",
	Scope: ofSession,
	Key:   Columns[WaitingInput]{text("run_id", func(h *WaitingInput) *string { return &h.RunID })},
	Fixed: Columns[WaitingInput]{
		asJSON("message_ids", func(h *WaitingInput) *[]string { return &h.MessageIDs }),
		{Name: "held", Kind: Text, Field: func(h *WaitingInput) any { return AsJSON(h.Input) }},
	},
}

// Messages holds the conversations.
var Messages = Table[session.Message]{
	Name:  "messages",
	Scope: ofSession,
	Key:   Columns[session.Message]{integer("ordinal", func(m *session.Message) *int64 { return &m.Ordinal })},
	Fixed: Columns[session.Message]{
		text("message_id", func(m *session.Message) *string { return &m.ID }),
		text("role", func(m *session.Message) *string { return &m.Role }),
		text("run_id", func(m *session.Message) *string { return &m.RunID }),
		integer("step", func(m *session.Message) *int32 { return &m.Step }),
		integer("created_at", func(m *session.Message) *int64 { return (*int64)(&m.CreatedAt) }),
		byteString("body", func(m *session.Message) *[]byte { return &m.Body }),
		// For sums in queries. It is never read into the struct.
		integer("size", func(m *session.Message) *int64 {
			size := int64(len(m.Body))
			return &size
		}),
	},
}

// Plans holds the recorded plan of the step in flight. Its results are rows of
// Results.
var Plans = Table[session.Journal]{
	Name:  "plans",
	Scope: ofSession,
	Fixed: Columns[session.Journal]{
		integer("step", func(j *session.Journal) *int32 { return &j.Step }),
		byteString("body", func(j *session.Journal) *[]byte { return &j.Plan }),
		asJSON("call_ids", func(j *session.Journal) *[]string { return &j.CallIDs }),
		asJSON("usage", func(j *session.Journal) *[]session.Usage { return &j.Usage }),
		asJSON("ops", func(j *session.Journal) *[]session.StateOp { return &j.Ops }),
	},
}

// Result is a recorded result and its position in the journal.
type Result struct {
	Position int32
	session.Result
}

// Results holds the recorded results of the step in flight.
var Results = Table[Result]{
	Name:  "results",
	Scope: ofSession,
	Key:   Columns[Result]{integer("position", func(r *Result) *int32 { return &r.Position })},
	Fixed: Columns[Result]{
		text("call_id", func(r *Result) *string { return &r.CallID }),
		byteString("body", func(r *Result) *[]byte { return &r.Body }),
		asJSON("ops", func(r *Result) *[]session.StateOp { return &r.Ops }),
		asJSON("stored", func(r *Result) *[]session.StoreMark { return &r.Stored }),
		asJSON("usage", func(r *Result) *[]session.Usage { return &r.Usage }),
		byteString("context", func(r *Result) *[]byte { return &r.Context }),
	},
}

// Checkpoints holds the committed steps.
var Checkpoints = Table[session.Checkpoint]{
	Name:  "checkpoints",
	Scope: ofSession,
	Key:   Columns[session.Checkpoint]{integer("step", func(c *session.Checkpoint) *int32 { return &c.Step })},
	Fixed: Columns[session.Checkpoint]{
		text("checkpoint_id", func(c *session.Checkpoint) *string { return &c.ID }),
		text("run_id", func(c *session.Checkpoint) *string { return &c.RunID }),
		integer("epoch", func(c *session.Checkpoint) *int64 { return &c.Epoch }),
		integer("version", func(c *session.Checkpoint) *int64 { return &c.Version }),
		integer("message_count", func(c *session.Checkpoint) *int64 { return &c.MessageCount }),
		text("status", func(c *session.Checkpoint) *string { return (*string)(&c.Status) }),
		integer("state_version", func(c *session.Checkpoint) *int64 { return &c.StateVersion }),
		integer("state_base", func(c *session.Checkpoint) *int64 { return &c.StateBase }),
		asJSON("warnings", func(c *session.Checkpoint) *[]string { return &c.Warnings }),
		integer("created_at", func(c *session.Checkpoint) *int64 { return (*int64)(&c.CreatedAt) }),
		byteString("record", func(c *session.Checkpoint) *[]byte { return &c.Record }),
	},
}

// UsageEntries holds the measurements.
var UsageEntries = Table[session.UsageEntry]{
	Name:  "usage_entries",
	Scope: ofSession,
	Key: Columns[session.UsageEntry]{
		text("run_id", func(u *session.UsageEntry) *string { return &u.RunID }),
		integer("step", func(u *session.UsageEntry) *int32 { return &u.Step }),
		integer("position", func(u *session.UsageEntry) *int32 { return &u.Position }),
	},
	Fixed: Columns[session.UsageEntry]{
		integer("recorded_at", func(u *session.UsageEntry) *int64 { return (*int64)(&u.At) }),
		text("kind", func(u *session.UsageEntry) *string { return (*string)(&u.Kind) }),
		text("source", func(u *session.UsageEntry) *string { return &u.Source }),
		text("model", func(u *session.UsageEntry) *string { return &u.Model }),
		integer("prompt_tokens", func(u *session.UsageEntry) *int64 { return &u.PromptTokens }),
		integer("completion_tokens", func(u *session.UsageEntry) *int64 { return &u.CompletionTokens }),
		integer("reasoning_tokens", func(u *session.UsageEntry) *int64 { return &u.ReasoningTokens }),
		integer("cached_tokens", func(u *session.UsageEntry) *int64 { return &u.CachedTokens }),
		integer("total_tokens", func(u *session.UsageEntry) *int64 { return &u.TotalTokens }),
		text("tool", func(u *session.UsageEntry) *string { return &u.Tool }),
		boolean("success", func(u *session.UsageEntry) *bool { return &u.Success }),
		integer("duration_ms", func(u *session.UsageEntry) *int64 { return &u.DurationMS }),
		text("type", func(u *session.UsageEntry) *string { return &u.Type }),
		text("name", func(u *session.UsageEntry) *string { return &u.Name }),
		float("value", func(u *session.UsageEntry) *float64 { return &u.Value }),
	},
}

// Calls holds the client tool calls and approvals of a family.
var Calls = Table[session.Call]{
	Name:  "calls",
	Scope: []string{"tenant", "root_id"},
	Key:   Columns[session.Call]{text("call_id", func(c *session.Call) *string { return &c.CallID })},
	Small: Columns[session.Call]{
		text("run_id", func(c *session.Call) *string { return &c.RunID }),
		integer("step", func(c *session.Call) *int32 { return &c.Step }),
		text("step_id", func(c *session.Call) *string { return &c.StepID }),
		text("tool_name", func(c *session.Call) *string { return &c.ToolName }),
		text("kind", func(c *session.Call) *string { return (*string)(&c.Kind) }),
		text("approval_id", func(c *session.Call) *string { return &c.ApprovalID }),
		text("input", func(c *session.Call) *string { return &c.Input }),
		byteString("stash", func(c *session.Call) *[]byte { return &c.Stash }),
		integer("created_at", func(c *session.Call) *int64 { return (*int64)(&c.CreatedAt) }),
		integer("deadline_at", func(c *session.Call) *int64 { return (*int64)(&c.DeadlineAt) }),
		text("answer", func(c *session.Call) *string { return (*string)(&c.Answer) }),
		integer("revision", func(c *session.Call) *int32 { return &c.Revision }),
		byteString("response", func(c *session.Call) *[]byte { return &c.Response }),
		integer("answered_at", func(c *session.Call) *int64 { return (*int64)(&c.AnsweredAt) }),
		integer("consumed_at", func(c *session.Call) *int64 { return (*int64)(&c.ConsumedAt) }),
		integer("consumed_step", func(c *session.Call) *int32 { return &c.ConsumedStep }),
		byteString("late", func(c *session.Call) *[]byte { return &c.Late }),
		integer("late_at", func(c *session.Call) *int64 { return (*int64)(&c.LateAt) }),
		boolean("told", func(c *session.Call) *bool { return &c.LateReported }),
		integer("told_step", func(c *session.Call) *int32 { return &c.LateReportedStep }),
		text("answered_by", func(c *session.Call) *string { return &c.AnsweredBy }),
	},
	Fixed: Columns[session.Call]{
		text("session_id", func(c *session.Call) *string { return &c.SessionID }),
		text("approvers", func(c *session.Call) *string { return (*string)(&c.Approvers) }),
		text("started_by", func(c *session.Call) *string { return &c.StartedBy }),
		text("author", func(c *session.Call) *string { return &c.Author }),
		text("child_id", func(c *session.Call) *string { return &c.ChildID }),
	},
}

// SubSessions holds the children of sessions, as their parents know them.
var SubSessions = Table[session.Child]{
	Name:  "sub_sessions",
	Scope: ofSession,
	Key:   Columns[session.Child]{text("child_id", func(c *session.Child) *string { return &c.SessionID })},
	Small: Columns[session.Child]{
		text("agent_type", func(c *session.Child) *string { return &c.AgentType }),
		text("call_id", func(c *session.Child) *string { return &c.CallID }),
		text("status", func(c *session.Child) *string { return (*string)(&c.Status) }),
		text("mode", func(c *session.Child) *string { return (*string)(&c.Mode) }),
		text("name", func(c *session.Child) *string { return &c.Name }),
		text("location", func(c *session.Child) *string { return (*string)(&c.Location) }),
		text("remote", func(c *session.Child) *string { return &c.Remote }),
		integer("started_at", func(c *session.Child) *int64 { return (*int64)(&c.StartedAt) }),
		integer("completed_at", func(c *session.Child) *int64 { return (*int64)(&c.CompletedAt) }),
	},
}

// StoreEntries holds the private stores of sessions.
var StoreEntries = Table[session.StoreEntry]{
	Name:  "store_entries",
	Scope: ofSession,
	Key:   Columns[session.StoreEntry]{text("key", func(e *session.StoreEntry) *string { return &e.Key })},
	Small: Columns[session.StoreEntry]{text("value", func(e *session.StoreEntry) *string { return &e.Value })},
}

// Memories holds memory records.
var Memories = Table[session.Memory]{
	Name:  "memories",
	Scope: []string{"tenant"},
	Key:   Columns[session.Memory]{text("memory_id", func(m *session.Memory) *string { return &m.ID })},
	Small: Columns[session.Memory]{
		text("entity_id", func(m *session.Memory) *string { return &m.EntityID }),
		text("source", func(m *session.Memory) *string { return &m.Source }),
		text("text", func(m *session.Memory) *string { return &m.Text }),
		asJSON("metadata", func(m *session.Memory) *map[string]string { return &m.Metadata }),
		integer("updated_at", func(m *session.Memory) *int64 { return (*int64)(&m.UpdatedAt) }),
	},
	Fixed: Columns[session.Memory]{integer("created_at", func(m *session.Memory) *int64 { return (*int64)(&m.CreatedAt) })},
}

// StoredAgents holds the agents of tenants, without their definitions.
var StoredAgents = Table[session.StoredAgent]{
	Name:  "stored_agents",
	Scope: []string{"tenant"},
	Key:   Columns[session.StoredAgent]{text("agent_type", func(a *session.StoredAgent) *string { return &a.Type })},
	Small: Columns[session.StoredAgent]{
		text("definition", func(a *session.StoredAgent) *string { return &a.Definition }),
		text("description", func(a *session.StoredAgent) *string { return &a.Description }),
		text("on_busy", func(a *session.StoredAgent) *string { return (*string)(&a.OnBusy) }),
		text("state_schema", func(a *session.StoredAgent) *string { return &a.StateSchema }),
		boolean("remote", func(a *session.StoredAgent) *bool { return &a.Remote }),
		asJSON("rules", func(a *session.StoredAgent) **session.AgentRules { return &a.Rules }),
		text("stored_by", func(a *session.StoredAgent) *string { return &a.By }),
		integer("stored_at", func(a *session.StoredAgent) *int64 { return (*int64)(&a.At) }),
	},
}

// Files holds the descriptions of files, without their bytes.
var Files = Table[session.File]{
	Name:  "files",
	Scope: []string{"tenant"},
	Key:   Columns[session.File]{text("file_id", func(f *session.File) *string { return &f.ID })},
	Fixed: Columns[session.File]{
		text("media_type", func(f *session.File) *string { return &f.MediaType }),
		integer("size", func(f *session.File) *int64 { return &f.Size }),
		byteString("digest", func(f *session.File) *[]byte { return &f.Digest }),
		integer("created_at", func(f *session.File) *int64 { return (*int64)(&f.CreatedAt) }),
	},
}

// Audit holds the audit log. Events outside of sessions have an empty session id.
var Audit = Table[session.AuditEvent]{
	Name:  "audit",
	Scope: ofSession,
	Key:   Columns[session.AuditEvent]{text("event_id", func(e *session.AuditEvent) *string { return &e.ID })},
	Fixed: Columns[session.AuditEvent]{
		integer("recorded_at", func(e *session.AuditEvent) *int64 { return (*int64)(&e.At) }),
		text("actor", func(e *session.AuditEvent) *string { return &e.Actor }),
		text("action", func(e *session.AuditEvent) *string { return (*string)(&e.Action) }),
		text("target_kind", func(e *session.AuditEvent) *string { return &e.TargetKind }),
		text("target_id", func(e *session.AuditEvent) *string { return &e.TargetID }),
		text("outcome", func(e *session.AuditEvent) *string { return &e.Outcome }),
		text("detail", func(e *session.AuditEvent) *string { return &e.Detail }),
	},
}

// Subscriptions holds the receivers of events.
var Subscriptions = Table[session.Subscription]{
	Name:  "subscriptions",
	Scope: []string{"tenant"},
	Key:   Columns[session.Subscription]{text("subscription_id", func(s *session.Subscription) *string { return &s.ID })},
	Small: Columns[session.Subscription]{
		text("url", func(s *session.Subscription) *string { return &s.URL }),
		asJSON("kinds", func(s *session.Subscription) *[]session.EventKind { return &s.Kinds }),
		asJSON("agents", func(s *session.Subscription) *[]string { return &s.Agents }),
		asJSON("secrets", func(s *session.Subscription) *[]string { return &s.Secrets }),
		boolean("paused", func(s *session.Subscription) *bool { return &s.Paused }),
		integer("updated_at", func(s *session.Subscription) *int64 { return (*int64)(&s.UpdatedAt) }),
	},
	Fixed: Columns[session.Subscription]{
		text("created_by", func(s *session.Subscription) *string { return &s.CreatedBy }),
		integer("created_at", func(s *session.Subscription) *int64 { return (*int64)(&s.CreatedAt) }),
	},
}

// Deliveries holds the events on their way to subscriptions. They outlive their sessions.
var Deliveries = Table[session.Delivery]{
	Name:  "deliveries",
	Scope: []string{"tenant"},
	Key:   Columns[session.Delivery]{integer("number", func(d *session.Delivery) *int64 { return &d.Number })},
	Small: Columns[session.Delivery]{
		text("status", func(d *session.Delivery) *string { return (*string)(&d.Status) }),
		integer("due_at", func(d *session.Delivery) *int64 { return (*int64)(&d.DueAt) }),
		integer("first_at", func(d *session.Delivery) *int64 { return (*int64)(&d.FirstAt) }),
		integer("attempts", func(d *session.Delivery) *int32 { return &d.Attempts }),
		text("error", func(d *session.Delivery) *string { return &d.Error }),
		text("executor_id", func(d *session.Delivery) *string { return &d.ExecutorID }),
		text("claim_id", func(d *session.Delivery) *string { return &d.ClaimID }),
		integer("ended_at", func(d *session.Delivery) *int64 { return (*int64)(&d.EndedAt) }),
		integer("expires_at", func(d *session.Delivery) *int64 { return (*int64)(&d.ExpiresAt) }),
	},
	Fixed: Columns[session.Delivery]{
		text("subscription_id", func(d *session.Delivery) *string { return &d.SubscriptionID }),
		text("session_id", func(d *session.Delivery) *string { return &d.SessionID }),
		text("event_id", func(d *session.Delivery) *string { return &d.ID }),
		text("kind", func(d *session.Delivery) *string { return (*string)(&d.Kind) }),
		text("root_id", func(d *session.Delivery) *string { return &d.RootID }),
		text("run_id", func(d *session.Delivery) *string { return &d.RunID }),
		text("call_id", func(d *session.Delivery) *string { return &d.CallID }),
		text("agent_type", func(d *session.Delivery) *string { return &d.AgentType }),
		integer("happened_at", func(d *session.Delivery) *int64 { return (*int64)(&d.At) }),
		text("facts", func(d *session.Delivery) *string { return &d.Facts }),
	},
}

// LogErasures holds the live logs due for removal.
var LogErasures = Table[session.LogErasure]{
	Name:  "log_erasures",
	Scope: []string{"tenant", "root_id"},
	Key:   Columns[session.LogErasure]{text("session_id", func(e *session.LogErasure) *string { return &e.SessionID })},
	Small: Columns[session.LogErasure]{integer("due_at", func(e *session.LogErasure) *int64 { return (*int64)(&e.DueAt) })},
}

func text[R any](name string, field func(*R) *string) Column[R] {
	return Column[R]{name, Text, func(r *R) any { return field(r) }}
}

func integer[R any, N int32 | int64](name string, field func(*R) *N) Column[R] {
	return Column[R]{name, Integer, func(r *R) any { return field(r) }}
}

func float[R any](name string, field func(*R) *float64) Column[R] {
	return Column[R]{name, Float, func(r *R) any { return field(r) }}
}

func boolean[R any](name string, field func(*R) *bool) Column[R] {
	return Column[R]{name, Boolean, func(r *R) any { return field(r) }}
}

func byteString[R any](name string, field func(*R) *[]byte) Column[R] {
	return Column[R]{name, Bytes, func(r *R) any { return field(r) }}
}

func asJSON[R, T any](name string, field func(*R) *T) Column[R] {
	return Column[R]{name, Text, func(r *R) any { return AsJSON(field(r)) }}
}
