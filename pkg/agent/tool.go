package agent

import (
	"context"
	"encoding/json"
	"time"
)

// Retry says what happens to a call that had begun when its executor died and
// that left no result behind.
type Retry string

const (
	// RetryNever gives the model a result that says that the outcome is not
	// known. It is the default.
	RetryNever Retry = "never"
	// RetrySafe runs the call again with the same idempotency key.
	RetrySafe Retry = "safe"
)

// Tool is something that an agent's model may call. One with Execute runs on the
// executor; one with Client is answered from outside of the runtime.
type Tool struct {
	// Name has 1 to 64 characters of A-Z a-z 0-9 _ -: what every provider accepts.
	Name        string
	Description string
	// InputSchema is a JSON Schema of the arguments: an object. Arguments that do not
	// fit are told to the model and reach nobody else.
	InputSchema json.RawMessage
	// OutputSchema is a JSON Schema of the result; nil checks nothing. A result that
	// does not fit is told to the model as a failure.
	OutputSchema json.RawMessage
	// Strict asks the provider to constrain arguments to the schema, where it can.
	Strict bool
	// Retry is RetryNever when empty.
	Retry Retry
	// ReadOnly says that calls change nothing outside of the runtime: only their results count,
	// however often they are made. After a crash such calls are made again, or other ones: the
	// model may be asked again for a step that calls nothing else. So the runtime records neither
	// plan nor results of such a step before its commit. A tool that takes long, or costs much,
	// is better RetrySafe. Retry does not matter for a tool that is ReadOnly. Not together with
	// Client.
	ReadOnly bool
	// Timeout bounds one execution; 0 leaves it to the executor.
	Timeout time.Duration
	// FinishWith makes a successful call end the run, with its result as the output. It
	// runs behind the other calls of its step.
	FinishWith bool
	// Client leaves the call to whoever is outside. Not together with Execute.
	Client bool
	// Dynamic says that the tool is known at run time only, as those of MCP servers are:
	// programs that read a stream have no type of their own for it.
	Dynamic bool
	// Approval makes every call wait for the yes of a human, ApproveWhen those that it
	// says. ApproveWhen decides from its arguments alone, and changes nothing in them: see
	// Agent. No answer counts as yes.
	Approval    bool
	ApproveWhen func(input json.RawMessage, state State) bool
	// AnswerWithin bounds the wait for a client's or a human's answer; 0 means that it
	// may take for ever.
	AnswerWithin time.Duration
	// Execute runs the call. A string that it returns reaches the model verbatim, any
	// other value as JSON; an error is given to the model as a failed result
	// and does not fail the run. Calls of one step run at the same time.
	Execute func(ctx context.Context, call *Call) (any, error)
}

// Repeatable reports whether a call may run again of which it is not known how it ended.
func (t Tool) Repeatable() bool { return t.ReadOnly || t.Retry == RetrySafe }

// NeedsApproval reports whether a call with the input waits for a human.
func (t Tool) NeedsApproval(input json.RawMessage, state State) (needs bool) {
	if t.Approval || t.ApproveWhen == nil {
		return t.Approval
	}
	defer func() {
		if recover() != nil {
			needs = true
		}
	}()
	return t.ApproveWhen(input, state)
}

// Call is one execution of a tool. Its methods may be called from many goroutines
// until Execute returns.
type Call struct {
	ID   string
	Tool string
	// IdempotencyKey is the same for every attempt at this call and for no
	// other call: hand it to the outside world.
	IdempotencyKey string
	Tenant         string
	SessionID      string
	RunID          string
	AgentType      string
	UserID         string
	Tags           []string
	Metadata       map[string]string
	// Step of the session that the call belongs to.
	Step int
	// Input is the arguments: a JSON object.
	Input json.RawMessage
	// Host is what the call may do to its run; nil where there is no run, as in a
	// test: then the state is empty and the rest does nothing.
	Host Host
}

// Host is what a tool or a hook may do to the run that it belongs to. Safe for
// concurrent use.
type Host interface {
	// State gives a copy of the custom state: as of the step's begin, with the
	// changes of this caller.
	State() State
	// Update changes the custom state: change may do with its draft what it likes. The
	// change is written with the result of a call that succeeds, and dropped with every
	// other. An error of change undoes it and is returned. change must not call Update.
	// Invalid (STATE_INVALID) for what JSON cannot express and for keys that are not 1 to
	// 256 bytes without control characters, TooLarge (STATE_SIZE_EXCEEDED), Conflict
	// (CALL_ENDED) when the call has ended, or its time was up, before the change.
	Update(change func(draft State) error) error
	// Emit sends an event to the readers of the session. data is marshalled to JSON. A
	// crash may send it again.
	//
	// The event is stored with the step that it belongs to and stands in /messages, unless
	// it is Transient: then it reaches only those who read at the time. An event WithID
	// takes the place of the former event of the same name and id in the message.
	//
	// Invalid (EVENT_INVALID) for a name or an id that is not 1 to 256 bytes of UTF-8
	// without control characters and for data that JSON cannot express, TooLarge
	// (EVENT_TOO_LARGE, EVENTS_TOO_LARGE), Exhausted (EVENTS_EXHAUSTED), Conflict
	// (CALL_ENDED).
	Emit(ctx context.Context, name string, data any, options ...EmitOption) error
	// RecordUsage counts a value under a type and a name: whoever asks for the usage of
	// the session gets the sums. It counts also for calls that fail.
	RecordUsage(kind, name string, value float64)
}

// State gives a copy of the custom state: see Host.
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

// RecordUsage counts a value under a type and a name: see Host.
func (c *Call) RecordUsage(kind, name string, value float64) {
	if c.Host != nil {
		c.Host.RecordUsage(kind, name, value)
	}
}
