// Package agent is the agent of every runtime. Its scripted model answers at once, and each step but the last
// calls one tool.
package agent

import (
	"encoding/json"
	"fmt"
)

// Steps is the number of model calls in a run.
const Steps = 20

// Final is the model's answer in the last step.
const Final = "That is all."

// Message is a message of the conversation as stored by a runtime.
type Message struct {
	ID   string `json:"id"`
	Role string `json:"role"` // user, assistant or tool
	Text string `json:"text,omitempty"`
	Call *Call  `json:"call,omitempty"` // nil in the last answer
	// For a tool: the answered call and its result.
	CallID string          `json:"callId,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Call is a tool call of the model.
type Call struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Chunk is a piece of a running step for readers.
type Chunk struct {
	Type    string   `json:"type"`
	Step    int      `json:"step"`
	Message *Message `json:"message,omitempty"`
	Call    *Call    `json:"call,omitempty"`
}

// Ask returns the first message of a run.
func Ask() Message { return Message{ID: "user-1", Role: "user", Text: "Go on."} }

// Model returns the model's answer in a step, counted from 1.
func Model(step int) Message {
	m := Message{ID: fmt.Sprint("assistant-", step), Role: "assistant"}
	if step == Steps {
		m.Text = Final
		return m
	}
	m.Call = &Call{ID: fmt.Sprint("call-", step), Name: "calculate", Arguments: json.RawMessage(`{"expression":"6 * 7"}`)}
	return m
}

// Tool runs a call of the model.
func Tool(step int, call Call) (Message, error) {
	var in struct{ Expression string }
	if err := json.Unmarshal(call.Arguments, &in); err != nil {
		return Message{}, fmt.Errorf("arguments of %s: %w", call.ID, err)
	}
	var a, b int
	if _, err := fmt.Sscanf(in.Expression, "%d * %d", &a, &b); err != nil {
		return Message{}, fmt.Errorf("expression of %s: %w", call.ID, err)
	}
	return Message{
		ID: fmt.Sprint("tool-", step), Role: "tool", CallID: call.ID,
		Result: json.RawMessage(fmt.Sprintf(`{"result":%d}`, a*b)),
	}, nil
}

// Chunks returns a step's chunks: its start, the text or the call, the result, and its end. A step with a call
// has five.
func Chunks(step int, answer Message, result *Message) []Chunk {
	chunks := []Chunk{{Type: "step-start", Step: step}}
	if answer.Call != nil {
		chunks = append(chunks,
			Chunk{Type: "tool-start", Step: step, Call: &Call{ID: answer.Call.ID, Name: answer.Call.Name}},
			Chunk{Type: "tool-input", Step: step, Call: answer.Call},
			Chunk{Type: "tool-result", Step: step, Message: result})
	} else {
		chunks = append(chunks, Chunk{Type: "text", Step: step, Message: &answer})
	}
	return append(chunks, Chunk{Type: "step-end", Step: step})
}
