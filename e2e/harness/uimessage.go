package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// UIMessage is a message as the AI SDK knows it.
type UIMessage struct {
	ID    string   `json:"id"`
	Role  string   `json:"role"`
	Parts []UIPart `json:"parts"`
}

// UIPart is one part of a UIMessage: text, reasoning, step-start, tool-<name>,
// dynamic-tool or data-<name>.
type UIPart struct {
	Type       string          `json:"type"`
	Text       string          `json:"text,omitempty"`
	State      string          `json:"state,omitempty"`
	ToolName   string          `json:"toolName,omitempty"`
	ToolCallID string          `json:"toolCallId,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	RawInput   json.RawMessage `json:"rawInput,omitempty"` // in the place of Input where a call was refused; before version 7
	Output     json.RawMessage `json:"output,omitempty"`
	ErrorText  string          `json:"errorText,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`     // of a part data-NAME
	Approval   *UIApproval     `json:"approval,omitempty"` // nil where nobody was asked
}

// UIApproval is a question whether a call may be made, and its answer.
type UIApproval struct {
	ID       string `json:"id"`
	Approved *bool  `json:"approved,omitempty"` // nil while it is open
	Reason   string `json:"reason,omitempty"`
}

// Tool returns the name of the part's tool; empty when it is no tool part.
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

// Content writes down what a reader of the message learns, one part a line, in
// a form in which two messages with the same content are the same string: ids,
// which differ from run to run, and step boundaries are left out.
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

// Text returns the message's text parts, joined.
func (m UIMessage) Text() string {
	var text string
	for _, p := range m.Parts {
		if p.Type == "text" {
			text += p.Text
		}
	}
	return text
}

// Transcript writes down a conversation for comparisons and failures.
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
