package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// UIMessage is a message in the AI SDK's form.
type UIMessage struct {
	ID    string   `json:"id"`
	Role  string   `json:"role"`
	Parts []UIPart `json:"parts"`
}

// UIPart is one part of a UIMessage: text, reasoning, step-start, tool-<name>, dynamic-tool or data-<name>.
type UIPart struct {
	Type       string          `json:"type"`
	ID         string          `json:"id,omitempty"` // of a part data-NAME
	Text       string          `json:"text,omitempty"`
	State      string          `json:"state,omitempty"`
	ToolName   string          `json:"toolName,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"` // replaces Input for a refused call; before version 7
	Output     json.RawMessage `json:"output,omitempty"`
	ErrorText  string          `json:"errorText,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`     // of a part data-NAME
	Approval   *UIApproval     `json:"approval,omitempty"` // nil without an approval request
}

// UIApproval is an approval request and its answer.
type UIApproval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"` // nil while it is open
	Reason   string `json:"reason,omitempty"`
}

// Tool returns the tool's name, or "" for another kind of part.
func (p UIPart) Tool() string {
	if p.Type == "dynamic-tool" {
		return p.ToolName
	}
	name, _ := strings.CutPrefix(p.Type, "tool-")
	if name == p.Type {
		return ""
	}
	return name
}

func (p UIPart) input() json.RawMessage {
	if len(p.Input) == 0 {
		return p.RawInput
	}
	return p.Input
}

// Content describes the content of the message, one part per line. Messages with the same content have equal
// descriptions: run-specific ids and step boundaries are left out.
func (m UIMessage) Content() string {
	var b strings.Builder
	for _, p := range m.Parts {
		switch tool := p.Tool(); {
		case tool != "":
			fmt.Fprintf(&b, "%s%s %s %s%s\n", tool, compact(p.input()), p.State, compact(p.Output), p.ErrorText)
		case p.Type == "step-start":
		case p.Type == "text" || p.Type == "reasoning":
			fmt.Fprintf(&b, "%s %q\n", p.Type, p.Text)
		default:
			fmt.Fprintf(&b, "%s\n", p.Type)
		}
	}
	return b.String()
}

// Text returns the joined text parts.
func (m UIMessage) Text() string {
	var text string
	for _, p := range m.Parts {
		if p.Type == "text" {
			text += p.Text
		}
	}
	return text
}

// Transcript describes a conversation for comparisons and failures.
func Transcript(messages []UIMessage) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s:\n", m.Role)
		for line := range strings.Lines(m.Content()) {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}

func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}
