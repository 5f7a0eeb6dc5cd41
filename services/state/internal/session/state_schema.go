package session

// SchemaFuncs interprets the schemas of custom states. Its functions are pure. Nil functions check
// and complete nothing.
type SchemaFuncs struct {
	// Fill returns the state with the schema's defaults.
	Fill func(schema, state string) (string, error)
	// Check gives Invalid (STATE_INVALID) if after breaks a rule of the schema that before keeps.
	Check func(schema, before, after string) error
}

// fill returns the state of a session that begins with the agent: with the defaults of its schema.
// Invalid (STATE_INVALID) if the state does not fit. Members that are required and have no default
// may be missing.
func (f SchemaFuncs) fill(a *Agent, state string) (string, error) {
	if a == nil || a.StateSchema == "" || f.Fill == nil {
		return state, nil
	}
	filled, err := f.Fill(a.StateSchema, state)
	if err != nil {
		return "", err
	}
	empty, err := f.Fill(a.StateSchema, "{}")
	if err != nil {
		return "", err
	}
	return filled, f.Check(a.StateSchema, empty, filled)
}

// addDefaults adds the defaults of the agent's schema to the restored state of the change, which may
// be from before the session had this agent. It checks nothing: the session had the state.
func (f SchemaFuncs) addDefaults(change *Change, a *Agent) error {
	if a == nil || a.StateSchema == "" || f.Fill == nil {
		return nil
	}
	s := change.Session
	state, err := f.Fill(a.StateSchema, s.State)
	if err == nil && state != s.State {
		s.storeWholeState(change, state)
	}
	return err
}

// check gives Invalid (STATE_INVALID) if a write breaks the schema of the agent.
func (f SchemaFuncs) check(a *Agent, before, after string) error {
	if a == nil || a.StateSchema == "" || f.Check == nil || before == after {
		return nil
	}
	return f.Check(a.StateSchema, before, after)
}
