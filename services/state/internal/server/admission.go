package server

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/quota"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// admissions counts starts and uploads against the quotas. session.Quotas refuses them.
type admissions struct {
	quotas  *quota.File
	counts  store.Counts
	starts  *quota.Starts
	pending quota.Pending
	bytes   *quota.Bytes
	clock   clock
}

func newAdmissions(quotas *quota.File, counts store.Counts, clock clock) *admissions {
	return &admissions{
		quotas: quotas, counts: counts, starts: quota.NewStarts(), clock: clock,
		bytes: quota.NewBytes(func(ctx context.Context, tenant string) (int64, error) { return counts.StoredBytes(ctx, tenant) }, clock),
	}
}

// admission is one start under way, which counts against the quotas. The zero admission is without quotas.
type admission struct {
	*admissions
	tenant  string
	bytes   int64
	quotas  *session.Quotas
	tokens  []quota.Owner // each has given a token of its starts
	pending []quota.Owner // each has one more pending start
}

// admit counts a start of a user. It reads the counters of all bounds, the cheapest first, up to a bound that is reached.
// The caller must call finish. The error is one of the store.
func (a *admissions) admit(ctx context.Context, tenant, userID string, bytes int64) (admission, error) {
	table := a.quotas.Table()
	if table == nil {
		return admission{}, nil
	}
	ofTenant, ofUser := table.Of(tenant, userID)
	owners := [...]struct {
		quota.Owner
		quota.Limits
		whose string
	}{{quota.Owner{Tenant: tenant}, ofTenant, "tenant"}, {quota.Owner{Tenant: tenant, UserID: userID}, ofUser, "user"}}
	q := &session.Quotas{UserID: userID, Limited: func(userID string) bool {
		_, ofUser := table.Of(tenant, userID)
		return ofUser != quota.Limits{}
	}}
	start := admission{admissions: a, tenant: tenant, bytes: bytes, quotas: q}
	for _, of := range owners {
		if of.StartsPerSecond == 0 {
			continue
		}
		wait := a.starts.Take(of.Owner, of.Limits, a.clock())
		q.Bounds = append(q.Bounds, session.Bound{
			Kind: session.BoundStarts, Whose: of.whose, Limit: of.StartsPerSecond, Burst: of.Burst,
			Wait: session.Millis((wait + time.Millisecond - 1) / time.Millisecond), // rounded up
		})
		if wait > 0 {
			return start, nil
		}
		start.tokens = append(start.tokens, of.Owner)
	}
	for _, of := range owners {
		if of.Queued == 0 {
			continue
		}
		before := a.pending.Begin(of.Owner)
		start.pending = append(start.pending, of.Owner)
		stored, err := a.counts.PendingRuns(ctx, tenant, of.UserID, of.Queued)
		if err != nil {
			start.finish(false)
			return admission{}, err
		}
		q.Bounds = append(q.Bounds, session.Bound{Kind: session.BoundQueued, Whose: of.whose, Limit: float64(of.Queued), Used: before + stored})
		if before+stored >= of.Queued {
			return start, nil
		}
	}
	if ofTenant.Bytes > 0 {
		used, err := a.bytes.Used(ctx, tenant)
		if err != nil {
			start.finish(false)
			return admission{}, err
		}
		q.Bounds = append(q.Bounds, boundOfBytes(ofTenant.Bytes, used))
	}
	return start, nil
}

func boundOfBytes(limit, used int64) session.Bound {
	return session.Bound{Kind: session.BoundBytes, Whose: "tenant", Limit: float64(limit), Used: used}
}

// finish ends the start. It gives back what a start without a new run has not used.
func (a admission) finish(written bool) {
	if a.quotas == nil {
		return
	}
	for _, of := range a.pending {
		a.admissions.pending.End(of)
	}
	if written {
		a.admissions.bytes.Add(a.tenant, a.bytes)
		return
	}
	for _, of := range a.tokens {
		a.starts.GiveBack(of)
	}
}

// checkBytes gives Exhausted (QUOTA_BYTES) if the tenant may not store n more bytes.
func (a *admissions) checkBytes(ctx context.Context, tenant string, n int64) error {
	ofTenant, _ := a.quotas.Table().Of(tenant, "")
	if ofTenant.Bytes == 0 {
		return nil
	}
	used, err := a.bytes.Used(ctx, tenant)
	if err != nil {
		return err
	}
	return boundOfBytes(ofTenant.Bytes, used).Check(n)
}
