package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Caller is the identity behind a command.
type Caller struct {
	Actor string // "user:" and a subject, "key:" and the name of an API key, or "local"; empty for an executor
	Owner string // the only user whose sessions it reaches; empty for all sessions of the tenant
}

// Reaches reports whether the caller may see and change the session.
func (c Caller) Reaches(s *Session) bool { return c.Owner == "" || s.UserID == c.Owner }

// ownerInherited is the fault of a sub-session with a user of its own.
func ownerInherited(id string) error {
	return fault.New(fault.Conflict, "OWNER_INHERITED",
		"session %q is a sub-session and belongs to the user of its root; change the user of the root", id)
}
