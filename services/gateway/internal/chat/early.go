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

// startWith is startRun for a message that brings answers. One that would wait must not bring
// the answer to a call that the live run has told and not opened: nobody would take it,
// and behind that run the session would wait for it. Such a message is refused as a whole:
// Unavailable (CALL_NOT_OPEN), after the call was waited for.
func (p *post) startWith(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	policy := r.GetOnBusy()
	if policy != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED && policy != statev1.BusyPolicy_BUSY_POLICY_ENQUEUE || len(r.GetAnswers()) == 0 {
		return p.startRun(ctx, r)
	}
	r.OnBusy = statev1.BusyPolicy_BUSY_POLICY_REJECT // most come to a session where nothing runs
	started, err := p.startRun(ctx, r)
	if fault.ReasonOf(err) != sessionBusy {
		return started, err
	}
	r.OnBusy = policy
	if err := retry.Do(ctx, p.chat.policy, func() error { return p.early(ctx, r) }); err != nil {
		return nil, err
	}
	return p.startRun(ctx, r)
}

// early gives Unavailable (CALL_NOT_OPEN) for a message that would wait with an early
// answer. The state service refuses it as well, in the transaction, but knows of a call
// only when the plan is recorded; before that the live log does. What cannot be read there
// within a moment is passed over.
func (p *post) early(ctx context.Context, r *statev1.StartRunRequest) error {
	session, run, err := p.chat.sessions.Session(ctx, p.request.Tenant, p.body.ID)
	if err != nil || !conversation.Executing(run) {
		return err
	}
	waits, err := p.waits(ctx, run.GetAgentType(), r.GetOnBusy())
	if err != nil || !waits {
		return err
	}
	look, cancel := context.WithTimeout(ctx, answeredTimeout)
	defer cancel()
	asks := questions(p.chat.follower.InFlight(look, session))
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

// waits reports whether a message waits for the agent's live run, as the policy or else
// the agent says.
func (p *post) waits(ctx context.Context, agent string, policy statev1.BusyPolicy) (bool, error) {
	if policy != statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED {
		return policy == statev1.BusyPolicy_BUSY_POLICY_ENQUEUE, nil
	}
	got, err := p.chat.sessions.Sessions.ListAgents(ctx, &statev1.ListAgentsRequest{})
	return slices.ContainsFunc(got.GetAgents(), func(a *statev1.Agent) bool {
		return a.GetAgentType() == agent && a.GetOnBusy() == statev1.BusyPolicy_BUSY_POLICY_ENQUEUE
	}), err
}

// questions are the calls that the step in flight has asked somebody outside.
func questions(inFlight []*frame.Frame) map[string]bool {
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
