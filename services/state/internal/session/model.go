package session

// Millis is a time in milliseconds since the Unix epoch; 0 means not yet or
// never.
type Millis int64

// Key names a session. The same session id under two tenants names two
// sessions that know nothing of each other.
type Key struct {
	Tenant    string
	SessionID string
}

// Status is the status of a session, by the names of the specification.
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

// The statuses of a run. A suspended run has finished: its continuation is
// another run. One that waits is neither live nor over.
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

// Live reports whether the run has not finished yet.
func (s RunStatus) Live() bool { return s == RunQueued || s == RunRunning }

// Over reports whether the run has finished.
func (s RunStatus) Over() bool { return !s.Live() && s != RunWaiting }

// Suspended reports whether the session waits for answers or for children.
func (s Status) Suspended() bool {
	return s == SuspendedClientTool || s == SuspendedAwaitingChildren || s == SuspendedStepPartial
}

// Terminal reports whether the session's last run is over for good: only
// another run changes anything.
func (s Status) Terminal() bool { return s == Completed || s == Failed }

// Session is a conversation and what is known about it, without its messages.
type Session struct {
	Key
	AgentType      string
	ParentID       string // empty for a root
	RootID         string // the session itself for a root
	Status         Status
	Version        int64 // raised by one on every write of the session's state; begins at 1
	Epoch          int64 // raised by one on every claim
	Turn           int32 // the number of runs so far
	StepCount      int32 // committed steps over all runs
	ResumeCount    int32 // how often the session was resumed
	MessageCount   int64 // also the ordinal of the next message
	State          string
	StateVersion   int64  // the Version with which the custom state was last written
	StateBase      int64  // the Version whose state is kept as a whole; the writes up to StateVersion are kept beside it
	StateWrites    int32  // how many such writes there are
	StateBytes     int64  // their size
	Output         string // one JSON text, or empty
	Failure        *Failure
	Position       int64       // behind everything that is durable, as package position packs it; 0 when nothing is
	Claims         int32       // claims of runs, and ends of runs outside a step, since the last committed step
	CurrentRunID   string      // the newest run; empty before the first
	CheckpointID   string      // the newest checkpoint that there is; empty for none
	Suspension     *Suspension // nil while the session is not suspended
	Interruption   *Interruption
	Children       int32 // how many sub-sessions it has had
	Waiting        int32 // how many runs wait for the live one
	UsageCount     int32 // usage entries recorded outside of steps
	UserID         string
	OrganizationID string
	Tags           []string
	Metadata       map[string]string
	CreatedAt      Millis
	UpdatedAt      Millis
	ExpiresAt      Millis // the session may be given up from this time on; 0 for never
}

// Suspension is where a suspended session goes on.
type Suspension struct {
	StepID   string               `json:"stepId,omitempty"`   // names the step whose calls are open
	Children map[string]ChildWait `json:"children,omitempty"` // by session id: those that it waits for
	Tracing  *Tracing             `json:"tracing,omitempty"`

	// When a session that waits for children expires; see expiry.
	Keep      Millis            `json:"keep,omitempty"`      // how long it was to be kept
	ExpiresAt Millis            `json:"expiresAt,omitempty"` // until when, but for its children; 0 for ever
	Holds     map[string]Millis `json:"holds,omitempty"`     // by session id: until when a local child keeps it at least; 0 for as long as the child likes
}

// ChildWait is what a parent waits for.
type ChildWait struct {
	CallID string `json:"callId,omitempty"` // of the parent, that the child's end answers
	Status Status `json:"status,omitempty"` // of the child, as the parent knows it
}

// Tracing is the trace that a continuation belongs to.
type Tracing struct {
	TraceID    string `json:"traceId,omitempty"`
	RootSpanID string `json:"rootSpanId,omitempty"`
}

// Interruption is why and when the session was interrupted.
type Interruption struct {
	RunID  string `json:"runId,omitempty"`
	Reason string `json:"reason,omitempty"`
	At     Millis `json:"at,omitempty"`
}

