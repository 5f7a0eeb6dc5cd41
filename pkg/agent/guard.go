package agent

import (
	"context"
	"encoding/json"
)

// Guard looks at the end of a run before it becomes one. It may be asked again about
// the same end, after a crash. The zero value accepts everything.
type Guard struct {
	// OnOutput judges an output that fits its schema. An error fails the run.
	OnOutput func(ctx context.Context, end Ending) (Verdict, error)
	// OnReply judges a text that would end the run of an agent without an output
	// schema. An error fails the run.
	OnReply func(ctx context.Context, end Ending) (Verdict, error)
}

// Ending is the end that is judged.
type Ending struct {
	SessionID, RunID, AgentType string
	// Steps of the run, with the one that would be its last.
	Steps int
	// Output is one JSON text, of a plain reply a JSON string.
	Output json.RawMessage
	// Reply is the model's message.
	Reply Message
	State State
}

// Verdict is what a guard says. The zero value accepts.
type Verdict struct {
	// Revise, where it is not empty, is told to the model, and the run goes on with
	// another step.
	Revise string
	// Fail, where it is not empty, fails the run with this sentence, which users see.
	Fail string
	// Replace, where it is not nil, is the output in place of the model's. It is not
	// held against the schema. Of OnOutput only.
	Replace json.RawMessage
}
