package session

// DeleteSession deletes a session with everything that belongs to it. Family.Propagate
// deletes its local children and updates its parent.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type DeleteSession struct {
	Key
}

// Need lists the rows for Decide.
func (c DeleteSession) Need() Need { return Need{Children: true, Stored: true} }

// Decide deletes the session.
func (c DeleteSession) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, SessionNotFound(c.Key)
	}
	return &Change{Delete: true}, nil
}
