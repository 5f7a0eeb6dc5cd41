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

// otherUserError is the error of a start in a session of another user than the one whose quotas were looked at.
type otherUserError struct{ userID string }

// Error implements error.
func (e *otherUserError) Error() string { return "the session has another user, with other quotas" }

// admit decides about a start of a user. The caller must call finish. The error is one of the store.
func (a *admissions) admit(ctx context.Context, tenant, userID string, bytes int64) (*admission, error) {
	table := a.quotas.Table()
	if table == nil {
		return nil, nil
	}
	one := &admission{admissions: a, table: table, of: quota.Owner{Tenant: tenant, UserID: userID}, bytes: bytes}
	if err := one.decide(ctx); err != nil {
		one.finish(false)
		return nil, err
	}
	return one, nil
}

// decide looks at all limits, the cheapest first, until one refuses the start.
func (a *admission) decide(ctx context.Context) error {
	ofTenant, ofUser := a.table.Of(a.of.Tenant, a.of.UserID)
	tenant := quota.Owner{Tenant: a.of.Tenant}
	a.takeStart("tenant", tenant, ofTenant)
	a.takeStart("user", a.of, ofUser)
	if err := a.countPending(ctx, "tenant", tenant, ofTenant.Queued); err != nil {
		return err
	}
	if err := a.countPending(ctx, "user", a.of, ofUser.Queued); err != nil {
		return err
	}
	if a.refused() {
		return nil
	}
	err := a.checkBytes(ctx, a.of.Tenant, a.bytes)
	if fault.ReasonOf(err) == reasonBytes {
		a.refusal, err = err, nil
	}
	return err
}

func (a *admission) refused() bool { return a.refusal != nil }

func (a *admission) takeStart(whose string, of quota.Owner, l quota.Limits) {
	if a.refused() || l.StartsPerSecond == 0 {
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
	if a.refused() || limit == 0 {
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

// guard returns the command with the decision. It refuses only a start that writes a run.
func (a *admission) guard(c startCommand) startCommand {
	if a == nil {
		return c
	}
	decide := c.decide
	c.decide = func(views ...*session.View) (*session.Change, session.Started, error) {
		change, started, err := decide(views...)
		if err != nil || change == nil || change.NewRun == nil {
			return change, started, err
		}
		if err := a.refuse(change.Session.UserID); err != nil {
			return nil, session.Started{}, err
		}
		return change, started, nil
	}
	return c
}

// refuse returns the decision for the user of the session.
func (a *admission) refuse(userID string) error {
	_, decided := a.table.Of(a.of.Tenant, a.of.UserID)
	_, own := a.table.Of(a.of.Tenant, userID)
	none := quota.Limits{}
	if userID != a.of.UserID && (own != none || decided != none) {
		return &otherUserError{userID}
	}
	return a.refusal
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
