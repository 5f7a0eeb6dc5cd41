package session

import (
	"slices"
	"strconv"
)

// Expect is the state of the session as the caller has read it. The zero value expects
// nothing.
type Expect struct {
	Statuses []Status // any of these; empty for any
	Version  int64    // 0 for any
	RunID    *string  // of the newest run, empty before the first run; nil for any
}

func (e Expect) isSet() bool { return len(e.Statuses) > 0 || e.Version != 0 || e.RunID != nil }

// check gives Conflict (SESSION_CHANGED) with the current state if the session differs.
func (e Expect) check(s *Session) error {
	if statusAllowed(e.Statuses, s.Status) && (e.Version == 0 || e.Version == s.Version) && (e.RunID == nil || *e.RunID == s.CurrentRunID) {
		return nil
	}
	return s.conflict("SESSION_CHANGED",
		"session %q is %s at version %d with run %q, not as expected; read it again and decide anew",
		s.SessionID, s.Status, s.Version, s.CurrentRunID).
		With("currentVersion", strconv.FormatInt(s.Version, 10))
}

// statusAllowed reports whether the list has the status. An empty list allows any.
func statusAllowed(statuses []Status, s Status) bool {
	return len(statuses) == 0 || slices.Contains(statuses, s)
}
