package agent

import "encoding/json"

// Role says who speaks in a message.
type Role string

// MetadataInterrupted is the metadata key of an assistant message that was cut short:
// what came of a reply before its run was stopped. Its value is the kind of the
// stop: interrupt, abort or deadline.
const MetadataInterrupted = "interrupted"

// MetadataFailed is the metadata key of an assistant message that holds what came of a
// reply before its model call failed for good. Its value is the code of the failure,
// "error" where the failure has none. Readers see the message; no model is sent it.
const MetadataFailed = "failed"

// The roles of a conversation.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleSystem    Role = "system"
	// RoleContext is a fact appended for the model, never shown to users.
	RoleContext Role = "context"
)

// Message is one entry of a conversation.
type Message struct {
	// ID is unique in its session.
	ID       string
	Role     Role
	Parts    []Part
	Metadata map[string]string
	// Hidden messages are for the model only.
	Hidden bool
}

// Part is one piece of a message: Text, Reasoning, ToolCall, ToolResult or File.
type Part interface{ isPart() }

// Text is plain text.
type Text struct{ Text string }

// Reasoning is what the model thought before it answered.
type Reasoning struct {
	Text string
	// ProviderData goes back to the provider unchanged with the next request:
	// a signature, an encrypted block. Nil when it wants nothing.
	ProviderData json.RawMessage
}

// ToolCall is a call that the model made, in an assistant message.
type ToolCall struct {
	// ID is unique in its session.
	ID   string
	Name string
	// Arguments is one JSON value. Text that was not JSON is a JSON string.
	Arguments json.RawMessage
	// Dynamic is that of the tool when the call was made.
	Dynamic bool
}

// ToolResult is the answer to a call, in a tool message.
type ToolResult struct {
	CallID string
	Name   string
	// Result is one JSON value; nil when the call failed without one.
	Result  json.RawMessage
	Success bool
	// Error is why the call failed, for the model and for people.
	Error string
	// Synthetic results were written by the runtime, not by the tool.
	Synthetic bool
}

// File is a file or an image.
type File struct {
	MediaType string
	// URL is a data: or https: URL.
	URL      string
	Filename string
}

func (Text) isPart()       {}
func (Reasoning) isPart()  {}
func (ToolCall) isPart()   {}
func (ToolResult) isPart() {}
func (File) isPart()       {}

// Text gives the text parts of the message, joined.
func (m Message) Text() string {
	var text string
	for _, p := range m.Parts {
		if t, ok := p.(Text); ok {
			text += t.Text
		}
	}
	return text
}

// Calls gives the tool calls of the message in their order.
func (m Message) Calls() []ToolCall {
	var calls []ToolCall
	for _, p := range m.Parts {
		if c, ok := p.(ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// Results gives the tool results of the message in their order.
func (m Message) Results() []ToolResult {
	var results []ToolResult
	for _, p := range m.Parts {
		if r, ok := p.(ToolResult); ok {
			results = append(results, r)
		}
	}
	return results
}
