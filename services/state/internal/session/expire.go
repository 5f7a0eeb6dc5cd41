package session

// Expire fails a session after its ExpiresAt.
//
// Faults: NotFound (SESSION_NOT_FOUND).
type Expire struct {
	Key
	Now Millis
}

// ExpiryResult is the result of Expire.
type ExpiryResult string

// The results of Expire.
const (
	ExpiryMarked          ExpiryResult = "marked"
	ExpiryAlreadyTerminal ExpiryResult = "already_terminal"
	ExpiryNotDue          ExpiryResult = "not_due"
)

// Need lists the rows for Decide.
func (c Expire) Need() Need { return needForcedEnd }

// Decide fails the session if it has expired.
func (c Expire) Decide(v *View) (*Change, ExpiryResult, error) {
	s := v.Session
	switch {
	case s == nil:
		return nil, "", SessionNotFound(c.Key)
	case s.Status.Terminal():
		return nil, ExpiryAlreadyTerminal, nil
	case !s.hasExpired(c.Now):
		return nil, ExpiryNotDue, nil
	}
	failure := &Failure{Error: "The session has expired.", Code: SessionExpired, Reason: SessionExpired}
	change := forcedEnd{status: Failed, failure: failure, now: c.Now}.change(v)
	change.endWaiting = true
	return change, ExpiryMarked, nil
}

// hasExpired reports whether the time of the session is over. Its row may not say so yet: Expire fails it later.
func (s *Session) hasExpired(now Millis) bool { return s.ExpiresAt != 0 && s.ExpiresAt <= now }
