package agent

import (
	"context"
	"encoding/json"
	"time"
)

// ToolOption sets what is special about a tool.
type ToolOption func(*Tool)

// NewTool defines a tool with typed input and output. The schema of the input is
// SchemaOf[In], which has to be of an object; In's fields say what they are for:
//
//	struct {
//		City string `json:"city" jsonschema:"name of the city"`
//		Days int    `json:"days,omitempty"`
//	}
//
// Fields without omitempty or omitzero are required, members that In does not have
// are refused, also where a schema of your own lets them in and they differ from the name
// of a field by the case of letters alone. Numbers in fields of type any are json.Number. A string as Out
// reaches the model verbatim, any other value as JSON.
//
// run may be called many times at once. Its error is told to the model, and does not
// fail the run. NewTool panics for an In that has no schema, in the manner of
// regexp.MustCompile; what else is wrong with a tool Agent.Check says.
func NewTool[In, Out any](name, description string, run func(ctx context.Context, call *Call, in In) (Out, error), options ...ToolOption) Tool {
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

// ClientTool defines a tool that is answered from outside of the runtime, as by the
// user's browser. In is as for NewTool.
func ClientTool[In any](name, description string, options ...ToolOption) Tool {
	t := defined[In](name, description, options)
	t.Client = true
	return t
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

// Safe says that a call may run again after a crash, with its idempotency key: see
// RetrySafe. Without it a tool is RetryNever.
func Safe() ToolOption { return func(t *Tool) { t.Retry = RetrySafe } }

// ReadOnly says that calls change nothing outside of the runtime, as a look-up: after a crash
// they may be made again, or others in their place. See Tool.
func ReadOnly() ToolOption { return func(t *Tool) { t.ReadOnly = true } }

// Timeout bounds one execution of the tool.
func Timeout(limit time.Duration) ToolOption { return func(t *Tool) { t.Timeout = limit } }

// RequireApproval makes every call wait for the yes of a human.
func RequireApproval() ToolOption { return func(t *Tool) { t.Approval = true } }

// ApproveWhen makes those calls wait for the yes of a human that needs says. In is the
// input of the tool. needs decides from its arguments alone: see Agent. A panic and no
// answer in time count as yes, as does an input that does not fit In.
func ApproveWhen[In any](needs func(in In, state State) bool) ToolOption {
	return func(t *Tool) {
		t.ApproveWhen = func(input json.RawMessage, state State) bool {
			in, err := decodeInput[In](input)
			return err != nil || needs(in, state)
		}
	}
}

// FinishWith makes a successful call end the run, with its result as the output.
func FinishWith() ToolOption { return func(t *Tool) { t.FinishWith = true } }

// StrictArguments asks the provider to constrain arguments to the schema, where it can.
func StrictArguments() ToolOption { return func(t *Tool) { t.Strict = true } }

// AnswerWithin bounds the wait for a client's or a human's answer.
func AnswerWithin(limit time.Duration) ToolOption { return func(t *Tool) { t.AnswerWithin = limit } }

// WithInputSchema takes the place of the schema that is made from the type of the input,
// for what a type cannot say.
func WithInputSchema(schema json.RawMessage) ToolOption {
	return func(t *Tool) { t.InputSchema = schema }
}

// WithOutputSchema holds results against a schema, such as SchemaOf[Out].
func WithOutputSchema(schema json.RawMessage) ToolOption {
	return func(t *Tool) { t.OutputSchema = schema }
}
