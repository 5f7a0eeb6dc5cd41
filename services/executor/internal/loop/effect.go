package loop

import (
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Effect is what a run does next: CallModel, Wait, RecordPlan, RunCalls, Commit,
// Finish or Done.
type Effect interface{ isEffect() }

// CallModel asks the model for the reply of a step. Answer with Replied or Failed.
type CallModel struct {
	Step int
	// Attempt is 1 for the first call of the step. What a former attempt has
	// streamed is void.
	Attempt int
	// Request lacks nothing; its Model is the provider's name of the model.
	Request model.Request
}

// Wait lets time pass before the next attempt. Answer with Waited.
type Wait struct {
	Step  int
	For   time.Duration
	Cause Failure
}

// RecordPlan makes the model's decision durable before anything runs. Answer
// with Recorded.
type RecordPlan struct {
	Step int
	Plan agent.Message
}

// RunCalls runs the calls of a step at the same time. Answer with Ended.
type RunCalls struct {
	Step int
	Plan agent.Message
	// Planned says that the plan is in the journal, so that each result has to
	// be recorded before anybody learns of it.
	Planned bool
	// Calls are in the order of the reply.
	Calls []Call
}

// Call is one call of a step: either its tool is to be run, or its result is
// known already.
type Call struct {
	agent.ToolCall
	// Key is the same for every attempt at this call and for no other call.
	Key string
	// Tool is nil when Result is known.
	Tool   *agent.Tool
	Result *agent.ToolResult
	// Recorded says that Result came from the journal.
	Recorded bool
}

// Commit makes the step durable. Answer with Committed.
type Commit struct {
	Step     int
	Messages []agent.Message
	// Outcome ends the run with this step where it is set.
	Outcome *Outcome
}

// Finish ends the run outside of a step. Answer with Finished.
type Finish struct{ Outcome Outcome }

// Done says that the run has ended.
type Done struct{ Outcome Outcome }

func (CallModel) isEffect()  {}
func (Wait) isEffect()       {}
func (RecordPlan) isEffect() {}
func (RunCalls) isEffect()   {}
func (Commit) isEffect()     {}
func (Finish) isEffect()     {}
func (Done) isEffect()       {}

// Outcome is how a run ended: completed when Failure is nil.
type Outcome struct {
	// Output is one JSON text; for plain text a JSON string.
	Output []byte
	// FinishReason is the model's reason to stop, error where the run failed.
	FinishReason model.FinishReason
	Failure      *Failure
	// CompletionReason is max_steps where the cap ended the run.
	CompletionReason string
}

// Failure is why a run failed.
type Failure struct {
	// Error is a sentence that may be shown to a user.
	Error string
	// Detail is for developers.
	Detail string
	// Code is empty for an unclassified error.
	Code      string
	Retryable bool
}
