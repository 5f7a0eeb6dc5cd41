package loop

import "github.com/holdfast-run/holdfast/pkg/agent"

// State gives the custom state as it is behind the writes so far: those of the committed
// steps, of the calls of this step that have ended, in the order of the calls, and of
// hooks. Not to be changed.
func (p *Planner) State() agent.State {
	state := p.state
	for _, t := range p.work.tasks {
		if t.end != nil {
			state = applied(state, t.end.Ops)
		}
	}
	return applied(state, p.wrote)
}

// Wrote says what hooks have written in the step in flight, which its commit carries
// behind the writes of the calls.
func (p *Planner) Wrote(ops []agent.Op) { p.wrote = append(p.wrote, ops...) }

// applied is the state behind the writes. Those that are not JSON were refused where
// they were recorded.
func applied(state agent.State, ops []agent.Op) agent.State {
	if len(ops) == 0 {
		return state
	}
	after, err := state.Apply(ops)
	if err != nil {
		return state
	}
	return after
}
