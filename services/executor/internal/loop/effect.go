package loop

import (
	"encoding/json"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Effect is what a run does next: CallModel, Wait, Compact, Guard, RecordPlan,
// RunCalls, Commit, Finish or Done. Each but Done is answered by one of the methods
// that its comment names.
type Effect interface{ isEffect() }

// CallModel asks the model for the reply of a step. Answer with Replied, Failed or
// Stopped.
type CallModel struct {
	Step int
	// Attempt is 1 for the first call of the step. What a former attempt has
	// streamed is void.
	Attempt int
	// Model is provider/name: the agent's own, or one of its fallbacks.
	Model string
	// Request lacks nothing; its Model is the provider's name of the model.
	Request model.Request
}

// Wait lets time pass before the next attempt. Answer with Waited or Stopped.
type Wait struct {
	Step  int
	For   time.Duration
	Cause Failure
}

// Compact asks for a summary of the older messages, which the step then keeps. Answer
// with Compacted, CompactFailed or Stopped.
type Compact struct {
	Step  int
	Older []agent.Message
	// Model and Request are the call of the agent's own model that writes the summary,
	// for agents whose policy has no function of its own.
	Model   string
	Request model.Request
}

// Guard asks the agent's guard about the end of the run. Answer with Judged,
// GuardFailed or Stopped.
type Guard struct {
	Step int
	// Reply says that OnReply is to be asked, else OnOutput.
	Reply  bool
	Ending agent.Ending
}

// RecordPlan makes the model's decision durable before anything runs. The plan says more
// than the message that it stands for: see Said. Answer with Recorded or Stopped.
type RecordPlan struct {
	Step int
	Plan agent.Message
}

// RunCalls runs calls of a step at the same time. Records says which results have to be recorded
// before anybody learns of them; the others are durable with the commit. Answer with Ended. Where the run is
// to stop, cancel the calls, answer with what there is, and Stopped comes before the
// next effect.
type RunCalls struct {
	Step int
	Plan agent.Message
	// Planned says that the plan is in the journal. A step without one has no effects.
	Planned bool
	// Carries says that the commit follows the calls at once: no code of the agent runs before it.
	Carries bool
	// Drain says that the step runs or answers calls of an earlier step whose answers
	// have come: nothing of them but their ends is told, and no model was called.
	Drain bool
	// Calls are in the order of the reply. Those that finish the run come in a RunCalls
	// of their own, behind the others.
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
	// Ops are those of a recorded result.
	Ops []agent.Op
	// Recorded says that Result came from the journal.
	Recorded bool
	// Decision is how the approval of the call was decided. Nil where nobody has
	// decided: no approval was asked for, or the question was not answered.
	Decision *Decision
}

// Decision is what somebody has decided about a call.
type Decision struct {
	ApprovalID string // of the question
	Approved   bool
	Reason     string // in the words of who decided; may be empty
}

// Ended is how a call ended.
type Ended struct {
	Result agent.ToolResult
	Ops    []agent.Op
	// Stopped says that the call was cut by a stop: Result means nothing.
	Stopped bool
	// Begun says of a stopped call that its tool had begun.
	Begun bool
}

// Commit makes the step durable. Answer with Committed.
type Commit struct {
	Step     int
	Messages []agent.Message
	// Suspend are the calls that the step leaves open. Outcome is a suspended one then.
	Suspend []OpenCall
	// Consumed are the answers that Messages carry, Told the calls of whose late answers
	// they tell.
	Consumed []Consumed
	Told     []string
	// Decisions are those about the calls of earlier steps whose results Messages carry,
	// by call id.
	Decisions map[string]Decision
	// Drain is as in RunCalls.
	Drain bool
	// Cut says that the step did not come to its end: what was written to the state in it,
	// and is not in the journal, does not count.
	Cut bool
	// Outcome ends the run with this step where it is set.
	Outcome *Outcome
}

// OpenCall is a call that somebody outside of the runtime answers.
type OpenCall struct {
	agent.ToolCall
	// Approval says that a yes is asked for, else a result. ApprovalID names the
	// question.
	Approval   bool
	ApprovalID string
	// AnswerWithin is 0 for a wait without end.
	AnswerWithin time.Duration
}

// Consumed is an answer that was read.
type Consumed struct {
	CallID   string
	Revision int
}

// Finish ends the run outside of a step. Answer with Finished.
type Finish struct{ Outcome Outcome }

// Done says that the run has ended.
type Done struct{ Outcome Outcome }

func (CallModel) isEffect()  {}
func (Wait) isEffect()       {}
func (Compact) isEffect()    {}
func (Guard) isEffect()      {}
func (RecordPlan) isEffect() {}
func (RunCalls) isEffect()   {}
func (Commit) isEffect()     {}
func (Finish) isEffect()     {}
func (Done) isEffect()       {}

// Status is how a run ended.
type Status string

// The statuses. The texts are the specification's.
const (
	StatusCompleted           Status = "completed"
	StatusFailed              Status = "failed"
	StatusInterrupted         Status = "interrupted"
	StatusSuspendedClientTool Status = "suspended_client_tool"
	StatusSuspendedPartial    Status = "suspended_step_partial"
)

// Outcome is how a run ended.
type Outcome struct {
	Status Status
	// Output is one JSON text; for plain text a JSON string.
	Output json.RawMessage
	// Structured says that Output is an output by a schema or of a finishing tool.
	Structured bool
	// FinishReason is the model's reason to stop, error where the run failed.
	FinishReason model.FinishReason
	// Failure is set when the run failed.
	Failure *Failure
	// Reason is that of an interrupt.
	Reason string
	// CompletionReason is max_steps or stop_when where one of them ended the run.
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

// Stop is why a run ends early.
type Stop struct {
	Kind   StopKind
	Reason string
}

// StopKind is a kind of stop.
type StopKind string

// The kinds. Their texts stand in the metadata of messages: see
// agent.MetadataInterrupted.
const (
	StopInterrupt StopKind = "interrupt" // the run ends interrupted and can be resumed
	StopAbort     StopKind = "abort"     // the run ends failed: framework_cancelled
	StopDeadline  StopKind = "deadline"  // the run ends failed: framework_deadline_exceeded
)
