package session

// SaveState replaces the whole custom state.
//
// Faults: NotFound (SESSION_NOT_FOUND), Stale (VERSION_STALE), TooLarge (STATE_SIZE_EXCEEDED),
// Invalid (STATE_INVALID).
type SaveState struct {
	Key
	State           string // a JSON object
	ExpectedVersion int64  // 0 for any
	Limits          Limits
	Schemas         SchemaFuncs
	Now             Millis
}

// Need lists the rows for Decide.
func (c SaveState) Need() Need { return Need{State: true, OwnAgent: true} }

// Decide saves the state and returns the session's new version.
func (c SaveState) Decide(v *View) (*Change, int64, error) {
	if err := c.checkSession(v, c.ExpectedVersion); err != nil {
		return nil, 0, err
	}
	if len(c.State) > c.Limits.State {
		return nil, 0, StateTooLarge(len(c.State), c.Limits.State, nil)
	}
	if err := c.Schemas.check(v.OwnAgent, v.Session.State, c.State); err != nil {
		return nil, 0, err
	}
	s := v.nextVersion(c.Now)
	change := &Change{Session: s}
	if c.State != s.State {
		s.storeWholeState(change, c.State)
	}
	return change, s.Version, nil
}

// MergeState writes single keys of the custom state.
//
// Faults: NotFound (SESSION_NOT_FOUND), Stale (VERSION_STALE), TooLarge (STATE_SIZE_EXCEEDED),
// Invalid (STATE_INVALID).
type MergeState struct {
	Key
	Ops             []StateOp
	ExpectedVersion int64 // 0 for any
	Limits          Limits
	Schemas         SchemaFuncs
	Now             Millis
}

// Merged is the result of MergeState.
type Merged struct {
	Version  int64 // of the session after the command
	Warnings []string
}

// Need lists the rows for Decide.
func (c MergeState) Need() Need { return Need{State: true, OwnAgent: true} }

// Decide merges the writes in their order. The change is nil if the state stays the same.
func (c MergeState) Decide(v *View) (*Change, Merged, error) {
	if err := c.checkSession(v, c.ExpectedVersion); err != nil {
		return nil, Merged{}, err
	}
	merged, err := merge(v.Session.State, c.Ops, c.Limits.State)
	if err != nil {
		return nil, Merged{}, err
	}
	if merged.state == v.Session.State {
		return nil, Merged{v.Session.Version, merged.warnings}, nil
	}
	if err := c.Schemas.check(v.OwnAgent, v.Session.State, merged.state); err != nil {
		return nil, Merged{}, err
	}
	s := v.nextVersion(c.Now)
	change := &Change{Session: s}
	s.storeState(change, c.Ops, merged.state)
	return change, Merged{s.Version, merged.warnings}, nil
}
