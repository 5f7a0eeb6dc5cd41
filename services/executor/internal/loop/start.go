package loop

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Run names the planned run.
type Run struct{ Tenant, SessionID, RunID string }

// Session is what functions of the agent learn about the session of the run: see agent.RunView.
type Session struct {
	ParentID, UserID string
	Tags             []string
	Metadata         map[string]string
}

// Start is the input of a planner.
type Start struct {
	Run     Run
	Session Session
	Agent   agent.Agent
	// Caller is what the message that began the turn adds to the agent.
	Caller CallerInput
	// Transcript is the complete conversation of the session.
	Transcript []agent.Message
	// Begin is the index in Transcript of the first message appended by this run, or by the run that it
	// continues.
	Begin int
	// State is the custom state without the writes of the step in flight.
	State agent.State
	// Now returns the custom state including the writes so far: of the ended calls of the step, and of hooks.
	// The planner does not track them itself. Nil without writers.
	Now func() agent.State
	// Turn is the number of the run in its session, from 1. After the first one, the session may have had calls
	// missing in the transcript.
	Turn int
	// Depth is the number of sessions above this one. MaxDepth is the largest depth of a sub-agent.
	Depth, MaxDepth int
	// MaxCalls is the number of calls made of one reply; 0 is DefaultMaxCalls.
	MaxCalls int
	// NewSessionID returns a random id for the session of a sub-agent.
	NewSessionID func() string
	// SessionSteps counts the committed steps, including those that only answer calls. The agent's limit applies to
	// the replies since Begin instead.
	SessionSteps int
	// Journal is nil if the step in flight has no recorded plan.
	Journal *Journal
	// Calls are the session's calls without an applied answer, and the calls with a late answer unknown to the
	// model.
	Calls []ClientCall
	// CallFunction calls functions of the agent. It may be nil for an agent without any.
	CallFunction FunctionCaller
	// Jitter returns numbers in [0, 1) to spread retries; nil means 0.
	Jitter func() float64
}

// CallerInput is what a caller adds to an agent for a turn: tools whose calls it answers, and instructions behind the
// system prompt. A tool of the agent hides one of the caller with the same name.
type CallerInput struct {
	Tools        []agent.Tool // with Client
	Instructions string
}

// Journal holds a former owner's records of the step in flight.
type Journal struct {
	Plan    agent.Message
	Results []Recorded
}

// Recorded is the recorded end of a call. If Until is not 0, the call has no result: it awaits a callback, as in Awaited.
type Recorded struct {
	Result  agent.ToolResult
	Ops     []agent.Op
	Context []agent.ContextRow
	Until   int64
}

// ClientCall is a call for a client, a sub-agent or another system to answer, or answered by one.
type ClientCall struct {
	CallID     string
	Tool       string
	Approval   bool
	SubAgent   bool
	Callback   bool
	ApprovalID string
	Revision   int
	// Answer is nil while the call is open.
	Answer *Answer
	// Applied means that a step has applied the answer. Late is a later answer to report to the model.
	Applied bool
	Late    *Answer
}

// Answer is the answer to a call: a result, an error, or a decision.
type Answer struct {
	Result   json.RawMessage // of a client tool, a sub-agent or a callback
	Error    string          // the call was not executed, or the sub-agent or the other system has failed
	Public   string          // Error for users; empty if they read Error
	Approved bool            // for an approval
	Reason   string
	TimedOut bool // no answer in time
}
