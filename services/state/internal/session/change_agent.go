package session

// checkNewTarget is checkTarget for a run of its own, which may give the session to another agent.
// It may not while a run is live or waits, since these have the former agent, and for a run that
// continues a suspended one. Sub-sessions and sessions of remote agents keep their agent: a parent
// or another Holdfast has a part of them.
func (c RunRequest) checkNewTarget(v *View) error {
	s := v.Session
	if s == nil || !c.namesOtherAgent(s) {
		return c.checkTarget(v)
	}
	same := c
	same.AgentType = ""
	if err := same.checkTarget(v); err != nil {
		return err
	}
	switch {
	case v.Agent == nil:
		return c.agentMismatch(s, "and no executor has announced that agent; omit it, or use the type of an announced agent")
	case s.ParentID != "":
		return c.agentMismatch(s, "a sub-session keeps its agent")
	case s.Status == Active || s.Waiting > 0:
		return c.agentMismatch(s, "it has a run that has not ended; wait for its end or interrupt it")
	case len(c.Answers) > 0:
		return c.agentMismatch(s, "the answers are for its own agent; send them without another one")
	case v.OwnAgent == nil:
		return &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{OwnAgent: true}}}}
	case v.OwnAgent.Remote || v.Agent.Remote:
		return c.agentMismatch(s, "sessions of remote agents keep their agent; use another session")
	}
	return nil
}

// changeAgent gives the session of the change to the agent of the request, if it names another one.
// The custom state gets the defaults of the agent's schema. Invalid (STATE_INVALID) if it does not
// fit.
func (c RunRequest) changeAgent(change *Change, v *View) error {
	s := change.Session
	if !c.namesOtherAgent(s) {
		return nil
	}
	state, err := c.Schemas.fill(v.Agent, s.State)
	if err != nil {
		return err
	}
	s.AgentType = c.AgentType
	if state != s.State {
		s.storeWholeState(change, state)
	}
	return nil
}
