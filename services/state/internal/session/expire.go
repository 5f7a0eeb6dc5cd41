package session

// Expire fails a session after its ExpiresAt.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type Expire struct {
	Key
	Now Millis
}

// Expired is the result of Expire.
type Expired string

// The results of Expire.
const (
	ExpiryMarked          Expired = "marked"
	ExpiryAlreadyTerminal Expired = "already_terminal"
	ExpiryNotDue          Expired = "not_due"
)

// Need lists the rows for Decide.
func (c Expire) Need() Need { return needForcedEnd }

// Decide fails the session if it has expired.
func (c Expire) Decide(v *View) (*Change, Expired, error) {
	s := v.Session
	switch {
	case s == nil:
		return nil, "", NoSession(c.Key)
	case s.Status.Terminal():
		return nil, ExpiryAlreadyTerminal, nil
	case s.ExpiresAt == 0 || s.ExpiresAt > c.Now:
		return nil, ExpiryNotDue, nil
	}
	failure := &Failure{Error: "The session has expired.", Code: SessionExpired, Reason: SessionExpired}
	change := forcedEnd{status: Failed, failure: failure, now: c.Now}.change(v)
	change.endWaiting = true
	return change, ExpiryMarked, nil
}
