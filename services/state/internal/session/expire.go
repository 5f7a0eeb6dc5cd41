package session

// Expire fails a session that nobody came back to in time.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type Expire struct {
	Key
	Now Millis
}

// Expired is what became of a session that was thought to have expired.
type Expired string

// The ends of an expiry.
const (
	ExpiryMarked          Expired = "marked"
	ExpiryAlreadyTerminal Expired = "already_terminal"
	ExpiryNotDue          Expired = "not_due"
)

// Need says what Decide wants to see.
func (c Expire) Need() Need { return needForcedEnd }

// Decide fails the session if its time has come.
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
