package sqlite

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// findQueued returns at most limit queued runs, by turns of the tenants.
func findQueued(ctx context.Context, c *connection, due store.Queued, limit int) ([]candidate, error) {
	running, err := countRunning(ctx, c, due.Caps)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, agent := range distinct(due.AgentTypes) {
		tenants, err := tenantsInTurn(ctx, c, agent, due.After, limit, running)
		if err != nil {
			return nil, err
		}
		queries := []dueQuery{{queuedDelayed, arguments(agent, due.Now, due.ExecutorID)}}
		for _, tenant := range tenants {
			queries = append(queries, dueQuery{queuedNow, arguments(agent, tenant, due.ExecutorID)})
		}
		for _, one := range queries {
			most := limit
			if one.query == queuedDelayed {
				most = max(limit, maxDelayed)
			}
			found, err := running.find(ctx, c, one, most)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.SortFunc(all, firstOfTenant)
	all = running.fitting(all)
	sortByTurns(all, due)
	return all[:min(limit, len(all))], nil
}

// firstOfTenant is the order of the queued runs of a tenant.
func firstOfTenant(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), olderFirst(a, b))
}

// running counts the running runs of tenants and users with caps; nil without caps.
type running struct {
	caps   *store.Caps
	counts map[owner]int64 // of a tenant, and of each user of it
}

// owner is a tenant, or a user of it.
type owner struct{ tenant, userID string }

func countRunning(ctx context.Context, c *connection, caps *store.Caps) (*running, error) {
	if caps == nil {
		return nil, nil
	}
	r := &running{caps: caps, counts: map[owner]int64{}}
	return r, c.forEach(ctx, `SELECT tenant, user_id, count(*) FROM runs
		WHERE status IN ('waiting', 'queued', 'running') AND status = 'running' GROUP BY tenant, user_id`,
		nil, func(row scanner) error {
			var of owner
			var n int64
			err := row.Scan(&of.tenant, &of.userID, &n)
			if r.counts[of] += n; of.userID != "" {
				r.counts[owner{tenant: of.tenant}] += n
			}
			return err
		})
}

// mayBegin reports whether another run of the tenant and the user may begin.
func (r *running) mayBegin(tenant, userID string) bool {
	if r == nil {
		return true
	}
	ofTenant, ofUser := r.caps.Of(tenant, userID)
	return (ofTenant == 0 || r.counts[owner{tenant: tenant}] < ofTenant) && (ofUser == 0 || r.counts[owner{tenant, userID}] < ofUser)
}

// add counts runs that begin.
func (r *running) add(tenant, userID string, n int64) {
	if r.counts[owner{tenant: tenant}] += n; userID != "" {
		r.counts[owner{tenant, userID}] += n
	}
}

// find is findRuns for the runs that may begin together.
func (r *running) find(ctx context.Context, c *connection, q dueQuery, most int) ([]candidate, error) {
	if r == nil {
		return findRuns(ctx, c, q, most)
	}
	found, err := keepRuns(ctx, c, q, -1, most, func(one candidate) bool {
		fits := r.mayBegin(one.key.Tenant, one.userID)
		if fits {
			r.add(one.key.Tenant, one.userID, 1)
		}
		return fits
	})
	for _, one := range found { // they are only candidates
		r.add(one.key.Tenant, one.userID, -1)
	}
	return found, err
}

// fitting returns the first of the runs that may begin together.
func (r *running) fitting(all []candidate) []candidate {
	if r == nil {
		return all
	}
	return slices.DeleteFunc(all, func(one candidate) bool {
		if !r.mayBegin(one.key.Tenant, one.userID) {
			return true
		}
		r.add(one.key.Tenant, one.userID, 1)
		return false
	})
}

// tenantsInTurn returns after and at most limit other tenants with queued runs of an agent that may
// begin: those behind after, in their order, and then those before it.
func tenantsInTurn(ctx context.Context, c *connection, agent, after string, limit int, running *running) (tenants []string, err error) {
	tenants = append(tenants, after)
	for last, wrapped := after, false; len(tenants) <= limit; {
		next := ""
		found, err := c.queryRow(ctx, nextTenant, arguments(agent, last), &next)
		switch {
		case err != nil:
			return nil, err
		case wrapped && (!found || next >= after):
			return tenants, nil
		case !found:
			last, wrapped = "", true
		default:
			if last = next; running.mayBegin(next, "") {
				tenants = append(tenants, next)
			}
		}
	}
	return tenants, nil
}

// sortByTurns sorts the runs by the turns of their tenants. They come in the order of each tenant.
func sortByTurns(all []candidate, due store.Queued) {
	places := map[string]int64{due.After: -due.Left} // of the next run of a tenant
	for i := range all {
		tenant := all[i].key.Tenant
		if all[i].turn = -1; places[tenant] >= 0 {
			all[i].turn = places[tenant] / max(due.Weights[tenant], 1)
		}
		places[tenant]++
	}
	wraps := func(tenant string) int {
		if tenant <= due.After {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(wraps(a.key.Tenant), wraps(b.key.Tenant)), cmp.Compare(a.key.Tenant, b.key.Tenant))
	})
}
