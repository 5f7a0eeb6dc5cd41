package uistream

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// Part is a part of a UI message stream. Fields of other types are zero and omitted from its JSON:
// clients reject null and, in some versions, unknown keys. Only the constructors below make parts.
type Part struct {
	Type           string          `json:"type"`
	MessageID      string          `json:"messageId,omitempty"`
	ID             string          `json:"id,omitempty"`
	Delta          string          `json:"delta,omitempty"`
	ToolCallID     string          `json:"toolCallId,omitempty"`
	ToolName       string          `json:"toolName,omitempty"`
	Dynamic        bool            `json:"dynamic,omitempty"`
	ApprovalID     string          `json:"approvalId,omitempty"`
	Approved       *bool           `json:"approved,omitempty"`
	Reason         string          `json:"reason,omitempty"`
	InputTextDelta string          `json:"inputTextDelta,omitempty"`
	Input          json.RawMessage `json:"input,omitempty"`
	Output         json.RawMessage `json:"output,omitempty"`
	Data           json.RawMessage `json:"data,omitempty"`
	Transient      bool            `json:"transient,omitempty"`
	ErrorText      string          `json:"errorText,omitempty"`
	FinishReason   string          `json:"finishReason,omitempty"`
	Metadata       *Metadata       `json:"messageMetadata,omitempty"`
}

// Append appends the part's JSON to b, on one line.
func (p Part) Append(b []byte) ([]byte, error) {
	buffer := bytes.NewBuffer(b)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false) // the JSON is data of a stream, never markup
	if err := encoder.Encode(p); err != nil {
		return b, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// Error returns the part that fails the client's message. The user sees the text unchanged.
func Error(text string) Part {
	if text == "" {
		text = failedText
	}
	return Part{Type: "error", ErrorText: text}
}

const (
	failedText     = "The run failed."
	toolFailedText = "The tool failed."
)

func startStep() Part                       { return Part{Type: "start-step"} }
func finishStep() Part                      { return Part{Type: "finish-step"} }
func resetStep() Part                       { return Part{Type: "reset-step"} }
func blockStart(kind, id string) Part       { return Part{Type: kind + "-start", ID: id} }
func blockDelta(kind, id, text string) Part { return Part{Type: kind + "-delta", ID: id, Delta: text} }
func blockEnd(kind, id string) Part         { return Part{Type: kind + "-end", ID: id} }

func start(messageID string, m *Metadata) Part {
	return Part{Type: "start", MessageID: messageID, Metadata: m}
}

func finish(reason string, m *Metadata) Part {
	return Part{Type: "finish", FinishReason: reason, Metadata: m}
}

func metadata(m Metadata) Part { return Part{Type: "message-metadata", Metadata: &m} }

func toolInputStart(call string, t tool) Part {
	return Part{Type: "tool-input-start", ToolCallID: call, ToolName: t.name, Dynamic: t.dynamic}
}

func toolInputDelta(call, text string) Part {
	return Part{Type: "tool-input-delta", ToolCallID: call, InputTextDelta: text}
}

func toolInputAvailable(call string, t tool, arguments string) Part {
	return Part{Type: "tool-input-available", ToolCallID: call, ToolName: t.name, Dynamic: t.dynamic, Input: jsonValue(arguments, "{}")}
}

func toolInputError(call string, t tool, input json.RawMessage, reason string) Part {
	return Part{
		Type: "tool-input-error", ToolCallID: call, ToolName: t.name, Dynamic: t.dynamic, Input: input, ErrorText: cmp.Or(reason, toolFailedText),
	}
}

func toolOutput(call string, dynamic bool, a Answer) Part {
	if !a.Success {
		return Part{Type: "tool-output-error", ToolCallID: call, Dynamic: dynamic, ErrorText: cmp.Or(a.Error, toolFailedText)}
	}
	return Part{Type: "tool-output-available", ToolCallID: call, Dynamic: dynamic, Output: jsonValue(a.Result, "null")}
}

func toolDenied(call string) Part { return Part{Type: "tool-output-denied", ToolCallID: call} }

func approvalRequest(call, id string) Part {
	return Part{Type: "tool-approval-request", ToolCallID: call, ApprovalID: id}
}

func approvalResponse(id string, approved bool, reason string) Part {
	return Part{Type: "tool-approval-response", ApprovalID: id, Approved: &approved, Reason: reason}
}

// finishReasons are the reasons that versions 5, 6 and 7 of the client accept.
var finishReasons = map[string]bool{
	"stop": true, "length": true, "content-filter": true, "tool-calls": true, "error": true, "other": true,
}
