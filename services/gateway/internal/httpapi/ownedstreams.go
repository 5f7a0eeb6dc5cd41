package httpapi

import (
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// StreamLimits bound the open streams of one gateway. Each gateway counts its own.
type StreamLimits struct {
	All          int // at least 1
	SparePercent int // streams beyond All, for tenants with few open ones
	Tenant       int // of each tenant; 0 for no limit
	User         int // of each user of a tenant; 0 for no limit. Callers without a user have none
}

// spare returns how many streams there are beyond All.
func (l StreamLimits) spare() int { return (l.All*l.SparePercent + 99) / 100 }

// streamRetry is the delay before a refused client may open a stream.
const streamRetry = 5 * time.Second

// spareTenants is the number of tenants for the spare streams: each may open an equal part of them.
const spareTenants = 10

// ownedStreams counts the open streams of limited tenants and users.
type ownedStreams struct {
	limits StreamLimits
	open   map[streamOwner]int
}

// streamOwner is a tenant, or a user of it.
type streamOwner struct{ tenant, user string }

// check gives Exhausted (QUOTA_STREAMS) if the caller may open no more streams.
func (o *ownedStreams) check(caller auth.Identity) error {
	for _, limited := range o.limitsOf(caller) {
		if limited.limit > 0 && o.open[limited.owner] >= limited.limit {
			return fault.New(fault.Exhausted, "QUOTA_STREAMS", "%d streams of the %s are open on this gateway, which is the limit; close one, or try again later",
				limited.limit, limited.whose).
				WithLimit(limited.whose+".streams", float64(limited.limit)).
				WithRetryAfter(streamRetry)
		}
	}
	return nil
}

// add counts n opened streams of the caller; below 0, ended ones.
func (o *ownedStreams) add(caller auth.Identity, n int) {
	for _, limited := range o.limitsOf(caller) {
		if limited.limit == 0 {
			continue
		}
		if o.open[limited.owner] += n; o.open[limited.owner] == 0 {
			delete(o.open, limited.owner)
		}
	}
}

type streamLimit struct {
	whose string
	owner streamOwner
	limit int
}

func (o *ownedStreams) limitsOf(caller auth.Identity) [2]streamLimit {
	limits := [2]streamLimit{{"tenant", streamOwner{tenant: caller.Tenant}, o.limits.Tenant}}
	if caller.Subject != "" {
		limits[1] = streamLimit{"user", streamOwner{caller.Tenant, caller.Subject}, o.limits.User}
	}
	return limits
}
