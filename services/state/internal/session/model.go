package session

// Millis is a time in milliseconds since the Unix epoch, or a duration in milliseconds. A time
// of 0 means not yet or never.
type Millis int64

// Key names a session. Ids are unique per tenant.
type Key struct {
	Tenant    string
	SessionID string
}

// Status is the status of a session, as in the specification.
type Status string

// The statuses of a session.
const (
	Active                    Status = "active"
	Completed                 Status = "completed"
	Failed                    Status = "failed"
	Interrupted               Status = "interrupted"
	Paused                    Status = "paused"
	SuspendedClientTool       Status = "suspended_client_tool"
	SuspendedAwaitingChildren Status = "suspended_awaiting_children"
	SuspendedStepPartial      Status = "suspended_step_partial"
)

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run. A suspended run has ended, and another run continues the session. A
// waiting run is neither live nor ended.
const (
	RunWaiting                   RunStatus = "waiting"
	RunQueued                    RunStatus = "queued"
	RunRunning                   RunStatus = "running"
	RunCompleted                 RunStatus = "completed"
	RunFailed                    RunStatus = "failed"
	RunInterrupted               RunStatus = "interrupted"
	RunSuspendedClientTool       RunStatus = "suspended_client_tool"
	RunSuspendedAwaitingChildren RunStatus = "suspended_awaiting_children"
	RunSuspendedStepPartial      RunStatus = "suspended_step_partial"
)

// Live reports whether the run is queued or running.
func (s RunStatus) Live() bool { return s == RunQueued || s == RunRunning }

// Over reports whether the run has ended.
func (s RunStatus) Over() bool { return !s.Live() && s != RunWaiting }

// Suspended reports whether the session waits for answers or children.
func (s Status) Suspended() bool {
	return s == SuspendedClientTool || s == SuspendedAwaitingChildren || s == SuspendedStepPartial
}

// Terminal reports whether the session is completed or failed.
func (s Status) Terminal() bool { return s == Completed || s == Failed }

// Session is the row of a session, without its messages.
type Session struct {
	Key
	AgentType      string
	ParentID       string // empty for a root
	RootID         string // its own id for a root
	Status         Status
	Version        int64 // raised by one with each change of the session; claims and usage leave it; begins at 1
	Epoch          int64 // raised by one with each claim, and with a forced end of a live run
	Turn           int32 // number of runs begun
	StepCount      int32 // number of the last step over all runs
	ResumeCount    int32 // number of resumes and continuations
	MessageCount   int64 // also the ordinal of the next message
	State          string
	StateVersion   int64  // Version of the last write to the custom state
	StateBase      int64  // Version of the last whole state; the writes up to StateVersion are stored beside it
	StateWrites    int32  // number of these writes
	StateBytes     int64  // their size
	Output         string // JSON, or empty
	Failure        *Failure
	Position       int64       // behind everything durable, as in package position; 0 for nothing
	Claims         int32       // claims, and ends of runs outside a step, since the last committed step
	CurrentRunID   string      // the newest run; empty before the first
	CheckpointID   string      // the newest checkpoint; empty for none
	Suspension     *Suspension // nil unless suspended
	Interruption   *Interruption
	Children       int32 // number of children so far
	Waiting        int32 // number of waiting runs
	UsageCount     int32 // number of usage entries outside of steps
	UserID         string
	OrganizationID string
	Tags           []string
	Metadata       map[string]string
	CreatedAt      Millis
	UpdatedAt      Millis
	ExpiresAt      Millis // the session fails after this time; 0 for never
}

// Suspension is what a suspended session waits for.
type Suspension struct {
	StepID   string               `json:"stepId,omitempty"`   // of the step with the open calls
	Children map[string]ChildWait `json:"children,omitempty"` // awaited children by session id
	Tracing  *Tracing             `json:"tracing,omitempty"`

	// The expiry of a session that waits for children; see Suspension.expiry.
	Keep      Millis            `json:"keep,omitempty"`      // as requested by the commit
	ExpiresAt Millis            `json:"expiresAt,omitempty"` // without its children; 0 for never
	Holds     map[string]Millis `json:"holds,omitempty"`     // expiries of local children by session id; 0 for never
}

// ChildWait is an awaited child.
type ChildWait struct {
	CallID string `json:"callId,omitempty"` // the parent's call that the child answers
	Status Status `json:"status,omitempty"` // as recorded by the parent
}

// Tracing is the trace of a continuation.
type Tracing struct {
	TraceID    string `json:"traceId,omitempty"`
	RootSpanID string `json:"rootSpanId,omitempty"`
}

// Interruption describes why and when a session was interrupted.
type Interruption struct {
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     Millis `json:"at,omitempty"`
}

