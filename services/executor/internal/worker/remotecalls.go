package worker

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
)

// decisions returns the decisions about the calls that the next commit consumes.
func (m *remoteRun) decisions() map[string]loop.Decision {
	decisions := map[string]loop.Decision{}
	for _, c := range m.claim.GetCalls() {
		if d := c.GetAnswer().GetApproval(); d != nil {
			decisions[c.GetToolCallId()] = loop.Decision{ApprovalID: c.GetApprovalId(), Approved: d.GetApproved(), Reason: d.GetReason()}
		}
	}
	return decisions
}

// suspend suspends the run here on the calls there.
func (m *remoteRun) suspend(ctx context.Context, pending []*agentv1.PendingCall) error {
	c := loop.Commit{Drain: true, Outcome: &loop.Outcome{Status: loop.StatusSuspendedClientTool, FinishReason: model.FinishToolCalls}}
	below := agent.Message{ID: loop.MessageID(m.claimed.plannerRun(), int(m.step)+1, "below", 0), Role: agent.RoleAssistant}
	for _, p := range pending {
		if m.isOpen(remote.CallID(m.claimed.plannerRun(), p.GetToolCallId())) { // since before an interrupt
			continue
		}
		open := loop.OpenCall{
			ToolCall: agent.ToolCall{ID: remote.CallID(m.claimed.plannerRun(), p.GetToolCallId()), Name: p.GetToolName(), Arguments: json.RawMessage(p.GetInput()), Dynamic: true},
			Approval: p.GetApprovalId() != "", ApprovalID: p.GetApprovalId(),
		}
		if p.GetApprovers() == string(agent.Others) {
			open.Approvers = agent.Others
		}
		if at := p.GetDeadlineAt(); at > 0 { // the other Holdfast decides about it, and a little later it is decided
			open.AnswerWithin = loop.Millis(max(1, at-m.claimed.stateTime(m.peers.Now()).UnixMilli()) + pausedInterval.Milliseconds())
		}
		if err := m.view.showOpenCall(ctx, m.step+1, open); err != nil {
			return err
		}
		c.Suspend = append(c.Suspend, open)
		if p.GetSessionId() != m.session {
			m.progress.Below = append(m.progress.Below, open.ID)
			below.Parts = append(below.Parts, open.ToolCall)
			if err := m.view.show(ctx, m.step+1, toolStart(open.ToolCall, !open.Approval)); err != nil {
				return err
			}
		}
	}
	if len(below.Parts) > 0 {
		c.Messages = []agent.Message{below}
	}
	return m.commitCopy(ctx, c)
}

// isOpen reports whether the call was open at the claim.
func (m *remoteRun) isOpen(callID string) bool {
	return slices.ContainsFunc(m.claim.GetCalls(), func(c *statev1.Call) bool { return c.GetToolCallId() == callID && c.GetAnswer() == nil })
}

// answer sends the answers to calls there, and returns the run that goes on. Calls that do not wait any more have
// been answered there: by this run before, or by their deadline.
func (m *remoteRun) answer(ctx context.Context) (run string, err error) {
	found, err := m.client.Get(ctx, m.session)
	if err != nil {
		return "", err
	}
	m.consumed, m.results = nil, nil
	for _, c := range m.claim.GetCalls() {
		if c.GetAnswer() == nil || c.GetConsumedAt() != 0 {
			continue
		}
		m.consumed = append(m.consumed, loop.Consumed{CallID: c.GetToolCallId(), Revision: int(c.GetRevision())})
		if i := slices.Index(m.progress.Below, c.GetToolCallId()); i >= 0 {
			m.results = append(m.results, resultBelow(c))
		}
		i := slices.IndexFunc(found.GetPendingCalls(), func(p *agentv1.PendingCall) bool {
			return remote.CallID(m.claimed.plannerRun(), p.GetToolCallId()) == c.GetToolCallId()
		})
		if i < 0 {
			continue
		}
		if err := m.submit(ctx, found.GetPendingCalls()[i], c.GetAnswer()); err != nil {
			return "", err
		}
	}
	if m.progress.Run != "" {
		return m.progress.Run, nil // its end leads to the run that continues it
	}
	return found.GetRunId(), nil
}

// resultBelow returns the result here of an answered call of a sub-agent there.
func resultBelow(c *statev1.Call) agent.ToolResult {
	answer := toAnswer(c, c.GetAnswer())
	result := agent.ToolResult{CallID: c.GetToolCallId(), Name: c.GetToolName(), Result: answer.Result, Success: answer.Error == "", Error: answer.Error}
	if decision := c.GetAnswer().GetApproval(); decision != nil {
		result.Success, result.Result = decision.GetApproved(), json.RawMessage(`null`)
		if !decision.GetApproved() {
			result.Error = "it was not approved"
		}
	}
	return result
}

// refusedApproval is why a call is denied whose approval the other Holdfast has refused.
const refusedApproval = "the call was approved, but the other Holdfast accepts no approval from the key that started the run"

func (m *remoteRun) submit(ctx context.Context, p *agentv1.PendingCall, a *statev1.CallAnswer) (err error) {
	call := client.Call{Session: m.session, ID: p.GetToolCallId(), Approval: p.GetApprovalId()}
	switch decision := a.GetApproval(); {
	case decision.GetApproved():
		_, err = m.client.Approve(ctx, call, decision.GetReason())
		if fault.ReasonOf(err) == "APPROVER_REFUSED" { // for the other Holdfast, our key is who started the run
			m.log.WarnContext(ctx, "the remote agent takes no approval from the key that started its run; the call is denied", "tool", p.GetToolName(), "error", err)
			_, err = m.client.Deny(ctx, call, refusedApproval)
		}
	case decision != nil:
		_, err = m.client.Deny(ctx, call, decision.GetReason())
	case a.GetError() != "":
		_, err = m.client.SubmitError(ctx, call, a.GetError())
	default:
		_, err = m.client.SubmitResult(ctx, call, json.RawMessage(a.GetResult()))
	}
	switch fault.ReasonOf(err) {
	case "UNKNOWN_TOOL_CALL", "OWNER_NOT_CONTINUABLE": // answered or ended meanwhile, and the copy shows how
		return nil
	}
	return err
}
