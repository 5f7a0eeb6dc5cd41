// Package agent is what a user of Holdfast defines: agents and their tools.
// An agent is configuration; it runs nothing by itself.
package agent

import (
	"context"
	"encoding/json"
	"time"
)

// DefaultMaxSteps is the cap on the steps of a run where an agent names none.
const DefaultMaxSteps = 50

// Agent is one kind of agent.
type Agent struct {
	// Name is the agent type: the key by which runs name it.
	Name        string
	Description string
	// Model is provider/name, for example anthropic/claude-sonnet-4-5.
	Model        string
	SystemPrompt string
	Tools        []Tool
	// MaxSteps caps the steps of one run; 0 means DefaultMaxSteps.
	MaxSteps int
	// MaxOutputTokens caps one reply; 0 leaves it to the provider.
	MaxOutputTokens int
	// Temperature is left to the provider when nil.
	Temperature *float64
}

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

// Tool is something that an agent's model may call, run by the executor.
type Tool struct {
	// Name has 1 to 64 characters of A-Z a-z 0-9 _ -: what every provider accepts.
	Name        string
	Description string
	// InputSchema is a JSON Schema of the arguments: an object.
	InputSchema json.RawMessage
	// Retry is RetryNever when empty.
	Retry Retry
	// Timeout bounds one execution; 0 leaves it to the executor.
	Timeout time.Duration
	// Execute runs the call. The value it returns is marshalled to JSON and
	// given to the model; an error is given to the model as a failed result
	// and does not fail the run. Calls of one step run at the same time.
	Execute func(ctx context.Context, call Call) (any, error)
}

// Call is one execution of a tool.
type Call struct {
	ID string
	// IdempotencyKey is the same for every attempt at this call and for no
	// other call: hand it to the outside world.
	IdempotencyKey string
	Tenant         string
	SessionID      string
	RunID          string
	AgentType      string
	// Input is the arguments: a JSON object.
	Input json.RawMessage
}
