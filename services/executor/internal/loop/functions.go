package loop

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// The agent's own functions that a planner calls have no context: nothing can cut them, and
// a panic must not take the process, with all of its runs, along. ApproveWhen is of their
// kind too: see agent.Tool.NeedsApproval.

// system gives the system prompt. The error says that the agent's function has panicked.
func (p *Planner) system() (text string, err error) {
	a := p.start.Agent
	if a.Prompt == nil {
		return a.SystemPrompt, nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			text, err = "", fmt.Errorf("the Prompt function of the agent %q has panicked: %v", a.Name, cause)
		}
	}()
	return a.Prompt(p.State()), nil
}

// asksToStop is StopWhen, which is there. One that panics does not stop the run, which has its
// cap on steps.
func (p *Planner) asksToStop(progress agent.Progress) (stops bool) {
	defer func() {
		if recover() != nil {
			stops = false
		}
	}()
	return p.start.Agent.StopWhen(progress)
}

// counted gives the agent's own estimate of a message, where it has one and that does not
// panic.
func (p *Planner) counted(m agent.Message) (tokens int, counted bool) {
	count := p.start.Agent.Context.Count
	if count == nil {
		return 0, false
	}
	defer func() {
		if recover() != nil {
			tokens, counted = 0, false
		}
	}()
	return count(m), true
}