// Failure is why a run failed.
type Failure struct {
	Error     string `json:"error"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Reason    string `json:"reason,omitempty"` // why a session failed that did nothing wrong: a FailureReason
}

// The reasons for which a session fails through no run of its own.
const (
	SessionExpired = "session_expired" // nobody came before ExpiresAt
	ParentFailed   = "parent_failed"   // its parent has failed or was given up
)

// Run is one execution inside a session.
type Run struct {
	RunID         string
	AgentType     string
	Turn          int32 // 0 for one that never began
	Status        RunStatus
	RequestKey    string // empty when the request had none
	RequestHash   []byte // what a repetition of the key must equal; nil without a key
	MessageID     string
	StartPosition int64 // the session's when the run began; everything that the run shows comes behind it
	EndPosition   int64 // of the run's end; 0 before. That of a run that never began is its start: it has shown nothing
	StepCount     int32 // steps that this run has committed
	Outcome       Outcome
	Attempt       int32 // how often the run was claimed
	Entry         Entry
	Stop          *Stop  // nobody has asked the run to stop when nil
	DueAt         Millis // not claimed before; 0 for at once
	Losses        int32  // how often in a row its executor fell silent without a committed step
	DeadlineAt    Millis // its executor ends it then; 0 for never
	Traceparent   string
	Tracestate    string
	CreatedAt     Millis
	StartedAt     Millis // the first claim
	CompletedAt   Millis

	Epoch         int64  // of the newest claim; 0 before the first
	ExecutorID    string // who executes the run; empty when nobody does
	ClaimedAt     Millis // the newest claim
	FinishStep    int32  // the step whose commit finished the run; 0 when Finish did
	FinishVersion int64  // the session's version that finished the run; 0 while it is live

	OnBusy BusyPolicy // how it came to wait; empty for a run that never did
	Place  int64      // among those that wait, the lower first: the session's version that let it wait; 0 for a run that never did

	// Where the session was when the run began: what it appends and writes comes
	// behind. The state is 0 for a run that has not begun.
	StartMessageCount int64 // without its own first messages
	StartStateVersion int64 // as Session.StateVersion, StateBase
	StartStateBase    int64

	TurnMessageCount int64 // StartMessageCount of the run that this one continues, or its own: a run and its continuations are one turn
}

// BusyPolicy is what becomes of a request to start a run while another is live.
type BusyPolicy string

// The policies.
const (
	BusyReject    BusyPolicy = "reject"
	BusyEnqueue   BusyPolicy = "enqueue"   // it waits
	BusyInterrupt BusyPolicy = "interrupt" // it waits, and the live one is asked to stop
	BusyRollback  BusyPolicy = "rollback"  // likewise, and what the live one has done is taken back when it has ended
)

// Entry is how a run came to be.
type Entry string

// The entries of runs.
const (
	EntryStart        Entry = "start"        // new messages
	EntryResume       Entry = "resume"       // somebody asked the session to go on
	EntryContinuation Entry = "continuation" // its calls were answered, or its children have ended
)

// Stop is a request that a run ends early. It belongs to one run and is kept
// with it.
type Stop struct {
	Kind   StopKind `json:"kind"`
	Reason string   `json:"reason,omitempty"`
	At     Millis   `json:"at,omitempty"`
	Undo   bool     `json:"undo,omitempty"` // what the run has done is taken back when a waiting one begins
}

// StopKind is how a run is to end.
type StopKind string

// The kinds of stops. An abort outranks an interrupt.
const (
	StopInterrupt StopKind = "interrupt" // soft: the session can be resumed
	StopAbort     StopKind = "abort"     // hard: the run fails
)

// Outcome is how a run ended. Its Status is empty in a run that is live.
type Outcome struct {
	Status           RunStatus
	Output           string // one JSON text, or empty
	Failure          *Failure
	CompletionReason string
	FinishReason     string  // why the model stopped last; empty when none was called
	Usage            *Tokens // of the run; nil where nobody has counted them
}

// Tokens are those that models have read and written.
type Tokens struct {
	Prompt     int64 `json:"prompt,omitempty"`
	Completion int64 `json:"completion,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	Cached     int64 `json:"cached,omitempty"`
	Total      int64 `json:"total,omitempty"`
}

// equal reports whether both are one end. Why the model stopped and the tokens are not
// asked: a release that did not keep them may have written the first.
func (o Outcome) equal(p Outcome) bool {
	if (o.Failure == nil) != (p.Failure == nil) || o.Failure != nil && *o.Failure != *p.Failure {
		return false
	}
	return o.Status == p.Status && o.Output == p.Output && o.CompletionReason == p.CompletionReason
}

// Message is one entry of a conversation. Its body is opaque here.
type Message struct {
	Ordinal   int64  `json:"-"` // given by the command that appends it
	ID        string `json:"id"`
	Role      string `json:"role"`
	RunID     string `json:"runId,omitempty"`
	Step      int32  `json:"step,omitempty"`
	CreatedAt Millis `json:"createdAt,omitempty"`
	Body      []byte `json:"body,omitempty"`
}

// Journal is what the step in flight has left behind.
type Journal struct {
	Step    int32
	Plan    []byte   // opaque, like the body of a message
	CallIDs []string // the calls of the plan, in its order
	Usage   []Usage
	Ops     []StateOp // that have led to the plan; its step's commit has them among its own
	Results []Result  // in the order of their recording
}

// Result is the recorded end of one call.
type Result struct {
	CallID string
	Body   []byte
	Ops    []StateOp
	Usage  []Usage
}

