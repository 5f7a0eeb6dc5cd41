package loop

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Effect is the next action of a run: CallModel, Wait, StepContext, Compact, Guard, RecordPlan, RunCalls, Commit, Finish or
// Done. Each but Done is answered by one of the methods named in its comment.
type Effect interface{ isEffect() }

// CallModel calls the model for the reply of a step. Answer with Replied, Failed or Stopped.
type CallModel struct {
	Step int
	// Attempt is 1 for the first call of the step. It voids the stream of a former attempt.
	Attempt int
	// Model is provider/name: the agent's own model, or one of its fallbacks.
	Model string
	// Request is complete. Its Model is the provider's name of the model.
	Request model.Request
}

// Wait delays the next attempt. Answer with Waited or Stopped.
type Wait struct {
	Step  int
	For   Millis
	Cause Failure
}

// Compact requests a summary of the older messages for the step to store. Answer with Compacted, CompactFailed
// or Stopped.
type Compact struct {
	Step  int
	Run   agent.RunView // for the agent's summary function
	Older []agent.Message
	// Model and Request are the summary call of the agent's own model, for agents whose policy has no summary
	// function.
	Model   string
	Request model.Request
}

// StepContext asks the agent for rows of context before the model call of a step. Answer with Contexted, ContextFailed or
// Stopped.
type StepContext struct {
	Step int
	View agent.StepView
}

// Guard consults the agent's guard about the end of the run. Answer with Judged, GuardFailed or Stopped.
type Guard struct {
	Step int
	// Reply selects OnReply, otherwise OnOutput.
	Reply  bool
	Ending agent.Ending
}

// RecordPlan makes the model's decision durable before anything runs. The plan extends its message with
// metadata: see ConversationMessage. Answer with Recorded or Stopped.
type RecordPlan struct {
	Step int
	Plan agent.Message
}

// RunCalls runs calls of a step in parallel. Records says which results must be recorded before they become
// visible; the others become durable with the commit. Answer with Ended. To stop the run, cancel the calls and
// answer with the existing results; then call Stopped before the next effect.
type RunCalls struct {
	Step int
	Plan agent.Message
	// Planned means that the plan is in the journal. A step without a plan has no effects.
	Planned bool
	// Carries means that the commit follows the calls at once, without agent code in between.
	Carries bool
	// Answering means that the step runs or answers calls of an earlier step. Only their ends are streamed, and no
	// model was called.
	Answering bool
	// Calls are in the order of the reply. Calls that finish the run come in a separate, later RunCalls.
	Calls []Call
}

// Call is one call of a step. Its tool is to run, or its result is known already.
type Call struct {
	agent.ToolCall
	// Key is the same for every attempt at this call, and unique to it.
	Key string
	// Tool is nil if Result is known.
	Tool   *agent.Tool
	Result *agent.ToolResult
	// Ops are the state writes of a recorded result, and Context its rows of context.
	Ops     []agent.Op
	Context []agent.ContextRow
	// Recorded means that Result, or Awaits, is from the journal.
	Recorded bool
	// Awaits, if not nil, means that the call has run and has no result. Tool and Result are nil.
	Awaits *Awaited
	// Decision is the decision on the call's approval. Nil without an approval or without a decision.
	Decision *Decision
}

// Decision is a client's decision on a call.
type Decision struct {
	ApprovalID string // id of the approval request
	Approved   bool
	Reason     string // in the client's words; may be empty
}

// Ended is the end of a call.
type Ended struct {
	Result agent.ToolResult
	Ops    []agent.Op
	Store  []agent.StoreWrite // to the private store; recorded with the result
	// Context has the rows that the call adds. They count if it has succeeded.
	Context []agent.ContextRow
	// Stopped means that a stop ended the call. Result is invalid then.
	Stopped bool
	// Begun means that the tool of a stopped call had begun.
	Begun bool
	// Awaits, if not nil, means that the call has no result: something else answers it. Result has its ids only.
	Awaits *Awaited
}

// Awaited is what answers a call that has run: the session of a companion, or a callback.
type Awaited struct {
	SessionID, AgentType string // of a companion; empty for a callback
	// Until is when the callback's time is up, in milliseconds since the Unix epoch; 0 for a companion.
	Until int64
}

