package session

// UpdateSession changes the given properties of a session; nil keeps a property.
//
// Family.Propagate passes a new user on to the sub-sessions.
//
// Faults: NotFound (SESSION_NOT_FOUND), Stale (VERSION_STALE), Conflict (OWNER_INHERITED) for the user of
// a sub-session.
type UpdateSession struct {
	Key
	Title           *string
	Tags            *[]string
	Metadata        *map[string]string
	UserID          *string
	OrganizationID  *string
	ExpiresAt       *Millis // 0 for never
	ExpectedVersion int64   // 0 for any
	Now             Millis
}

// Need lists the rows for Decide.
func (c UpdateSession) Need() Need { return Need{} }

// Decide writes the properties and returns the session's new version.
func (c UpdateSession) Decide(v *View) (*Change, int64, error) {
	if err := c.checkSession(v, c.ExpectedVersion); err != nil {
		return nil, 0, err
	}
	if c.UserID != nil && *c.UserID != v.Session.UserID && v.Session.ParentID != "" {
		return nil, 0, ownerInherited(c.SessionID)
	}
	s := v.nextVersion(c.Now)
	set(&s.Title, c.Title)
	set(&s.Tags, c.Tags)
	set(&s.Metadata, c.Metadata)
	set(&s.UserID, c.UserID)
	set(&s.OrganizationID, c.OrganizationID)
	set(&s.ExpiresAt, c.ExpiresAt)
	return &Change{Session: s}, s.Version, nil
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
