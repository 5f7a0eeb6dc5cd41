package agent

import (
	"context"
	"encoding/json"
)

// Guard checks the end of a run before it is committed. After a crash it may be called again for the
// same end. The zero value accepts every end.
type Guard struct {
	// OnOutput checks an output that fits the output schema. An error fails the run.
	OnOutput func(ctx context.Context, end Ending) (Verdict, error)
	// OnReply checks the final text of an agent without an output schema. An error fails the run.
	OnReply func(ctx context.Context, end Ending) (Verdict, error)
}

// Ending is the end of a run that a guard checks.
type Ending struct {
	RunView
	// Steps counts the steps of the run, including the last one.
	Steps int
	// Output is JSON. A text reply is a JSON string.
	Output json.RawMessage
	// Reply is the model's message.
	Reply Message
}

// Verdict is the decision of a guard. The zero value accepts the end.
type Verdict struct {
	// Revise, if not empty, is sent to the model, and the run continues with another step.
	Revise string
	// Fail, if not empty, fails the run with this text. Users see it.
	Fail string
	// Replace, if not nil, replaces the output. It must be JSON, and is not checked against the
	// schema. The verdict of OnReply has no use for it.
	Replace json.RawMessage
}
