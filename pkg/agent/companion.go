package agent

import (
	"fmt"
	"slices"
	"time"
)

// DefaultMaxCompanions limits the companions of a session if Agent.MaxCompanions is 0.
const DefaultMaxCompanions = 16

// Companion is an agent that another agent consults, as often as it needs. Each consultation by the
// same name continues the same session, so the companion remembers the earlier ones.
//
// The executor gives an agent with companions these tools:
//
//	companion__spawnAgent      {agent, name, initialMessage}  consults a companion, new or known
//	companion__sendMessage     {name, message}                sends a message, and does not wait
//	companion__listChildren    {}                             returns name, agent and status of each
//	companion__getChildStatus  {name}                         returns the status, output or error
//	companion__waitForResult   {name}                         waits for the end of the newest run
//	companion__terminateChild  {name}                         stops the run
//
// spawnAgent returns the output of a blocking companion, and the status of a non-blocking one.
// waitForResult exists if any companion is blocking. Neither waits for a companion that waits for a
// client: both return the status suspended.
type Companion struct {
	// Agent is the agent type.
	Agent string
	// Description tells the model when to consult the companion.
	Description string
	// Mode is whether spawnAgent waits. Empty means CompanionBlocking.
	Mode CompanionMode
	// Timeout limits one consultation, including its waits; 0 means no limit.
	Timeout time.Duration
}

// CompanionMode is how an agent consults a companion.
type CompanionMode string

// Modes of companions.
const (
	// CompanionBlocking lets spawnAgent wait for the output.
	CompanionBlocking CompanionMode = "blocking"
	// CompanionNonBlocking lets spawnAgent return at once.
	CompanionNonBlocking CompanionMode = "non-blocking"
)

func (a Agent) checkCompanions(p *problems) {
	p.checkRange("maxCompanions", a.MaxCompanions, maxSubAgents)
	if len(a.Companions) > maxAgentTools {
		p.add("companions", "there are %d; at most %d are allowed", len(a.Companions), maxAgentTools)
		return
	}
	for i, c := range a.Companions {
		field := fmt.Sprintf("companions[%d]", i)
		if problem := toolNameProblem(c.Agent); problem != "" {
			p.add(field+".agent", "%s", problem)
		}
		if slices.ContainsFunc(a.Companions[:i], func(other Companion) bool { return other.Agent == c.Agent }) {
			p.add(field+".agent", "the companion %q is listed twice", c.Agent)
		}
		p.checkText(field+".description", c.Description)
		checkChoice(p, field+".mode", c.Mode, CompanionBlocking, CompanionNonBlocking)
		p.checkDuration(field+".timeout", c.Timeout)
	}
}
