package agent

import (
	"context"
	"encoding/json"
	"time"
)

// ToolOption is an option of NewTool, ClientTool and SubAgent.
type ToolOption func(*Tool)

// NewTool makes a tool from a Go function with typed input and output.
//
// The input schema is SchemaOf[In]. In must be a struct or another type with a schema of type object:
//
//	struct {
//		City string `json:"city" jsonschema:"name of the city"`
//		Days int    `json:"days,omitempty"`
//	}
//
// Fields without omitempty or omitzero are required. Unknown members are invalid. With a schema from
// WithInputSchema that allows more members, a member is still invalid if it differs from a field only
// by the case of letters. Numbers in fields of type any are json.Number.
//
// run may be called concurrently. The model receives a string as it is, any other output as JSON, and
// an error as a failed result, which does not fail the run.
//
// Like regexp.MustCompile, NewTool panics if In has no schema. Agent.Check reports other problems.
func NewTool[In, Out any](
	name, description string, run func(ctx context.Context, call *Call, in In) (Out, error), options ...ToolOption,
) Tool {
	t := defined[In](name, description, options)
	if t.Retry == "" {
		t.Retry = RetryNever
	}
	t.Execute = func(ctx context.Context, call *Call) (any, error) {
		in, err := decodeInput[In](call.Input)
		if err != nil {
			return nil, err
		}
		return run(ctx, call, in)
	}
	return t
}

// ClientTool makes a tool whose calls a client answers, for example the user's browser. In is as for
// NewTool.
func ClientTool[In any](name, description string, options ...ToolOption) Tool {
	t := defined[In](name, description, options)
	t.Client = true
	return t
}

// SubAgent makes a tool whose calls are answered by an agent of the type: see Tool.SubAgent. In is as
// for NewTool, or Task. The first message of the sub-agent is the argument message if that is the
// only one, else all arguments as JSON.
func SubAgent[In any](agentType, description string, options ...ToolOption) Tool {
	t := defined[In](SubAgentPrefix+agentType, description, options)
	t.SubAgent = agentType
	return t
}

// Task is the input of a sub-agent that receives its task in words.
type Task struct {
	Message string `json:"message" jsonschema:"the task, with everything that the agent has to know"`
}

func defined[In any](name, description string, options []ToolOption) Tool {
	t := Tool{Name: name, Description: description}
	for _, o := range options {
		o(&t)
	}
	if t.InputSchema == nil {
		t.InputSchema = inputSchema[In](name)
	}
	return t
}

// Safe sets RetrySafe: after a crash a call may run again, with the same idempotency key. The default
// is RetryNever.
func Safe() ToolOption { return func(t *Tool) { t.Retry = RetrySafe } }

// ReadOnly declares that calls change nothing outside of the runtime: see Tool.ReadOnly.
func ReadOnly() ToolOption { return func(t *Tool) { t.ReadOnly = true } }

// Timeout limits one execution of the tool, or the time of a sub-agent: see Tool.Timeout.
func Timeout(limit time.Duration) ToolOption { return func(t *Tool) { t.Timeout = limit } }

// RequireApproval makes every call wait for the approval of a human.
func RequireApproval() ToolOption { return func(t *Tool) { t.Approval = true } }

// ApproveWhen makes a call wait for the approval of a human if needs returns true: see Tool.ApproveWhen. In is the input
// of the tool. The call also waits if needs fails, or if the input cannot be decoded into In.
func ApproveWhen[In any](needs func(ctx context.Context, call *Call, in In) (bool, error)) ToolOption {
	return func(t *Tool) {
		t.ApproveWhen = func(ctx context.Context, call *Call) (bool, error) {
			in, err := decodeInput[In](call.Input)
			if err != nil {
				return true, err
			}
			return needs(ctx, call, in)
		}
	}
}

// Approvers says who may approve the calls: see Tool.Approvers.
func Approvers(who ApproverRule) ToolOption { return func(t *Tool) { t.Approvers = who } }

// FinishWith makes a successful call end the run, with its result as the output: see Tool.FinishWith.
func FinishWith() ToolOption { return func(t *Tool) { t.FinishWith = true } }

// StrictArguments asks the provider to constrain the arguments to the schema, if it can.
func StrictArguments() ToolOption { return func(t *Tool) { t.Strict = true } }

// AnswerWithin limits the wait for a client or a human.
func AnswerWithin(limit time.Duration) ToolOption { return func(t *Tool) { t.AnswerWithin = limit } }

// LaterWithin lets the tool return Later, and limits the wait for the result: see Tool.LaterWithin.
func LaterWithin(limit time.Duration) ToolOption { return func(t *Tool) { t.LaterWithin = limit } }

// WithInputSchema replaces the schema of the input type, for rules that a Go type cannot express.
func WithInputSchema(schema json.RawMessage) ToolOption {
	return func(t *Tool) { t.InputSchema = schema }
}

// WithOutputSchema checks results against a schema, for example SchemaOf[Out].
func WithOutputSchema(schema json.RawMessage) ToolOption {
	return func(t *Tool) { t.OutputSchema = schema }
}
