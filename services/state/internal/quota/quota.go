// Package quota bounds what a tenant, and each of its users, may use at once. The bounds come from a
// file, which is read again when it changes.
//
// Starts per second are counted in the memory of each replica, so a tenant that reaches several replicas
// has the bound at each. Runs in flight are counted in the transaction that claims runs: they hold
// exactly, over all replicas. Queued runs are counted before a start is written, so starts that reach
// several replicas at the same time may exceed the bound by as many as the other replicas have under way.
// Stored bytes are a sum from some seconds ago.
//
// A start that repeats an accepted one is not refused, nor is a start by an executor below another
// session, nor a continuation: their callers would wait for ever. All of them count.
package quota

import "github.com/holdfast-run/holdfast/services/state/internal/store"

// Owner is a tenant, or a user of it.
type Owner struct{ Tenant, UserID string }

// Limits are the bounds of a tenant, or of a user. A bound of 0 is none.
type Limits struct {
	StartsPerSecond float64
	Burst           int64 // most starts at once; at least 1 if StartsPerSecond is above 0
	InFlight        int64 // running runs
	Queued          int64 // queued and waiting runs
	Bytes           int64 // of messages and files; of a tenant only
}

// Table holds the limits of all tenants and users. It is immutable. A nil Table has no limits.
type Table struct {
	tenant, user Limits // of those that are not listed
	tenants      map[string]tenantLimits
}

type tenantLimits struct {
	tenant, user Limits
	users        map[string]Limits
}

// Of returns the limits of a tenant, and of one of its users. A missing user has none.
func (t *Table) Of(tenant, userID string) (ofTenant, ofUser Limits) {
	if t == nil {
		return Limits{}, Limits{}
	}
	own, listed := t.tenants[tenant]
	if !listed {
		own = tenantLimits{tenant: t.tenant, user: t.user}
	}
	if userID == "" {
		return own.tenant, Limits{}
	}
	if user, listed := own.users[userID]; listed {
		return own.tenant, user
	}
	return own.tenant, own.user
}

// caps returns the caps on running runs; nil for none.
func (t *Table) caps() *store.Caps {
	caps := &store.Caps{Tenant: t.tenant.InFlight, User: t.user.InFlight, Tenants: map[string]store.TenantCaps{}}
	some := caps.Tenant > 0 || caps.User > 0
	for name, own := range t.tenants {
		of := store.TenantCaps{Tenant: own.tenant.InFlight, User: own.user.InFlight, Users: map[string]int64{}}
		some = some || of.Tenant > 0 || of.User > 0
		for id, user := range own.users {
			of.Users[id] = user.InFlight
			some = some || user.InFlight > 0
		}
		caps.Tenants[name] = of
	}
	if !some {
		return nil
	}
	return caps
}
