package agent

// RunView is the run that a function of an agent is called for. Its values come from the runtime, never from a model. Each
// call gets a copy.
type RunView struct {
	Tenant    string
	SessionID string
	// ParentSessionID is the session whose agent has called this one; empty for a session that a client began.
	ParentSessionID string
	RunID           string
	AgentType       string
	// UserID is the user of the session; empty without one. The sessions of sub-agents and companions have the user of
	// their parent.
	UserID   string
	Tags     []string
	Metadata map[string]string
	// Turn is the number of the run in its session, from 1.
	Turn int
	// Step is the step of the session.
	Step int
	// State is the custom state. It must not be modified.
	State State
}
