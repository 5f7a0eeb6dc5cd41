package harness

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// UIStream is an answer in the AI SDK's UI message stream. It assembles the message by the rules of the SDK and
// fails the test where the SDK would refuse a chunk.
type UIStream struct {
	Message UIMessage
	// Finished is set by a finish part, Done by [DONE].
	Finished, Done bool
	// ErrorText is the text of an error part.
	ErrorText string

	t         testing.TB
	events    *Events
	lastID    string            // the last event id
	continues bool              // start continues a message known to the client
	inputs    map[string]string // partial inputs by call id
}

// uiChunk has the fields of all chunk types of the gateway.
type uiChunk struct {
	Type           string          `json:"type"`
	ID             string          `json:"id"`
	MessageID      string          `json:"messageId"`
	Delta          string          `json:"delta"`
	ToolCallID     string          `json:"toolCallId"`
	ToolName       string          `json:"toolName"`
	ApprovalID     string          `json:"approvalId"`
	Approved       *bool           `json:"approved"`
	Reason         string          `json:"reason"`
	InputTextDelta string          `json:"inputTextDelta"`
	Input          json.RawMessage `json:"input"`
	Output         json.RawMessage `json:"output"`
	ErrorText      string          `json:"errorText"`
	Dynamic        bool            `json:"dynamic"`
	Transient      bool            `json:"transient"`
	Data           json.RawMessage `json:"data"`
}

// Next reads one event and adds it to the message. It returns io.EOF at the end of the body, ErrDropped if the
// connection breaks, and another error where the SDK would refuse the event.
func (s *UIStream) Next() error {
	e, err := s.events.Next()
	switch {
	case err != nil:
		return err
	case s.Done:
		return fmt.Errorf("%s after [DONE]", e.Data)
	case e.Data == "[DONE]":
		s.Done = true
		return nil
	}
	if e.ID != "" {
		s.lastID = e.ID
	}
	var c uiChunk
	if err := json.Unmarshal([]byte(e.Data), &c); err != nil {
		return fmt.Errorf("the chunk %q is not JSON: %w", e.Data, err)
	}
	if err := s.apply(c); err != nil {
		return fmt.Errorf("the chunk %s: %w", e.Data, err)
	}
	return nil
}

// Rest reads to the end of the body. Its errors are those of Next.
func (s *UIStream) Rest() error {
	var err error
	for err == nil {
		err = s.Next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Complete returns an error about the missing parts of an answer, or nil.
func (s *UIStream) Complete() error {
	if !s.Finished || !s.Done || s.ErrorText != "" {
		return fmt.Errorf(
			"the stream ended with finish=%v [DONE]=%v error=%q, want finish and [DONE] and no error",
			s.Finished,
			s.Done,
			s.ErrorText,
		)
	}
	return nil
}

// Until reads until accept takes the message. It fails the test if the stream ends first.
func (s *UIStream) Until(what string, accept func(UIMessage) bool) {
	s.t.Helper()
	for !accept(s.Message) {
		if err := s.Next(); err != nil {
			s.t.Fatalf("the stream ended (%v) before %s\n%s", err, what, s.Dump())
		}
	}
}

// UntilText reads until the message has that many bytes of text.
func (s *UIStream) UntilText(bytes int) {
	s.t.Helper()
	s.Until(fmt.Sprintf("%d bytes of text", bytes), func(m UIMessage) bool { return len(m.Text()) >= bytes })
}

// ReadAll reads to the end and returns the message. It fails the test if the answer is incomplete.
func (s *UIStream) ReadAll() UIMessage {
	s.t.Helper()
	err := s.Rest()
	if err == nil {
		err = s.Complete()
	}
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.Dump())
	}
	return s.Message
}

// Close disconnects before the end.
func (s *UIStream) Close() { s.events.Close() }

// Dump prints the stream so far, for failure messages.
func (s *UIStream) Dump() string { return "the stream held\n" + show(s.events.Seen) }

// Holds reports whether a received frame has the text.
func (s *UIStream) Holds(text string) bool { return holds(s.events.Seen, text) }

func (s *UIStream) apply(c uiChunk) error {
	m := &s.Message
	switch c.Type {
	case "start":
		if s.continues {
			m.ID = c.MessageID
			return nil
		}
		*m = UIMessage{ID: c.MessageID, Role: "assistant"} // a second start begins the message again
	case "start-step":
		m.Parts = append(m.Parts, UIPart{Type: "step-start"})
	case "reset-step":
		return s.resetStep()
	case "finish-step", "message-metadata", "abort":
	case "text-start":
		m.Parts = append(m.Parts, UIPart{Type: "text", State: "streaming", ToolCallID: c.ID})
	case "reasoning-start":
		m.Parts = append(m.Parts, UIPart{Type: "reasoning", State: "streaming", ToolCallID: c.ID})
	case "text-delta", "text-end", "reasoning-delta", "reasoning-end":
		return s.block(c)
	case "tool-input-start", "tool-input-available", "tool-input-error":
		s.call(c)
	case "tool-input-delta":
		return s.input(c)
	case "tool-output-available", "tool-output-error", "tool-output-denied", "tool-approval-request":
		return s.outcome(c)
	case "tool-approval-response":
		return s.decision(c)
	case "finish":
		s.Finished = true
	case "error":
		s.ErrorText = c.ErrorText
	default:
		if !strings.HasPrefix(c.Type, "data-") {
			return errors.New("the type is unknown to the SDK")
		}
		if !c.Transient {
			m.putData(UIPart{Type: c.Type, ID: c.ID, Data: c.Data})
		}
	}
	return nil
}

