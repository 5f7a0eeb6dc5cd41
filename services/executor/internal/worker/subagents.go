package worker

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// subAgentCalls has the calls of the claim that sub-agents answer, by id. It never changes.
type subAgentCalls map[string]*statev1.Call

func newSubAgentCalls(claim *statev1.Claim) subAgentCalls {
	calls := subAgentCalls{}
	for _, c := range claim.GetCalls() {
		if isOfSubAgent(c) {
			calls[c.GetToolCallId()] = c
		}
	}
	return calls
}

func isOfSubAgent(c *statev1.Call) bool { return c.GetKind() == statev1.CallKind_CALL_KIND_SUB_AGENT }

// usage returns the usage of the sub-agents whose answers a step has consumed.
func (s subAgentCalls) usage(consumed []loop.Consumed) []*statev1.UsageEntry {
	var entries []*statev1.UsageEntry
	for _, c := range consumed {
		call, ok := s[c.CallID]
		if !ok {
			continue
		}
		entries = append(entries, &statev1.UsageEntry{Entry: &statev1.UsageEntry_SubAgent{SubAgent: &statev1.ToolUsage{
			ToolName:   subAgentType(call.GetToolName()),
			Success:    call.GetAnswer().GetChild().GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED,
			DurationMs: max(0, call.GetAnsweredAt()-call.GetCreatedAt()),
		}}})
	}
	return entries
}

// ends returns the last chunks of a call: the end of its sub-agent, if any, and its own.
func (s subAgentCalls) ends(r agent.ToolResult) []*eventv1.Chunk {
	end := toolEnd(r)
	if call, ok := s[r.CallID]; ok {
		return []*eventv1.Chunk{subagentEnd(call, r), end}
	}
	return []*eventv1.Chunk{end}
}

// subAgentType returns the agent type of a sub-agent's tool.
func subAgentType(toolName string) string { return strings.TrimPrefix(toolName, agent.SubAgentPrefix) }

// newSubSession returns the session of a sub-agent. timeout is in milliseconds; 0 means no limit.
func newSubSession(c loop.OpenCall, timeout int64) *statev1.NewSubSession {
	return &statev1.NewSubSession{
		SessionId: c.SessionID, AgentType: c.SubAgent, ToolCallId: c.ID, TimeoutMs: timeout,
		Messages: []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{
			{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: clean(c.Message)}}},
		}}},
	}
}

// subAgentError describes the end of a failed sub-agent to the model.
func subAgentError(end *statev1.ChildEnd) string {
	f := end.GetFailure()
	return fmt.Sprintf("the sub-agent has failed: %s (%s)", cmp.Or(f.GetError(), "it has given no reason"), cmp.Or(f.GetCode(), "unclassified"))
}
