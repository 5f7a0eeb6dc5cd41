package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/step"
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
func (s subAgentCalls) usage(consumed []loop.Consumed) []*eventv1.UsageEntry {
	var entries []*eventv1.UsageEntry
	for _, c := range consumed {
		call, ok := s[c.CallID]
		if !ok {
			continue
		}
		entries = append(entries, &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_SubAgent{SubAgent: &eventv1.ToolUsage{
			ToolName:   subAgentType(call),
			Success:    call.GetAnswer().GetChild().GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED,
			DurationMs: max(0, call.GetAnsweredAt()-call.GetCreatedAt()),
		}}})
	}
	return entries
}

// ends returns the last chunks of a call: the end of its sub-agent, if any, and its own.
func (s subAgentCalls) ends(r *eventv1.ToolResultPart) []*eventv1.Chunk {
	call, ok := s[r.GetToolCallId()]
	if !ok {
		return []*eventv1.Chunk{step.ToolEnd(r)}
	}
	end := &eventv1.SubagentEnd{
		SubSessionId: cmp.Or(call.GetAnswer().GetChild().GetSessionId(), call.GetSubSessionId()), SubAgentType: subAgentType(call),
		ToolCallId: r.GetToolCallId(), Success: r.GetSuccess(),
	}
	return []*eventv1.Chunk{step.SubagentEnd(end, r), step.ToolEnd(r)}
}

// subAgentType returns the agent type of the sub-agent of an answered call. An answer without one is of an earlier
// version, or did not come from the sub-agent.
func subAgentType(call *statev1.Call) string {
	return cmp.Or(call.GetAnswer().GetChild().GetAgentType(), strings.TrimPrefix(call.GetToolName(), agent.SubAgentPrefix))
}

// subAgentAnswer returns the answer to a call: the output of the sub-agent, or the status and the output of the
// companion. It describes a failure to the model.
func subAgentAnswer(call *statev1.Call, end *statev1.ChildEnd) *loop.Answer {
	output := toJSON(end.GetOutput())
	switch {
	case end.GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED:
		f := end.GetFailure()
		return &loop.Answer{Error: fmt.Sprintf("the sub-agent has failed: %s (%s)",
			cmp.Or(f.GetError(), "it has given no reason"), cmp.Or(f.GetCode(), "unclassified"))}
	case strings.HasPrefix(call.GetToolName(), agent.CompanionPrefix):
		var in nameInput
		_ = json.Unmarshal([]byte(call.GetInput()), &in) // it has passed the tool's schema
		text, err := json.Marshal(companionState{Name: in.Name, Status: companionStatus(end.GetStatus()), Output: output})
		if err == nil { // always: the state service stores JSON only
			output = text
		}
	}
	return &loop.Answer{Result: output}
}
