package server

import (
	"context"
	"fmt"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// explainedAfter is how long a run is queued before it has a reason. Most runs are claimed long before, and the reads
// that begin with them cost nothing more.
const explainedAfter = time.Second

// queue says why runs are queued.
type queue struct {
	registry store.Registry
	counts   store.Counts
	caps     func() *store.Caps
	clock    clock
}

// explain adds to a run why it is queued, if it has been for explainedAfter. It accepts nil.
func (q *queue) explain(ctx context.Context, key session.Key, r *session.Run, out *statev1.Run) error {
	if r == nil || r.Status != session.RunQueued {
		return nil
	}
	now, since := q.clock.millis(), r.QueuedSince()
	if now-since < session.Millis(explainedAfter.Milliseconds()) {
		return nil
	}
	reason, detail, err := q.reason(ctx, key.Tenant, r, now)
	if err != nil {
		return err
	}
	out.QueuedReason = &statev1.QueuedReason{Reason: reason, Detail: detail, Since: int64(since)}
	return nil
}

// reason finds the first sufficient reason against a claim of the run.
func (q *queue) reason(ctx context.Context, tenant string, r *session.Run, now session.Millis) (
	reason statev1.QueuedReason_Reason, detail string, err error,
) {
	unserved, err := q.registry.Unserved(ctx)
	if err != nil {
		return 0, "", err
	}
	if _, ok := unserved[r.AgentType]; ok {
		if r.AgentType == session.StoredAgents {
			return statev1.QueuedReason_REASON_NO_EXECUTOR, fmt.Sprintf(
				"the agent %q is stored, and no executor serves stored agents: set HOLDFAST_EXECUTOR_STORED_AGENTS", r.Agent()), nil
		}
		return statev1.QueuedReason_REASON_NO_EXECUTOR, fmt.Sprintf("no executor serves the agent %q", r.AgentType), nil
	}
	if r.DueAt > now {
		return statev1.QueuedReason_REASON_DELAYED,
			fmt.Sprintf("an executor has given the run back; it may begin again in %v", time.Duration(r.DueAt-now)*time.Millisecond), nil
	}
	ofTenant, ofUser := q.caps().Of(tenant, r.UserID)
	if ofTenant > 0 {
		running, err := q.counts.RunningRuns(ctx, tenant, "")
		if err != nil || running >= ofTenant {
			return statev1.QueuedReason_REASON_TENANT_IN_FLIGHT,
				fmt.Sprintf("%d runs of the tenant are running, as many as its quota inFlight allows", running), err
		}
	}
	if ofUser > 0 {
		running, err := q.counts.RunningRuns(ctx, tenant, r.UserID)
		if err != nil || running >= ofUser {
			return statev1.QueuedReason_REASON_USER_IN_FLIGHT,
				fmt.Sprintf("%d runs of the user are running, as many as the quota inFlight allows", running), err
		}
	}
	return statev1.QueuedReason_REASON_NO_FREE_SLOT, fmt.Sprintf("the executors that serve the agent %q have no free slot", r.Agent()), nil
}