// putData adds a data part, or replaces the one with its id.
func (m *UIMessage) putData(p UIPart) {
	at := slices.IndexFunc(m.Parts, func(other UIPart) bool { return p.ID != "" && other.Type == p.Type && other.ID == p.ID })
	if at < 0 {
		m.Parts = append(m.Parts, p)
		return
	}
	m.Parts[at] = p
}

func (s *UIStream) resetStep() error {
	for i := len(s.Message.Parts) - 1; i >= 0; i-- {
		if s.Message.Parts[i].Type == "step-start" {
			s.Message.Parts = s.Message.Parts[:i+1]
			return nil
		}
	}
	s.Message.Parts = nil
	return nil
}

// block continues a text or reasoning block. An open block is found by its id.
func (s *UIStream) block(c uiChunk) error {
	kind, event, _ := strings.Cut(c.Type, "-")
	for i := range s.Message.Parts {
		p := &s.Message.Parts[i]
		if p.Type != kind || p.State != "streaming" || p.ToolCallID != c.ID {
			continue
		}
		p.Text += c.Delta
		if event == "end" {
			p.State, p.ToolCallID = "done", ""
		}
		return nil
	}
	return fmt.Errorf("no %s %q is open", kind, c.ID)
}

// call begins a call, or continues it within the same step.
func (s *UIStream) call(c uiChunk) {
	p := toolIn(s.step(), c.ToolCallID)
	if p == nil {
		s.Message.Parts = append(s.Message.Parts, UIPart{Type: "tool-" + c.ToolName, ToolCallID: c.ToolCallID})
		p = &s.Message.Parts[len(s.Message.Parts)-1]
		if c.Dynamic {
			p.Type, p.ToolName = "dynamic-tool", c.ToolName
		}
	}
	switch c.Type {
	case "tool-input-available":
		p.State, p.Input = "input-available", c.Input
	case "tool-input-error":
		p.State, p.Input, p.Output, p.ErrorText = "output-error", c.Input, nil, c.ErrorText
	default:
		p.State = "input-streaming"
	}
	if s.inputs == nil {
		s.inputs = map[string]string{}
	}
	s.inputs[c.ToolCallID] = ""
}

// input adds a piece to the input of a call. The input is set once it is complete.
func (s *UIStream) input(c uiChunk) error {
	text, begun := s.inputs[c.ToolCallID]
	p := toolIn(s.step(), c.ToolCallID)
	if !begun || p == nil {
		return fmt.Errorf("no call %q was begun in this step", c.ToolCallID)
	}
	text += c.InputTextDelta
	s.inputs[c.ToolCallID] = text
	if json.Valid([]byte(text)) {
		p.Input = json.RawMessage(text)
	}
	return nil
}

// outcome sets the outcome of a call anywhere in the message.
func (s *UIStream) outcome(c uiChunk) error {
	p := toolIn(s.step(), c.ToolCallID)
	if p == nil {
		p = toolIn(s.Message.Parts, c.ToolCallID)
	}
	if p == nil {
		return fmt.Errorf("no call %q was made", c.ToolCallID)
	}
	switch c.Type {
	case "tool-output-available":
		p.State, p.Output, p.ErrorText = "output-available", c.Output, ""
	case "tool-output-error":
		p.State, p.Output, p.ErrorText = "output-error", nil, c.ErrorText
	case "tool-output-denied":
		p.State = "output-denied"
	case "tool-approval-request":
		p.State, p.Approval = "approval-requested", &UIApproval{ID: c.ApprovalID}
	}
	return nil
}

// decision sets the answer to an approval request.
func (s *UIStream) decision(c uiChunk) error {
	for i := range s.Message.Parts {
		p := &s.Message.Parts[i]
		if p.Approval == nil || p.Approval.ID != c.ApprovalID {
			continue
		}
		p.State = "approval-responded"
		p.Approval = &UIApproval{ID: c.ApprovalID, Approved: c.Approved, Reason: c.Reason}
		return nil
	}
	return fmt.Errorf("no approval %q was asked for", c.ApprovalID)
}

// step returns the parts after the last step-start.
func (s *UIStream) step() []UIPart {
	parts := s.Message.Parts
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].Type == "step-start" {
			return parts[i+1:]
		}
	}
	return parts
}

func toolIn(parts []UIPart, id string) *UIPart {
	for i := range parts {
		if p := &parts[i]; p.Tool() != "" && p.ToolCallID == id {
			return p
		}
	}
	return nil
}
