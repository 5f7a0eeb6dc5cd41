package server

import (
	"context"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/quota"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// When a refused caller may try again: a run ends often, and stored bytes are deleted rarely.
const (
	queuedRetry = time.Second
	bytesRetry  = time.Minute
)

// admissions decides which starts and uploads are within the quotas.
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

// admission is the decision about one start. A nil admission is without quotas.
type admission struct {
	*admissions
	table    *quota.Table
	of       quota.Owner
	bytes    int64
	refusal  error         // for a start that is not a repetition
	tokens   []quota.Owner // taken
	underWay []quota.Owner // counted as pending
}

// admit decides about a start of a user: it looks at all limits, the cheapest first, until one refuses the start. The
// caller must call finish. The error is one of the store.
func (a *admissions) admit(ctx context.Context, tenant, userID string, bytes int64) (*admission, error) {
	table := a.quotas.Table()
	if table == nil {
		return nil, nil
	}
	one := &admission{admissions: a, table: table, of: quota.Owner{Tenant: tenant, UserID: userID}, bytes: bytes}
	whole := quota.Owner{Tenant: tenant}
	ofTenant, ofUser := table.Of(tenant, userID)
	one.takeStart("tenant", whole, ofTenant)
	one.takeStart("user", one.of, ofUser)
	err := one.countPending(ctx, "tenant", whole, ofTenant.Queued)
	if err == nil {
		err = one.countPending(ctx, "user", one.of, ofUser.Queued)
	}
	if err == nil && one.refusal == nil {
		err = a.checkBytes(ctx, tenant, bytes)
		if fault.ReasonOf(err) == reasonBytes {
			one.refusal = err
			err = nil
		}
	}
	if err != nil {
		one.finish(false)
		return nil, err
	}
	return one, nil
}

func (a *admission) takeStart(whose string, of quota.Owner, l quota.Limits) {
	if a.refusal != nil || l.StartsPerSecond == 0 {
		return
	}
	if wait := a.starts.Take(of, l, a.clock()); wait > 0 {
		a.refusal = exceeded("QUOTA_STARTS", whose+".startsPerSecond", l.StartsPerSecond, wait,
			"the %s may start %g runs a second, and %d at once; send the request again in a moment", whose, l.StartsPerSecond, l.Burst)
		return
	}
	a.tokens = append(a.tokens, of)
}

func (a *admission) countPending(ctx context.Context, whose string, of quota.Owner, limit int64) error {
	if a.refusal != nil || limit == 0 {
		return nil
	}
	before := a.pending.Begin(of)
	a.underWay = append(a.underWay, of)
	stored, err := a.counts.PendingRuns(ctx, of.Tenant, of.UserID, limit)
	if err == nil && before+stored >= limit {
		a.refusal = exceeded("QUOTA_QUEUED", whose+".queued", float64(limit), queuedRetry,
			"%d runs of the %s wait already, which is the limit; send the request again after some have begun", limit, whose)
	}
	return err
}

// quota returns the decision for the rules of a command. It also holds for other users if neither has limits of its own.
func (a *admission) quota() *session.Quota {
	if a == nil {
		return nil
	}
	limited := func(userID string) bool {
		_, ofUser := a.table.Of(a.of.Tenant, userID)
		return ofUser != quota.Limits{}
	}
	return &session.Quota{UserID: a.of.UserID, Refusal: a.refusal, Applies: func(userID string) bool {
		return !limited(userID) && !limited(a.of.UserID)
	}}
}

// finish gives back the unused part of a start without a new run.
func (a *admission) finish(written bool) {
	if a == nil {
		return
	}
	for _, of := range a.underWay {
		a.pending.End(of)
	}
	if written {
		a.admissions.bytes.Add(a.of.Tenant, a.bytes)
		return
	}
	for _, of := range a.tokens {
		a.starts.GiveBack(of)
	}
}

const reasonBytes = "QUOTA_BYTES"

// checkBytes gives Exhausted (QUOTA_BYTES) if the tenant may not store n more bytes.
func (a *admissions) checkBytes(ctx context.Context, tenant string, n int64) error {
	ofTenant, _ := a.quotas.Table().Of(tenant, "")
	if ofTenant.Bytes == 0 {
		return nil
	}
	used, err := a.bytes.Used(ctx, tenant)
	if err != nil || used+n <= ofTenant.Bytes {
		return err
	}
	return exceeded(reasonBytes, "tenant.bytes", float64(ofTenant.Bytes), bytesRetry,
		"the messages and files of the tenant have about %d bytes, and may have %d; delete sessions, or ask for more", used, ofTenant.Bytes)
}

// exceeded is the fault of a reached quota.
func exceeded(reason, limit string, value float64, wait time.Duration, format string, args ...any) error {
	return fault.New(fault.Exhausted, reason, format, args...).WithLimit(limit, value).WithRetryAfter(wait)
}
