package store

// Caps bound how many runs of a tenant, and of a user, run at the same time. Queued runs above a cap
// stay queued. 0 is no cap. Runs without a user have the caps of their tenant only.
type Caps struct {
	Tenant  int64                 `json:"tenant"`  // of each tenant
	User    int64                 `json:"user"`    // of each user of each tenant
	Tenants map[string]TenantCaps `json:"tenants"` // in place of both, by tenant
}

// TenantCaps are the caps of one tenant.
type TenantCaps struct {
	Tenant int64            `json:"tenant"`
	User   int64            `json:"user"`  // of each user
	Users  map[string]int64 `json:"users"` // in place of User, by user
}

// LowerTenants returns the caps with at most n running runs of each tenant. n is above 0.
func (c *Caps) LowerTenants(n int64) *Caps {
	lower := func(limit int64) int64 {
		if limit == 0 {
			return n
		}
		return min(limit, n)
	}
	if c == nil {
		return &Caps{Tenant: n}
	}
	lowered := &Caps{Tenant: lower(c.Tenant), User: c.User, Tenants: make(map[string]TenantCaps, len(c.Tenants))}
	for tenant, caps := range c.Tenants {
		caps.Tenant = lower(caps.Tenant)
		lowered.Tenants[tenant] = caps
	}
	return lowered
}

// Of returns the caps of a tenant, and of a user of it. Nil caps have none.
func (c *Caps) Of(tenant, userID string) (ofTenant, ofUser int64) {
	if c == nil {
		return 0, 0
	}
	caps, listed := c.Tenants[tenant]
	if !listed {
		caps = TenantCaps{Tenant: c.Tenant, User: c.User}
	}
	if userID == "" {
		return caps.Tenant, 0
	}
	if own, listed := caps.Users[userID]; listed {
		return caps.Tenant, own
	}
	return caps.Tenant, caps.User
}
