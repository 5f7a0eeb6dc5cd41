package worker

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/grant"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// claimedRun is the run as its claim describes it. Its results never change.
type claimedRun struct {
	ref     *statev1.RunRef // the run, and the epoch and the grant of the claim
	session *statev1.Session
	run     *statev1.Run
	// callbackKey signs the URLs for results of the session's calls; empty if the state service has no secret.
	callbackKey []byte
	lead        time.Duration // how far the executor's clock is ahead of the state service's
}

// stateTime returns the time by the clock of the state service. All deadlines are measured by it, so a wrong clock of an
// executor moves none.
func (c claimedRun) stateTime(now time.Time) time.Time { return now.Add(-c.lead) }

func newClaimedRun(claim *statev1.Claim) claimedRun {
	session, run := claim.GetSession(), claim.GetRun()
	return claimedRun{session: session, run: run, callbackKey: claim.GetCallbackKey(), ref: &statev1.RunRef{
		Tenant: session.GetTenant(), SessionId: session.GetSessionId(), RunId: run.GetRunId(), Epoch: claim.GetEpoch(), Grant: claim.GetGrant(),
	}}
}

// callback returns where the result of a call may be posted from now on. public is the URL of the gateway. It is zero if
// either is not configured.
func (c claimedRun) callback(call loop.Call, public string, now time.Time) agent.Callback {
	if len(c.callbackKey) == 0 || public == "" {
		return agent.Callback{}
	}
	expires := c.stateTime(now).Add(call.Tool.LaterWithin).Truncate(time.Millisecond).UTC()
	token := grant.SignCallback(c.callbackKey, grant.Callback{
		Tenant: c.ref.GetTenant(), Session: c.ref.GetSessionId(), Run: c.ref.GetRunId(), Call: call.ID, Expires: expires,
	})
	return agent.Callback{URL: strings.TrimRight(public, "/") + "/callbacks/" + token, Expires: expires}
}

// granted returns the option with the grant, for calls whose requests have no field for it.
func (c claimedRun) granted() grpc.CallOption { return grant.Attach(c.ref.GetGrant()) }

// plannerRun identifies the run for the planner.
func (c claimedRun) plannerRun() loop.Run {
	return loop.Run{Tenant: c.ref.GetTenant(), SessionID: c.ref.GetSessionId(), RunID: c.ref.GetRunId()}
}

// plannerSession describes the session to functions of the agent.
func (c claimedRun) plannerSession() loop.Session {
	return loop.Session{
		ParentID: c.session.GetParentSessionId(), UserID: c.session.GetUserId(), Tags: c.session.GetTags(), Metadata: c.session.GetMetadata(),
	}
}

// codeName returns a name for a function of the run's agent.
func (c claimedRun) codeName(function string) string { return c.run.GetAgentType() + "/" + function }

// continues reports whether the run continues an earlier one.
func (c claimedRun) continues() bool {
	entry := c.run.GetEntry()
	return entry == statev1.RunEntry_RUN_ENTRY_RESUME || entry == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}

// isAnswering reports whether the message is the plan of an answer step, which answers calls of an earlier step.
func (c claimedRun) isAnswering(step int, planID string) bool {
	return loop.IsAnswering(c.plannerRun(), step, agent.Message{ID: planID})
}

// beginsAnswering reports whether the effect is the first one of an answer step.
func (c claimedRun) beginsAnswering(effect loop.Effect) bool {
	switch e := effect.(type) {
	case loop.RunCalls:
		return e.Answering
	case loop.Commit:
		return e.Answering
	case loop.RecordPlan:
		return c.isAnswering(e.Step, e.Plan.ID)
	}
	return false
}

// deadline returns the run's own deadline, or the end of its agent's time limit, whichever comes first. A limit
// of 0 is none. The zero time means never. All times are those of the state service.
func (c claimedRun) deadline(limit time.Duration, now time.Time) time.Time {
	var deadline time.Time
	if at := c.run.GetDeadlineAt(); at > 0 {
		deadline = time.UnixMilli(at)
	}
	if limit > 0 {
		begin := now
		if at := c.run.GetStartedAt(); at > 0 {
			begin = time.UnixMilli(at)
		}
		if end := begin.Add(limit); deadline.IsZero() || end.Before(deadline) {
			deadline = end
		}
	}
	return deadline
}

// remaining returns the milliseconds until the deadline of the run, by the clock of the state service; 0 for none.
func (c claimedRun) remaining(now time.Time) int64 {
	at := c.run.GetDeadlineAt()
	if at == 0 {
		return 0
	}
	return max(1, at-now.UnixMilli())
}

// toolCall returns a call of the step for its tool.
func (c claimedRun) toolCall(step int, call loop.Call) *agent.Call {
	return &agent.Call{
		ID: call.ID, Tool: call.Name, IdempotencyKey: call.Key, Tenant: c.ref.GetTenant(), SessionID: c.ref.GetSessionId(),
		ParentSessionID: c.session.GetParentSessionId(), RunID: c.ref.GetRunId(), AgentType: c.run.GetAgentType(),
		UserID: c.session.GetUserId(), Tags: slices.Clone(c.session.GetTags()), Metadata: maps.Clone(c.session.GetMetadata()),
		Turn: int(c.run.GetTurn()), Step: step, Input: call.Arguments,
	}
}

// previousRun returns the id of the continued run, if the claim has it. It is empty for a started run.
func previousRun(claim *statev1.Claim) string {
	run := claim.GetRun()
	if !newClaimedRun(claim).continues() {
		return ""
	}
	messages := claim.GetMessages()
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if id := m.GetMessage().GetRunId(); m.GetOrdinal() < run.GetStartMessageCount() && id != "" && id != run.GetRunId() {
			return id
		}
	}
	for _, c := range claim.GetCalls() {
		if c.GetRunId() != "" {
			return c.GetRunId()
		}
	}
	return ""
}
