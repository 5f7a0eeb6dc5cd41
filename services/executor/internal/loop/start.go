package loop

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Run names the run that is planned.
type Run struct{ Tenant, SessionID, RunID string }

// Start is what a planner begins with.
type Start struct {
	Run   Run
	Agent agent.Agent
	// Transcript is the whole conversation of the session.
	Transcript []agent.Message
	// Begin is the index in Transcript of the first message that this run or, for a
	// continuation, the run that it continues has appended.
	Begin int
	// State is the custom state, which no writes of the step in flight have changed.
	State agent.State
	// Now gives the custom state behind the writes so far: of the calls of the step that
	// have ended, and of hooks. The planner keeps no books of its own on it. Nil where
	// nothing writes.
	Now func() agent.State
	// Turn is the number of the run in its session, from 1. Behind the first one the
	// session may have had calls that the transcript does not have.
	Turn int
	// SessionSteps counts the committed steps. The cap of the agent is not on
	// these, which drains are among, but on the replies since Begin.
	SessionSteps int
	// Journal is nil when the step in flight has left no plan behind.
	Journal *Journal
	// Calls are those of the session that no step has taken the answer of, and those
	// with a late answer that the model was not told of.
	Calls []Asked
	// Apart calls functions of the agent. Nil calls them on the planner's goroutine, where
	// one that does not return holds it for ever.
	Apart Apart
	// Jitter gives numbers in [0, 1) that spread retries; nil spreads nothing.
	Jitter func() float64
}

// Journal is what a former owner of the run has recorded for the step in flight.
type Journal struct {
	Plan    agent.Message
	Results []Recorded
}

// Recorded is the recorded end of a call.
type Recorded struct {
	Result agent.ToolResult
	Ops    []agent.Op
}

// Asked is a call that somebody outside of the runtime answers, or has answered.
type Asked struct {
	CallID     string
	Tool       string
	Approval   bool
	ApprovalID string
	Revision   int
	// Answer is nil while the call is open.
	Answer *Answer
	// Taken says that a step has taken the answer. Late is one that came afterwards, and
	// of which the model is to be told.
	Taken bool
	Late  *Answer
}

// Answer is what came from outside: a result, an error, or a decision.
type Answer struct {
	Result   json.RawMessage // of a client tool
	Error    string          // of either kind: the call did not happen
	Approved bool            // of an approval
	Reason   string
	TimedOut bool // nobody answered in time
}
