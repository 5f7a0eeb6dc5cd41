package auth

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Scope is a permission of a caller.
type Scope string

// The scopes. A broader scope includes narrower ones.
const (
	Read    Scope = "read"    // reads sessions
	Chat    Scope = "chat"    // writes to sessions as their user does; includes Read
	Approve Scope = "approve" // approves and denies calls; includes Read
	Operate Scope = "operate" // acts as a server, for all users of the tenant; includes Chat and Approve
	Admin   Scope = "admin"   // manages the tenant; includes Operate
)

// included lists what a scope includes beside itself.
var included = map[Scope][]Scope{
	Read:    nil,
	Chat:    {Read},
	Approve: {Read},
	Operate: {Read, Chat, Approve},
	Admin:   {Read, Chat, Approve, Operate},
}

// DefaultScopes returns the scopes of a credential that names none.
func DefaultScopes() []Scope { return []Scope{Read, Chat, Approve} }

// ParseScopes returns the scopes with the names, and the names without a scope.
func ParseScopes(names []string) (known []Scope, unknown []string) {
	for _, name := range names {
		if _, is := included[Scope(name)]; is {
			known = append(known, Scope(name))
		} else {
			unknown = append(unknown, name)
		}
	}
	return known, unknown
}

// Identity is an authenticated caller.
type Identity struct {
	Tenant  string
	Subject string    // the user; empty for a key that acts for no user
	Key     string    // name of the API key; empty for other credentials
	KeyID   string    // of the API key, also of the minting key of a token; empty for other credentials
	Scopes  []Scope   // as granted
	Expires time.Time // zero for never
}

// Local is the identity of all callers of a gateway without credentials, which only this machine reaches.
func Local() Identity { return Identity{Tenant: DefaultTenant, Scopes: []Scope{Admin}} }

// CheckNames gives Invalid (TENANT_INVALID, USER_INVALID) for names that are too long or have control characters.
func (i Identity) CheckNames() error {
	switch {
	case !isID(i.Tenant):
		return fault.New(fault.Invalid, "TENANT_INVALID",
			"a tenant has at most %d bytes of UTF-8 without control characters, not %.300q", maxID, i.Tenant)
	case !isID(i.Subject):
		return fault.New(fault.Invalid, "USER_INVALID",
			"a user has at most %d bytes of UTF-8 without control characters, not %.300q", maxID, i.Subject)
	}
	return nil
}

// May reports whether the caller has the scope or a wider one.
func (i Identity) May(wanted Scope) bool {
	return slices.ContainsFunc(i.Scopes, func(s Scope) bool { return s == wanted || slices.Contains(included[s], wanted) })
}

// Owner returns the only user whose sessions the caller reaches; empty if it reaches all sessions of its tenant.
func (i Identity) Owner() string {
	if i.May(Operate) {
		return ""
	}
	return i.Subject
}

// Actor names the caller in approvals and in the audit log.
func (i Identity) Actor() string {
	switch {
	case i.Subject != "":
		return "user:" + i.Subject
	case i.Key != "":
		return "key:" + i.Key
	default:
		return "local"
	}
}

// identityKey is the context key of the caller's identity.
type identityKey struct{}

// With returns a context for work on behalf of the caller.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// requestKey is the context key of the request of Admitted.
type requestKey struct{}

// Admitted returns a request with its caller, and with itself for RequestFrom.
func Admitted(r *http.Request, caller Identity) *http.Request {
	return r.WithContext(context.WithValue(With(r.Context(), caller), requestKey{}, r))
}

// RequestFrom returns the HTTP request for which ctx works, without its body: of a socket, the handshake. It is nil outside
// of requests.
func RequestFrom(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	if r != nil {
		r = r.WithContext(ctx)
		r.Body = http.NoBody
	}
	return r
}

// From returns the caller on whose behalf ctx works.
func From(ctx context.Context) (i Identity, known bool) {
	i, known = ctx.Value(identityKey{}).(Identity)
	return i, known
}
