package uistream

import (
	"encoding/json"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Values of the status of a sub-agent. A sub-agent that waits is running. An interrupted one goes on when it or its root is
// resumed.
const (
	SubAgentRunning     = "running"
	SubAgentCompleted   = "completed"
	SubAgentFailed      = "failed"
	SubAgentInterrupted = "interrupted"
)

// subAgentPart is the type of the data part of a sub-agent. It has the id of the call, so the end replaces the begin.
const subAgentPart = "data-subagent"

// subAgent is the data of a sub-agent. Only completed sub-agents called by the root have a result.
type subAgent struct {
	ToolCallID      string          `json:"toolCallId"`
	SessionID       string          `json:"sessionId,omitempty"`
	ParentSessionID string          `json:"parentSessionId,omitempty"` // the calling session, unless it is the root
	AgentType       string          `json:"agentType"`
	Status          string          `json:"status"`
	Result          json.RawMessage `json:"result,omitempty"`
}

func (s subAgent) part() Part { return jsonData("subagent", s.ToolCallID, s) }

func subAgentOf(c *eventv1.Chunk) subAgent {
	if end := c.GetSubagentEnd(); end != nil {
		s := subAgent{
			ToolCallID: end.GetToolCallId(), SessionID: end.GetSubSessionId(), AgentType: end.GetSubAgentType(), Status: SubAgentFailed,
		}
		if end.GetSuccess() {
			s.Status = SubAgentCompleted
			s.Result = jsonValue(end.GetResult(), "null")
		}
		return s
	}
	begin := c.GetSubagentStart()
	return subAgent{
		ToolCallID: begin.GetToolCallId(), SessionID: begin.GetSubSessionId(), AgentType: begin.GetSubAgentType(), Status: SubAgentRunning,
	}
}

// endSubAgent ends the sub-agent of a call in the data part that shows it at work.
func (m *UIMessage) endSubAgent(r *eventv1.ToolResultPart) {
	at := slices.IndexFunc(m.Parts, func(p UIPart) bool { return p.Type == subAgentPart && p.ID == r.GetToolCallId() })
	if at < 0 {
		return
	}
	var s subAgent
	if err := json.Unmarshal(m.Parts[at].Data, &s); err != nil { // it was marshalled here
		return
	}
	s.Status = SubAgentFailed
	if r.GetSuccess() {
		s.Status, s.Result = SubAgentCompleted, jsonValue(r.GetResult(), "null")
	}
	m.Parts[at].Data = s.part().Data
}

// Descendant is a sub-agent called by another sub-agent, or an interrupted one of the root.
type Descendant struct {
	RootCallID      string // the call of the root for the sub-agent above it
	ParentSessionID string // the calling session; empty for the root
	CallID          string
	SessionID       string
	AgentType       string
	Status          string
}

// DescendantOf returns the sub-agent that begins or ends with a chunk of the session.
func DescendantOf(session string, c *eventv1.Chunk) Descendant {
	s := subAgentOf(c)
	return Descendant{ParentSessionID: session, CallID: s.ToolCallID, SessionID: s.SessionID, AgentType: s.AgentType, Status: s.Status}
}

// Part returns the data part of the sub-agent.
func (d Descendant) Part() Part {
	s := subAgent{ToolCallID: d.CallID, SessionID: d.SessionID, ParentSessionID: d.ParentSessionID, AgentType: d.AgentType, Status: d.Status}
	return s.part()
}

// SubAgentCalls returns the calls of sub-agents in the messages.
func SubAgentCalls(messages []UIMessage) map[string]bool {
	calls := map[string]bool{}
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == subAgentPart {
				calls[p.ID] = true
			}
		}
	}
	return calls
}

// ShowDescendants adds each sub-agent behind the root's sub-agent above it. Those of the root have a part already.
func ShowDescendants(messages []UIMessage, list []Descendant) {
	added := map[string]int{} // by the root's call
	for _, d := range list {
		for i := range messages {
			m := &messages[i]
			at := slices.IndexFunc(m.Parts, func(p UIPart) bool { return p.Type == subAgentPart && p.ID == d.RootCallID })
			if at < 0 {
				continue
			}
			if d.ParentSessionID == "" {
				m.Parts[at].Data = d.Part().Data
				continue
			}
			added[d.RootCallID]++
			m.Parts = slices.Insert(m.Parts, at+added[d.RootCallID], UIPart{Type: subAgentPart, ID: d.CallID, Data: d.Part().Data})
		}
	}
}