// isCallback reports whether another system posts the result.
func (a *Awaited) isCallback() bool { return a.Until != 0 }

// Commit makes the step durable. Answer with Committed.
type Commit struct {
	Step     int
	Messages []agent.Message
	// Suspend lists the calls left open by the step. The Outcome is then a suspension.
	Suspend []OpenCall
	// Consumed are the answers included in Messages. Reported are the calls whose late answers Messages report.
	Consumed []Consumed
	Reported []string
	// Decisions are the decisions on calls of earlier steps with results in Messages, by call id.
	Decisions map[string]Decision
	// Answering is as in RunCalls.
	Answering bool
	// Notes means that the step has messages to the model and no reply: rows of context, a summary, or the lesson of a refusal.
	Notes bool
	// Incomplete means that the step's state writes outside of the journal do not count.
	Incomplete bool
	// Outcome, if set, ends the run with this step.
	Outcome *Outcome
}

// OpenCall is a call for a client, a sub-agent or another system to answer.
type OpenCall struct {
	agent.ToolCall
	// Approval requests a decision, otherwise a result. ApprovalID names the request, and Approvers who
	// may approve.
	Approval   bool
	ApprovalID string
	Approvers  agent.ApproverRule
	// SubAgent is the type of the agent that answers, in the session SessionID. The session begins with the commit
	// and with Message, unless Begun says that it has begun. All are empty for a client's call.
	SubAgent, SessionID, Message string
	Begun                        bool
	// AnswerWithin is the time limit; 0 for none.
	AnswerWithin Millis
	// Until, if not 0, means that another system posts the result. It is as in Awaited.
	Until int64
}

// Consumed is an applied answer.
type Consumed struct {
	CallID   string
	Revision int
}

// Finish ends the run outside of a step. Answer with Finished.
type Finish struct{ Outcome Outcome }

// Millis is a duration in milliseconds. The planner has no clock.
type Millis int64

// Done means that the run has ended.
type Done struct{ Outcome Outcome }

func (CallModel) isEffect()   {}
func (Wait) isEffect()        {}
func (Compact) isEffect()     {}
func (StepContext) isEffect() {}
func (Guard) isEffect()       {}
func (RecordPlan) isEffect()  {}
func (RunCalls) isEffect()    {}
func (Commit) isEffect()      {}
func (Finish) isEffect()      {}
func (Done) isEffect()        {}

// Status is the status of an ended run.
type Status string

// The statuses, as in the specification.
const (
	StatusCompleted           Status = "completed"
	StatusFailed              Status = "failed"
	StatusInterrupted         Status = "interrupted"
	StatusSuspendedClientTool Status = "suspended_client_tool"
	StatusSuspendedChildren   Status = "suspended_awaiting_children"
	StatusSuspendedPartial    Status = "suspended_step_partial"
)

// Outcome is the end of a run.
type Outcome struct {
	Status Status
	// Output is one JSON text; a JSON string for plain text.
	Output json.RawMessage
	// Structured means that Output follows a schema or comes from a finishing tool.
	Structured bool
	// FinishReason is the model's finish reason, or error for a failed run.
	FinishReason model.FinishReason
	// Failure is set for a failed run.
	Failure *Failure
	// Reason is the reason of an interrupt.
	Reason string
	// CompletionReason is the cause of an end without a reply: one of the Reasons.
	CompletionReason string
}

// Failure is the failure of a run.
type Failure struct {
	// Error is a sentence for users.
	Error string
	// Detail is for developers.
	Detail string
	// Code is empty for an unclassified error.
	Code      string
	Retryable bool
}

// Stop ends a run early.
type Stop struct {
	Kind   StopKind
	Reason string
}

// StopKind is a kind of stop.
type StopKind string

// The kinds. Message metadata contains these texts: see agent.MetadataInterrupted.
const (
	StopInterrupt StopKind = "interrupt"  // the run ends as interrupted and can be resumed
	StopAbort     StopKind = "abort"      // the run fails with framework_cancelled
	StopDeadline  StopKind = "deadline"   // the run fails with framework_deadline_exceeded
	StopAgentGone StopKind = "agent_gone" // the run fails with framework_agent_gone
)