// Usage is one measurement. Which fields count depends on its kind.
type Usage struct {
	Kind   UsageKind `json:"kind,omitempty"`
	Source string    `json:"source,omitempty"` // agent, tool or subagent

	Model            string `json:"model,omitempty"`
	PromptTokens     int64  `json:"prompt_tokens,omitempty"`
	CompletionTokens int64  `json:"completion_tokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoning_tokens,omitempty"`
	CachedTokens     int64  `json:"cached_tokens,omitempty"`
	TotalTokens      int64  `json:"total_tokens,omitempty"`

	Tool       string `json:"tool,omitempty"` // the tool's name, or the sub-agent's type
	Success    bool   `json:"success,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`

	Type  string  `json:"type,omitempty"` // of a custom measurement
	Name  string  `json:"name,omitempty"`
	Value float64 `json:"value,omitempty"`
}

// UsageKind is what was measured.
type UsageKind string

// The kinds of usage entries.
const (
	UsageTokens   UsageKind = "tokens"   // a model call
	UsageTool     UsageKind = "tool"     // a tool call
	UsageSubAgent UsageKind = "subagent" // a sub-agent's run
	UsageCustom   UsageKind = "custom"   // Value, under Type and Name
)

// UsageEntry is a measurement with its place.
type UsageEntry struct {
	RunID    string // may be empty for an entry recorded outside of steps
	Step     int32  // 0 for an entry recorded outside of steps
	Position int32  // 0 for the first of the step
	At       Millis
	Usage
}

// Checkpoint is what a committed step left: where the conversation
// and the custom state stood, and what the commit answered.
type Checkpoint struct {
	ID           string
	RunID        string
	Step         int32
	Epoch        int64
	Version      int64 // the session's version after the step
	MessageCount int64
	Status       Status
	StateVersion int64 // names the state, which is stored once for all steps that leave it as it is
	StateBase    int64 // as in Session
	Warnings     []string
	CreatedAt    Millis

	// Record is opaque: what readers saw of the step beside its messages. It is
	// written with the checkpoint, and only StoredStep shows it again.
	Record []byte
}

// StoredStep is a committed step of a session as readers may see it. A branch does not
// have the steps of the session that it was made of.
type StoredStep struct {
	Checkpoint           // with its Record
	Follows    int32     // the stored step before this one; 0 for none
	BeginsRun  bool      // no earlier stored step is of the same run
	Messages   []Message // of the run and the step, in the order of the conversation
}

// Call is a call that somebody outside of the runtime answers: a client tool,
// or the approval of a server tool. One row is all there is of it: the pending
// call and its answer, the ownership (its session, found by the family's root),
// and, once the answer was consumed, the tombstone. So no reader ever sees one of
// these without the others.
type Call struct {
	CallID     string // unique in the family
	SessionID  string // the owner
	RunID      string // the run that suspended on it; empty for a call that outlived the failure of its run or session: nobody waits for it
	Step       int32
	StepID     string
	ToolName   string
	Kind       CallKind
	ApprovalID string // of an approval
	Input      string // one JSON text
	Stash      []byte // opaque: a message that waits for the answer; nil for none
	CreatedAt  Millis
	DeadlineAt Millis // 0 for none

	Answer     AnswerKind // empty while the call is open
	Revision   int32      // how many answers there were, since a late one may replace a timeout
	Response   []byte     // opaque: the answer as the next step reads it
	AnsweredAt Millis
	ConsumedAt Millis // when a step took the answer; the row is a tombstone from then on

	ConsumedStep int32 // that step; 0 before, and where the run ended with its journal

	Late   []byte // opaque: the answer that came after a timeout was consumed
	LateAt Millis // 0 for none
	Told   bool   // a step has told the model of the late answer

	ToldStep int32 // that step; 0 before
}

// CallKind is what a call waits for. Answers of the other kind are refused.
type CallKind string

// The kinds of calls.
const (
	ClientTool CallKind = "client_tool"
	Approval   CallKind = "approval"
)

// AnswerKind is where an answer came from.
type AnswerKind string

// The kinds of answers.
const (
	AnswerClient    AnswerKind = "client"
	AnswerTimeout   AnswerKind = "timeout"   // the deadline passed
	AnswerAbandoned AnswerKind = "abandoned" // a new message came instead
)

// Child is what a session knows of a sub-session.
type Child struct {
	SessionID   string
	AgentType   string
	CallID      string // of the parent, that made the child
	Status      Status // as the child told it; a remote one may be further
	Mode        ChildMode
	Name        string // of a persistent one
	Location    Location
	Remote      string // one JSON text: how a remote one is reached; empty for a local one
	StartedAt   Millis
	CompletedAt Millis
}

// ChildMode is how long a sub-session is of use.
type ChildMode string

// The modes of sub-sessions.
const (
	Ephemeral  ChildMode = "ephemeral"  // for one call
	Persistent ChildMode = "persistent" // a companion
)

// Location is whose sub-session it is.
type Location string

// The locations of sub-sessions.
const (
	Local  Location = "local"  // of this store: deleted with its parent
	Remote Location = "remote" // of another service
)

// Agent is what an executor announces of an agent that it serves.
type Agent struct {
	Type        string
	Description string
	OnBusy      BusyPolicy // for requests that name none; empty for BusyReject
}
