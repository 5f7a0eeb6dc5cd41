package agent

import (
	"context"
	"encoding/json"
	"time"
)

// Retry decides about a call whose outcome is unknown: its executor died before it recorded the result, or the MCP server
// of its tool did not answer.
type Retry string

const (
	// RetryNever gives the model a failed result: the outcome is unknown. It is the default.
	RetryNever Retry = "never"
	// RetrySafe executes the call again with the same idempotency key.
	RetrySafe Retry = "safe"
)

// Tool is a function that the model of an agent can call. The executor runs a tool with Execute; a
// client, for example the user's browser, answers the calls of a tool with Client; another agent
// answers the calls of a tool with SubAgent.
type Tool struct {
	// Name has 1 to 64 characters of A-Z a-z 0-9 _ -, as all providers accept.
	Name        string
	Description string
	// InputSchema is a JSON Schema for the arguments, of type object. If the arguments do not fit,
	// the model receives the problems as a failed result, and the tool is not called.
	InputSchema json.RawMessage
	// OutputSchema is a JSON Schema for the result; nil checks nothing. A result that does not fit is
	// a failed result.
	OutputSchema json.RawMessage
	// Strict asks the provider to constrain the arguments to InputSchema, if it can.
	Strict bool
	// Retry empty means RetryNever.
	Retry Retry
	// ReadOnly declares that calls change nothing outside of the runtime, however often they run. If
	// all calls of a step are read-only, the runtime records nothing before the commit of the step;
	// after a crash it calls the model again, which may make other calls. Use RetrySafe instead for
	// a slow or expensive tool. Retry is ignored. Not with Client.
	ReadOnly bool
	// Timeout limits one execution; 0 means the limit of the executor. With SubAgent, it limits the
	// time from the call to the end of the sub-agent, including its waits; 0 means no limit.
	Timeout time.Duration
	// FinishWith makes a successful call end the run, with its result as the output. The call runs
	// after the other calls of its step.
	FinishWith bool
	// Client leaves the calls to a client. Not with Execute.
	Client bool
	// SubAgent is the type of the agent that answers the calls, each in a new session below the
	// session of the call. Any executor may run it. Its output is the result of the call, and its
	// failure a failed result. It sees the arguments of the call, but neither the conversation nor
	// the custom state. Name is SubAgentPrefix followed by the type. Not with Execute or Client.
	SubAgent string
	// Dynamic marks a tool known at run time only, for example from an MCP server. Clients
	// have no static type for its calls.
	Dynamic bool
	// Approval makes every call wait for the approval of a human.
	Approval bool
	// ApproveWhen, if not nil, makes the calls wait for which it returns true, and those for which it fails (see Agent).
	// It is called before the calls of a step run. call.Input has the arguments, call.State returns the custom state at the
	// start of the step, and call.Update and call.Emit fail with CALL_ENDED. A call that has waited runs with another
	// IdempotencyKey.
	ApproveWhen func(ctx context.Context, call *Call) (bool, error)
	// Approvers says who may approve the calls. All who reach the session may deny them.
	Approvers ApproverRule
	// AnswerWithin limits the wait for a client or a human; 0 means no limit.
	AnswerWithin time.Duration
	// LaterWithin lets Execute return Later: another system then posts the result to the URL in Call.Callback, within this
	// time. 0 means that the tool never does. Only with Execute.
	LaterWithin time.Duration
	// Execute runs a call. The model receives a returned string as it is, any other value as JSON,
	// and an error as a failed result, which does not fail the run, unless it is Later. The calls of
	// a step run concurrently.
	Execute func(ctx context.Context, call *Call) (any, error)
}

// ApproverRule says who may approve a call.
type ApproverRule string

// The rules.
const (
	// Anyone allows everybody who reaches the session.
	Anyone ApproverRule = ""
	// Others allows every authenticated caller of the tenant with the right to approve, but not the one
	// that started the run. A caller without credentials is not allowed.
	Others ApproverRule = "others"
)

