package session

import (
	"cmp"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Caller is the identity behind a command.
type Caller struct {
	Actor string // "user:" and a subject, "key:" and the name of an API key, or "local"; empty for an executor
	Owner string // the only user whose sessions it reaches; empty for all sessions of the tenant
}

// Reaches reports whether the caller may see and change the session.
func (c Caller) Reaches(s *Session) bool { return c.Owner == "" || s.UserID == c.Owner }

// User returns the user of a session that the caller creates or looks for. Denied
// (OWNER_REFUSED) if the request names another user than the caller's own.
func (c Caller) User(requested string) (string, error) {
	if c.Owner == "" || requested == "" || requested == c.Owner {
		return cmp.Or(c.Owner, requested), nil
	}
	return "", OwnerRefused(c.Owner, requested)
}

// OwnerRefused is the fault of a caller that names another user than its own: Denied (OWNER_REFUSED).
func OwnerRefused(owner, requested string) error {
	return fault.New(fault.Denied, "OWNER_REFUSED", "the credential reaches only the sessions of user %q, not of %q; omit the user", owner, requested)
}

// ownerInherited is the fault of a sub-session with a user of its own.
func ownerInherited(id string) error {
	return fault.New(fault.Conflict, "OWNER_INHERITED", "session %q is a sub-session and belongs to the user of its root; change the user of the root", id)
}
