package auth

import (
	"cmp"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Caller is on whose behalf a request is made, as the program around the gateway names it.
type Caller struct {
	// Tenant owns the caller's sessions. Empty is "default", the tenant of gateways without credentials.
	Tenant string
	// User is the user; empty for a caller that acts for no user. A user without the scope operate reaches only its own
	// sessions.
	User string
	// Scopes are what the caller may do: read, chat, approve, operate, admin. Nil are the first three.
	Scopes []string
	// Expires is when the streams of the caller end. Zero is never.
	Expires time.Time
}

// Identity returns the identity of the caller. Invalid (TENANT_INVALID, USER_INVALID, SCOPE_UNKNOWN).
func (c Caller) Identity() (Identity, error) {
	i := Identity{Tenant: cmp.Or(c.Tenant, DefaultTenant), Subject: c.User, Expires: c.Expires, Scopes: DefaultScopes()}
	if c.Scopes != nil {
		if err := CheckScopes(c.Scopes); err != nil {
			return Identity{}, err
		}
		i.Scopes, _ = ParseScopes(c.Scopes)
	}
	return i, i.CheckNames()
}

// Caller returns the identity as the program names it.
func (i Identity) Caller() Caller {
	c := Caller{Tenant: i.Tenant, User: i.Subject, Scopes: []string{}, Expires: i.Expires}
	for _, s := range i.Scopes {
		c.Scopes = append(c.Scopes, string(s))
	}
	return c
}

// CheckScopes gives Invalid (SCOPE_UNKNOWN) for a name without a scope.
func CheckScopes(names []string) error {
	_, unknown := ParseScopes(names)
	if len(unknown) > 0 {
		return fault.New(fault.Invalid, "SCOPE_UNKNOWN",
			"there is no scope %.50q; the scopes are read, chat, approve, operate and admin", unknown[0])
	}
	return nil
}
