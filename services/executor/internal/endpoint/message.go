package endpoint

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// message is a message of a conversation on the wire.
type message struct {
	ID       string            `json:"id"`
	Role     agent.Role        `json:"role"`
	Parts    []any             `json:"parts"`
	Metadata map[string]string `json:"metadata"`
}

// toolCall is a call of a tool, by itself or as a part of a message.
type toolCall struct {
	Type      string          `json:"type,omitempty"`
	CallID    string          `json:"callId"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// toolResult is the result of a call, by itself or as a part of a message.
type toolResult struct {
	Type    string          `json:"type,omitempty"`
	CallID  string          `json:"callId"`
	Name    string          `json:"name"`
	Success bool            `json:"success"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func messagesOf(messages []agent.Message) []message {
	list := make([]message, len(messages))
	for i, m := range messages {
		list[i] = messageOf(m)
	}
	return list
}

func messageOf(m agent.Message) message {
	out := message{ID: m.ID, Role: m.Role, Parts: []any{}, Metadata: m.Metadata}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	for _, p := range m.Parts {
		switch p := p.(type) {
		case agent.Text:
			out.Parts = append(out.Parts, map[string]string{"type": "text", "text": p.Text})
		case agent.Reasoning:
			out.Parts = append(out.Parts, map[string]string{"type": "reasoning", "text": p.Text})
		case agent.ToolCall:
			call := callOf(p)
			call.Type = "tool-call"
			out.Parts = append(out.Parts, call)
		case agent.ToolResult:
			result := resultOf(p)
			result.Type = "tool-result"
			out.Parts = append(out.Parts, result)
		case agent.File:
			out.Parts = append(out.Parts, map[string]string{"type": "file", "mediaType": p.MediaType, "url": p.URL, "filename": p.Filename})
		}
	}
	return out
}

func callOf(c agent.ToolCall) toolCall {
	return toolCall{CallID: c.ID, Name: c.Name, Arguments: c.Arguments}
}

// subAgent is the sub-agent of a call.
type subAgent struct {
	AgentType string `json:"agentType"`
	SessionID string `json:"sessionId"`
}

func subAgentOf(c agent.SubAgentCall) subAgent {
	return subAgent{AgentType: c.AgentType, SessionID: c.SessionID}
}

func resultOf(r agent.ToolResult) toolResult {
	return toolResult{CallID: r.CallID, Name: r.Name, Success: r.Success, Result: r.Result, Error: r.Error}
}

func resultsOf(results []agent.ToolResult) []toolResult {
	list := make([]toolResult, len(results))
	for i, r := range results {
		list[i] = resultOf(r)
	}
	return list
}

func opsOf(ops []agent.Op) []op {
	list := make([]op, len(ops))
	for i, o := range ops {
		list[i] = op{Op: o.Kind, Key: o.Key, Value: o.Value}
	}
	return list
}
