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
	Depth          int32  // number of sessions above it; 0 for a root
	Status         Status
	Version        int64 // raised by one with changes other than claims, releases and usage; begins at 1
	Epoch          int64 // raised with each claim, and with a forced end of a live run
	Turn           int32 // number of runs begun
	StepCount      int32 // number of the last step over all runs
	ResumeCount    int32 // number of resumes and continuations
	MessageCount   int64 // also the ordinal of the next message
	State          string
	StateVersion   int64  // Version of the last write to the custom state
	StateBase      int64  // Version of the last whole state; the writes up to StateVersion are stored beside it
	StateWrites    int32  // number of these writes
	StateBytes     int64  // their size
	StoreBytes     int64  // keys and values of the private store
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
	Title          string // for people; empty for none
	Tags           []string
	Metadata       map[string]string
	CreatedAt      Millis
	UpdatedAt      Millis
	ExpiresAt      Millis // the session fails after this time; 0 for never
}

// Suspension is the context of a suspended session. The session waits for its open calls.
type Suspension struct {
	StepID  string   `json:"stepId,omitempty"` // of the step with the open calls
	Tracing *Tracing `json:"tracing,omitempty"`
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

// Message is an entry of a conversation. Its body is opaque.
type Message struct {
	Ordinal   int64    `json:"-"` // set by the appending command
	ID        string   `json:"id"`
	Role      string   `json:"role"`
	RunID     string   `json:"runId,omitempty"`
	Step      int32    `json:"step,omitempty"`
	CreatedAt Millis   `json:"createdAt,omitempty"`
	Body      []byte   `json:"body,omitempty"`
	FileIDs   []string `json:"fileIds,omitempty"` // the files in the body of a new message; a stored one is read without them
}

// Agent describes an agent that an executor announces.
type Agent struct {
	Type        string
	Description string
	OnBusy      BusyPolicy // default for requests; empty for BusyReject
	StateSchema string     // JSON Schema of the custom state; empty if anything fits
	Remote      bool       // another Holdfast runs it
	Definition  string     // the hash of the stored definition; empty for an agent that an executor announces
	Rules       *AgentRules
}

// Problem is a part of an executor's agents that is out of service or incomplete.
type Problem struct {
	Kind  string `json:"kind"` // file, endpoint, provider, mcpServer, tool or agent
	Name  string `json:"name"`
	Agent string `json:"agent,omitempty"` // that has the tool or the fallback; empty for a part of its own
	Text  string `json:"text"`
}