// Repeatable reports whether a call may run again if its outcome is unknown.
func (t Tool) Repeatable() bool { return t.ReadOnly || t.Retry == RetrySafe }

// NeedsApproval reports whether a call waits for a human. An error or a panic of ApproveWhen counts as true.
func (t Tool) NeedsApproval(ctx context.Context, call *Call) (needs bool) {
	if t.Approval || t.ApproveWhen == nil {
		return t.Approval
	}
	defer func() {
		if recover() != nil {
			needs = true
		}
	}()
	needs, err := t.ApproveWhen(ctx, call)
	return needs || err != nil
}

// Call is one execution of a tool. Its methods may be called from many goroutines
// until Execute returns.
type Call struct {
	ID   string
	Tool string
	// IdempotencyKey is the same for all attempts of this call, and unique among calls. Pass it on to
	// other services.
	IdempotencyKey string
	Tenant         string
	SessionID      string
	// ParentSessionID, UserID and Turn are as in RunView.
	ParentSessionID string
	RunID           string
	AgentType       string
	UserID          string
	Tags            []string
	Metadata        map[string]string
	Turn            int
	// Step is the step of the session.
	Step int
	// Input is the arguments, a JSON object.
	Input json.RawMessage
	// Callback is where another system may post the result. It is zero unless the tool has LaterWithin.
	Callback Callback
	// Host is the access to the run. It may be nil outside of a run, as in a test: then the state is
	// empty and the other methods do nothing.
	Host Host
}

// Host gives a tool or a hook access to its run. Safe for concurrent use.
type Host interface {
	// State returns a copy of the custom state at the start of the step, with the changes of this
	// caller.
	State() State
	// Update changes the custom state. change may modify its draft in any way, but must not call
	// Update. If change returns an error, Update drops the change and returns the error. The
	// changes are written with the result of the call if the call succeeds, else dropped.
	//
	// Faults: Invalid (STATE_INVALID) for values without JSON and for keys other than 1 to 256
	// bytes of UTF-8 without control characters; TooLarge (STATE_SIZE_EXCEEDED); Conflict
	// (CALL_ENDED) if the call has ended or timed out.
	Update(change func(draft State) error) error
	// Emit sends an event to the readers of the session. data is marshalled to JSON. After a crash
	// the event may be sent again.
	//
	// The event is stored with the step and is part of /messages, unless it is Transient. With an
	// id (WithID) it replaces the earlier event of the same name and id.
	//
	// Faults: Invalid (EVENT_INVALID) for a name or an id other than 1 to 256 bytes of UTF-8
	// without control characters, and for data without JSON; TooLarge (EVENT_TOO_LARGE,
	// EVENTS_TOO_LARGE); Exhausted (EVENTS_EXHAUSTED); Conflict (CALL_ENDED).
	Emit(ctx context.Context, name string, data any, options ...EmitOption) error
	// RecordUsage adds a value to the usage of the session, which is summed by kind and name. Usage
	// of failed calls counts too.
	RecordUsage(kind, name string, value float64)
}

// State returns a copy of the custom state: see Host.
func (c *Call) State() State {
	if c.Host == nil {
		return State{}
	}
	return c.Host.State()
}

// Update changes the custom state: see Host.
func (c *Call) Update(change func(draft State) error) error {
	if c.Host == nil {
		return nil
	}
	return c.Host.Update(change)
}

// Emit sends an event to the readers of the session: see Host.
func (c *Call) Emit(ctx context.Context, name string, data any, options ...EmitOption) error {
	if c.Host == nil {
		return nil
	}
	return c.Host.Emit(ctx, name, data, options...)
}

// RecordUsage adds a value to the usage of the session: see Host.
func (c *Call) RecordUsage(kind, name string, value float64) {
	if c.Host != nil {
		c.Host.RecordUsage(kind, name, value)
	}
}
