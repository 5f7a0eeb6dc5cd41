package loop

import "github.com/holdfast-run/holdfast/pkg/agent"

// State returns the current custom state: see Start.Now. It must not be modified.
func (p *Planner) State() agent.State {
	if p.start.Now == nil {
		return p.state
	}
	return p.start.Now()
}
