package agent

import (
	"encoding/json"
	"strings"
)

// Role is the author of a message.
type Role string

// MetadataInterrupted is a metadata key of an assistant message whose run was stopped before the
// reply was complete. Its value is the kind of the stop: interrupt, abort or deadline.
const MetadataInterrupted = "interrupted"

// MetadataFailed is a metadata key of an assistant message whose model call failed permanently before
// the reply was complete. Its value is the code of the failure, or "error". The message is shown to
// readers and not sent to models.
const MetadataFailed = "failed"

// Roles of messages.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
	RoleSystem    Role = "system"
	// RoleContext is information for the model that users do not see.
	RoleContext Role = "context"
)

// Message is a message of a conversation.
type Message struct {
	// ID is unique in the session.
	ID       string
	Role     Role
	Parts    []Part
	Metadata map[string]string
	// Hidden messages are sent to the model and not shown to users.
	Hidden bool
}

// Part is a part of a message: Text, Reasoning, ToolCall, ToolResult or File.
type Part interface{ isPart() }

// Text is plain text.
type Text struct{ Text string }

// Reasoning is the reasoning of a model before its answer.
type Reasoning struct {
	Text string
	// ProviderData is sent back to the provider unchanged with the next request, for example a
	// signature. It may be nil.
	ProviderData json.RawMessage
}

// ToolCall is a tool call of the model, in an assistant message.
type ToolCall struct {
	// ID is unique in the session.
	ID   string
	Name string
	// Arguments is a JSON value. Invalid JSON from the model is a JSON string here.
	Arguments json.RawMessage
	// Dynamic is Tool.Dynamic at the time of the call.
	Dynamic bool
}

// ToolResult is the result of a call, in a tool message.
type ToolResult struct {
	CallID string
	Name   string
	// Result is a JSON value. It may be nil if the call failed.
	Result  json.RawMessage
	Success bool
	// Error is why the call failed, for the model, and for users unless PublicError replaces it.
	Error       string
	PublicError string
	// Synthetic reports that the runtime wrote the result, not the tool.
	Synthetic bool
}

// File is a file or an image.
type File struct {
	MediaType string
	// URL is a data: or https: URL, or refers to a stored file: holdfast-file: and an id. Models get the bytes of
	// stored files.
	URL      string
	Filename string
}

func (Text) isPart()       {}
func (Reasoning) isPart()  {}
func (ToolCall) isPart()   {}
func (ToolResult) isPart() {}
func (File) isPart()       {}

// Text returns the text parts of the message, joined.
func (m Message) Text() string {
	var text strings.Builder
	for _, p := range m.Parts {
		if t, ok := p.(Text); ok {
			text.WriteString(t.Text)
		}
	}
	return text.String()
}

// Calls returns the tool calls of the message in order.
func (m Message) Calls() []ToolCall {
	var calls []ToolCall
	for _, p := range m.Parts {
		if c, ok := p.(ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}

// Results returns the tool results of the message in order.
func (m Message) Results() []ToolResult {
	var results []ToolResult
	for _, p := range m.Parts {
		if r, ok := p.(ToolResult); ok {
			results = append(results, r)
		}
	}
	return results
}