// Failure describes why a run failed.
type Failure struct {
	Error     string `json:"error"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Reason    string `json:"reason,omitempty"` // SessionExpired or ParentFailed; empty for a failure of the run itself
}

// The values of Failure.Reason.
const (
	SessionExpired = "session_expired" // ExpiresAt has passed
	ParentFailed   = "parent_failed"   // the parent has failed, or the calls for this child were undone
)

// Run is one execution of a session.
type Run struct {
	RunID         string
	AgentType     string
	Turn          int32 // 0 for a run that never began
	Status        RunStatus
	RequestKey    string // empty for none
	RequestHash   []byte // a repeat of the key must have the same hash; nil without a key
	MessageID     string
	StartPosition int64 // the session's when the run began; output of the run lies behind it
	EndPosition   int64 // of the run's end; 0 before. A run that never began ends where it starts
	StepCount     int32 // committed steps of this run
	Outcome       Outcome
	Attempt       int32 // number of claims
	Entry         Entry
	Stop          *Stop  // nil unless a stop was requested
	DueAt         Millis // not claimed before; 0 for at once
	Losses        int32  // losses of its executor since the last committed step
	DeadlineAt    Millis // its executor ends it at this time; 0 for never
	Traceparent   string
	Tracestate    string
	CreatedAt     Millis
	StartedAt     Millis // first claim
	CompletedAt   Millis

	Epoch         int64  // of the newest claim; 0 before the first
	ExecutorID    string // the owner; empty for none
	ClaimedAt     Millis // newest claim
	FinishStep    int32  // its commit ended the run; 0 if Finish did
	FinishVersion int64  // the session's version at the end of the run; 0 before

	OnBusy BusyPolicy // the policy that made it wait; empty for a run that never waited
	Place  int64      // order of waiting runs, lowest first: the session's version when it began to wait; 0 for a run that never waited

	// The session when the run began. The state versions are 0 before.
	StartMessageCount int64 // without the run's own first messages
	StartStateVersion int64 // as Session.StateVersion
	StartStateBase    int64

	TurnMessageCount int64 // StartMessageCount of the turn's first run; continuations belong to the same turn
}

// BusyPolicy tells how a new run treats a live one.
type BusyPolicy string

// The policies.
const (
	BusyReject    BusyPolicy = "reject"
	BusyEnqueue   BusyPolicy = "enqueue"   // wait for the live run
	BusyInterrupt BusyPolicy = "interrupt" // wait, and interrupt the live run
	BusyRollback  BusyPolicy = "rollback"  // wait, interrupt the live run, and undo it when it has ended
)

// Entry is the reason for a run.
type Entry string

// The reasons for runs.
const (
	EntryStart        Entry = "start"        // new messages
	EntryResume       Entry = "resume"       // a request to continue
	EntryContinuation Entry = "continuation" // the awaited calls and children have ended
)

// Stop is a request to end a run early. It stays with the run.
type Stop struct {
	Kind   StopKind `json:"kind"`
	Reason string   `json:"reason,omitempty"`
	At     Millis   `json:"at,omitempty"`
	Undo   bool     `json:"undo,omitempty"` // undo the run when a waiting run begins
}

// StopKind is the kind of a stop.
type StopKind string

// The kinds. An abort outranks an interrupt.
const (
	StopInterrupt StopKind = "interrupt" // the session can be resumed
	StopAbort     StopKind = "abort"     // the run fails
)

// Outcome is the end of a run. Status is empty while the run is live.
type Outcome struct {
	Status           RunStatus
	Output           string // JSON, or empty
	Failure          *Failure
	CompletionReason string
	FinishReason     string  // of the last model call; empty for none
	Usage            *Tokens // of the run; nil if unknown
}

// Tokens are the tokens of model calls.
type Tokens struct {
	Prompt     int64 `json:"prompt,omitempty"`
	Completion int64 `json:"completion,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	Cached     int64 `json:"cached,omitempty"`
	Total      int64 `json:"total,omitempty"`
}

// equal reports whether both are the same end. It ignores FinishReason and Usage, since an
// older release may have written the first outcome without them.
func (o Outcome) equal(p Outcome) bool {
	if (o.Failure == nil) != (p.Failure == nil) || o.Failure != nil && *o.Failure != *p.Failure {
		return false
	}
	return o.Status == p.Status && o.Output == p.Output && o.CompletionReason == p.CompletionReason
}

// Message is an entry of a conversation. Its body is opaque.
type Message struct {
	Ordinal   int64  `json:"-"` // set by the appending command
	ID        string `json:"id"`
	Role      string `json:"role"`
	RunID     string `json:"runId,omitempty"`
	Step      int32  `json:"step,omitempty"`
	CreatedAt Millis `json:"createdAt,omitempty"`
	Body      []byte `json:"body,omitempty"`
}

// Journal is the record of the step in flight.
type Journal struct {
	Step    int32
	Plan    []byte   // opaque
	CallIDs []string // of the plan, in its order
	Usage   []Usage
	Ops     []StateOp // of the plan; the commit repeats them among its own
	Results []Result  // in the order of recording
}

// Result is the recorded result of one call.
type Result struct {
	CallID string
	Body   []byte
	Ops    []StateOp
	Usage  []Usage
}

