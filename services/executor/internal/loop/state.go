package loop

import "github.com/holdfast-run/holdfast/pkg/agent"

// State gives the custom state as it is now: see Start.Now. Not to be changed.
func (p *Planner) State() agent.State {
	if p.start.Now == nil {
		return p.state
	}
	return p.start.Now()
}
