package session

// DeleteSession lets a session go, with everything that belongs to it. The
// sub-sessions below it go with it, and its parent learns of it, by
// Family.Spread.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type DeleteSession struct {
	Key
}

// Need says what Decide wants to see.
func (c DeleteSession) Need() Need { return Need{Children: true} }

// Decide deletes the session.
func (c DeleteSession) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, NoSession(c.Key)
	}
	return &Change{Delete: true}, nil
}