// Usage is one measurement. Its kind determines which fields are used.
type Usage struct {
	Kind   UsageKind `json:"kind,omitempty"`
	Source string    `json:"source,omitempty"` // agent, tool or subagent

	Model            string `json:"model,omitempty"`
	PromptTokens     int64  `json:"prompt_tokens,omitempty"`
	CompletionTokens int64  `json:"completion_tokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoning_tokens,omitempty"`
	CachedTokens     int64  `json:"cached_tokens,omitempty"`
	TotalTokens      int64  `json:"total_tokens,omitempty"`

	Tool       string `json:"tool,omitempty"` // name of the tool, or type of the sub-agent
	Success    bool   `json:"success,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`

	Type  string  `json:"type,omitempty"` // of a custom measurement
	Name  string  `json:"name,omitempty"`
	Value float64 `json:"value,omitempty"`
}

// UsageKind is the kind of a measurement.
type UsageKind string

// The kinds of measurements.
const (
	UsageTokens   UsageKind = "tokens"   // a model call
	UsageTool     UsageKind = "tool"     // a tool call
	UsageSubAgent UsageKind = "subagent" // a sub-agent's run
	UsageCustom   UsageKind = "custom"   // Value, named by Type and Name
)

// UsageEntry is a recorded measurement.
type UsageEntry struct {
	RunID    string // may be empty outside of steps
	Step     int32  // 0 outside of steps
	Position int32  // index within the step
	At       Millis
	Usage
}

// Checkpoint is the record of a committed step: the conversation and the custom state after
// it, and the answer of its commit.
type Checkpoint struct {
	ID           string
	RunID        string
	Step         int32
	Epoch        int64
	Version      int64 // of the session after the step
	MessageCount int64
	Status       Status
	StateVersion int64 // of the custom state, shared by steps that do not change it
	StateBase    int64 // as in Session
	Warnings     []string
	CreatedAt    Millis

	// Record is opaque: the step as readers saw it, beside its messages. Only StoredStep
	// returns it.
	Record []byte
}

// StoredStep is a committed step for readers. A branch does not have the steps of its source.
type StoredStep struct {
	Checkpoint           // including Record
	Follows    int32     // the stored step before; 0 for none
	BeginsRun  bool      // it is the first stored step of its run
	Messages   []Message // of the run and the step, in order
}

// Call is a call that a client or a human answers: a client tool, or the approval of a server
// tool. One row holds the open call, its owner, its answer and the consumed answer, so
// readers never see one without the others.
type Call struct {
	CallID     string // unique in the family
	SessionID  string // the owner
	RunID      string // the run that suspended on it; empty for an orphan, whose run or session has failed
	Step       int32
	StepID     string
	ToolName   string
	Kind       CallKind
	ApprovalID string // of an approval
	Input      string // JSON
	Stash      []byte // opaque message that waits for the answer; nil for none
	CreatedAt  Millis
	DeadlineAt Millis // 0 for none

	Answer     AnswerKind // empty while the call is open
	Revision   int32      // number of answers; a late answer may replace a timeout
	Response   []byte     // opaque answer for the next step
	AnsweredAt Millis
	ConsumedAt Millis // when a step consumed the answer; the row is a tombstone afterwards

	ConsumedStep int32 // the consuming step; 0 before, and if the end of the run consumed it

	Late   []byte // opaque answer after a consumed timeout
	LateAt Millis // 0 for none
	Told   bool   // a step has reported the late answer to the model

	ToldStep int32 // the reporting step; 0 before
}

// CallKind is the kind of answer that a call accepts.
type CallKind string

// The kinds of calls.
const (
	ClientTool CallKind = "client_tool"
	Approval   CallKind = "approval"
)

// AnswerKind is the source of an answer.
type AnswerKind string

// The sources.
const (
	AnswerClient    AnswerKind = "client"
	AnswerTimeout   AnswerKind = "timeout"   // the deadline has passed
	AnswerAbandoned AnswerKind = "abandoned" // the call was abandoned for a new message
)

// Child is the record of a child in its parent.
type Child struct {
	SessionID   string
	AgentType   string
	CallID      string // the parent's call that made the child
	Status      Status // as reported by a local child; may be old for a remote one
	Mode        ChildMode
	Name        string // of a persistent child
	Location    Location
	Remote      string // JSON: how to reach a remote child; empty for a local one
	StartedAt   Millis
	CompletedAt Millis
}

// ChildMode is the lifetime of a child.
type ChildMode string

// The modes.
const (
	Ephemeral  ChildMode = "ephemeral"  // for one call
	Persistent ChildMode = "persistent" // a companion for many calls
)

// Location is where a child is stored.
type Location string

// The locations.
const (
	Local  Location = "local"  // in this store; deleted with its parent
	Remote Location = "remote" // in another service
)

// Agent describes an agent that an executor announces.
type Agent struct {
	Type        string
	Description string
	OnBusy      BusyPolicy // default for requests; empty for BusyReject
}
