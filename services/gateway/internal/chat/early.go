package chat

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// startWithAnswers is startRun for messages with or without answers. A message that waits for the
// live run must not answer a call of its step in flight: no run would take the answer, and the
// session would wait for it. startWithAnswers waits for the call to open, then refuses the whole
// message: Unavailable (CALL_NOT_OPEN).
func (p *post) startWithAnswers(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	policy := r.GetOnBusy()
	if policy != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED && policy != statev1.BusyPolicy_BUSY_POLICY_ENQUEUE || len(r.GetAnswers()) == 0 {
		return p.startRun(ctx, r)
	}
	r.OnBusy = statev1.BusyPolicy_BUSY_POLICY_REJECT // most sessions have no live run
	started, err := p.startRun(ctx, r)
	if fault.ReasonOf(err) != sessionBusy {
		return started, err
	}
	r.OnBusy = policy
	if err := retry.Do(ctx, p.chat.policy, func() error { return p.checkEarlyAnswers(ctx, r) }); err != nil {
		return nil, err
	}
	return p.startRun(ctx, r)
}

// checkEarlyAnswers fails if the message would wait and answers a call of the step in flight:
// Unavailable (CALL_NOT_OPEN). The state service checks this as well, but knows a call only once
// the plan is recorded. The live log has it earlier. If the log does not answer within
// answeredTimeout, its calls are ignored.
func (p *post) checkEarlyAnswers(ctx context.Context, r *statev1.StartRunRequest) error {
	session, run, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if err != nil || !conversation.Executing(run) {
		return err
	}
	waits, err := p.wouldWait(ctx, run.GetAgentType(), r.GetOnBusy())
	if err != nil || !waits {
		return err
	}
	look, cancel := context.WithTimeout(ctx, answeredTimeout)
	defer cancel()
	asks := awaitedCalls(p.chat.follower.StepInFlight(look, session))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, a := range r.GetAnswers() {
		if id := a.GetToolCallId(); asks[id] {
			return fault.New(fault.Unavailable, callNotOpen, "the run of call %q has not suspended yet; send the same message again", id)
		}
	}
	return nil
}

// wouldWait reports whether a message waits for the live run, by its own policy or else the agent's.
func (p *post) wouldWait(ctx context.Context, agent string, policy statev1.BusyPolicy) (bool, error) {
	if policy != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		return policy == statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, nil
	}
	got, err := p.chat.sessions.Sessions.ListAgents(ctx, &statev1.ListAgentsRequest{})
	return slices.ContainsFunc(got.GetAgents(), func(a *statev1.Agent) bool {
		return a.GetAgentType() == agent && a.GetOnBusy() == statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
	}), err
}

// awaitedCalls returns the calls of the step in flight for a client or a human to answer.
func awaitedCalls(inFlight []*frame.Frame) map[string]bool {
	asks := map[string]bool{}
	for _, f := range inFlight {
		if start := f.Chunk.GetToolStart(); start.GetAwaitsClient() {
			asks[start.GetToolCallId()] = true
		}
		if request := f.Chunk.GetToolApprovalRequest(); request != nil {
			asks[request.GetToolCallId()] = true
		}
	}
	return asks
}
