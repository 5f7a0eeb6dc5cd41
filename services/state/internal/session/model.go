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

// The statuses of a run. The suspended ones are kept for rows that later
// versions write; no command of this package gives them.
const (
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
	MessageCount   int64 // also the ordinal of the next message
	StateVersion   int64 // the Version with which the custom state was last written
	State          string
	Output         string // one JSON text, or empty
	Failure        *Failure
	StreamSequence int64
	StreamStep     int32  // the last step that is whole in the stream, up to StreamSequence
	CurrentRunID   string // the newest run
	UserID         string
	Tags           []string
	Metadata       map[string]string
	CreatedAt      Millis
	UpdatedAt      Millis
	ExpiresAt      Millis
}

// Failure is why a run failed.
type Failure struct {
	Error     string `json:"error"`
	Detail    string `json:"detail,omitempty"`
	Code      string `json:"code,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
}

// Run is one execution inside a session.
type Run struct {
	RunID         string
	AgentType     string
	Turn          int32
	Status        RunStatus
	RequestKey    string // empty when the request had none
	RequestHash   []byte // what a repetition of the key must equal; nil without a key
	MessageID     string
	StartSequence int64
	StepCount     int32 // steps that this run has committed
	Outcome       Outcome
	Settled       bool
	Attempt       int32 // how often the run was claimed
	Traceparent   string
	Tracestate    string
	CreatedAt     Millis
	StartedAt     Millis // the first claim
	CompletedAt   Millis

	Epoch         int64  // of the newest claim; 0 before the first
	ExecutorID    string // who holds the run, to execute or to settle it; empty when nobody does
	ClaimedAt     Millis // the newest claim
	FinishStep    int32  // the step whose commit finished the run; 0 when Finish did
	FinishVersion int64  // the session's version that finished the run; 0 while it is live
}

// Outcome is how a run ended. Its Status is empty in a run that is live.
type Outcome struct {
	Status           RunStatus
	Output           string // one JSON text, or empty
	Failure          *Failure
	CompletionReason string
}

func (o Outcome) equal(p Outcome) bool {
	if (o.Failure == nil) != (p.Failure == nil) || o.Failure != nil && *o.Failure != *p.Failure {
		return false
	}
	return o.Status == p.Status && o.Output == p.Output && o.CompletionReason == p.CompletionReason
}

// Message is one entry of a conversation. Its body is opaque here.
type Message struct {
	Ordinal   int64 // given by the command that appends it
	ID        string
	Role      string
	RunID     string
	Step      int32
	CreatedAt Millis
	Body      []byte
}

// Journal is what the step in flight has left behind.
type Journal struct {
	Step     int32
	Plan     []byte   // opaque, like the body of a message
	CallIDs  []string // the calls of the plan, in its order
	Sequence int64    // of the stream when the plan was recorded
	Usage    []Usage
	Results  []Result // in the order of their recording
}

// Result is the recorded end of one call.
type Result struct {
	CallID string
	Body   []byte
	Ops    []StateOp
	Usage  []Usage
}

// Usage is one measurement: of a model call when Model is set, else of a tool
// call.
type Usage struct {
	Model            string `json:"model,omitempty"`
	PromptTokens     int64  `json:"prompt_tokens,omitempty"`
	CompletionTokens int64  `json:"completion_tokens,omitempty"`
	ReasoningTokens  int64  `json:"reasoning_tokens,omitempty"`
	CachedTokens     int64  `json:"cached_tokens,omitempty"`
	TotalTokens      int64  `json:"total_tokens,omitempty"`

	Tool       string `json:"tool,omitempty"`
	Success    bool   `json:"success,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
}

// UsageEntry is a measurement with its place.
type UsageEntry struct {
	RunID    string
	Step     int32
	Position int32 // 0 for the first of the step
	At       Millis
	Usage
}

// Checkpoint is what a committed step left: where the conversation, the
// stream and the custom state stood, and what the commit answered.
type Checkpoint struct {
	ID             string
	RunID          string
	Step           int32
	Epoch          int64
	Version        int64 // the session's version after the step
	MessageCount   int64
	StreamSequence int64
	Status         Status
	StateVersion   int64 // names the state, which is stored once for all steps that leave it as it is
	Warnings       []string
	CreatedAt      Millis
}

// Agent is what an executor announces of an agent that it serves.
type Agent struct {
	Type        string
	Description string
}
