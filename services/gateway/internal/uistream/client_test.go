package uistream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// client assembles a message like the package ai (version 7.0.173, processUIMessageStream), and
// refuses the parts that its version refuses.
type client struct {
	major    uistream.Major
	id       string
	parts    []*part
	open     map[string]*part
	inputs   map[string]*strings.Builder
	metadata *uistream.Metadata
	ran      []string // calls with an onToolCall
	replay   bool     // the next start begins the message again
	finished bool
	failed   string
}

// part is a part of the message. The client keeps the text of an input received in deltas.
type part struct {
	uistream.UIPart
	RawInput string `json:"rawInput,omitempty"`
}

func newClient(major uistream.Major) *client {
	c := &client{major: major}
	c.connect(true)
	return c
}

// connect begins another response: to a POST, or a replay.
func (c *client) connect(replay bool) {
	c.replay, c.finished = replay, false
	c.resetOpen()
}

func (c *client) take(text []byte) error {
	if bytes.ContainsAny(text, "\n\r") {
		return fmt.Errorf("more than one line")
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if err := check(c.major, raw); err != nil {
		return err
	}
	var p uistream.Part
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if c.finished || c.failed != "" {
		return fmt.Errorf("a part after the end")
	}
	return c.assemble(p)
}

func (c *client) assemble(p uistream.Part) error {
	if q := c.call(p.ToolCallID); q != nil && carriesDynamic[p.Type] && p.Dynamic != (q.Type == "dynamic-tool") {
		return fmt.Errorf("the call is known as %s", q.Type) // version 5 searches among calls of its kind
	}
	switch p.Type {
	case "start":
		return c.start(p)
	case "start-step":
		c.add(&part{UIPart: uistream.UIPart{Type: "step-start"}})
	case "finish-step":
	case "reset-step":
		c.parts = c.parts[:c.stepBegin()]
		c.resetOpen()
	case "text-start", "reasoning-start":
		c.open[p.ID] = c.add(&part{UIPart: uistream.UIPart{Type: strings.TrimSuffix(p.Type, "-start"), State: "streaming"}})
	case "text-delta", "reasoning-delta", "text-end", "reasoning-end":
		return c.grow(p)
	case "finish":
		return c.finish(p)
	case "message-metadata":
		c.describe(p.Metadata)
	case "error":
		c.failed = p.ErrorText
	case "tool-input-start":
		c.inputs[p.ToolCallID] = &strings.Builder{}
		c.update(c.current(p), p, part{UIPart: uistream.UIPart{State: "input-streaming"}})
	case "tool-input-available":
		c.ran = append(c.ran, p.ToolCallID)
		c.update(c.current(p), p, part{UIPart: uistream.UIPart{State: "input-available", Input: p.Input}})
	case "tool-input-error":
		known := part{UIPart: uistream.UIPart{State: "output-error", Input: p.Input, ErrorText: p.ErrorText}}
		if c.major < 7 {
			known.Input, known.RawInput = nil, string(p.Input)
		}
		c.update(c.current(p), p, known)
	case "tool-approval-response":
		return c.responded(p)
	default:
		if p.ToolCallID != "" {
			return c.assembleCall(p)
		}
		c.takeData(p)
	}
	return nil
}

// carriesDynamic are the part types with the key "dynamic".
var carriesDynamic = map[string]bool{
	"tool-input-start": true, "tool-input-available": true, "tool-input-error": true, "tool-output-available": true, "tool-output-error": true,
}

func (c *client) start(p uistream.Part) error {
	if c.replay {
		c.parts, c.metadata, c.replay = nil, nil, false
	} else if p.MessageID != c.id {
		return fmt.Errorf("the message goes on as %s, and was %s", p.MessageID, c.id)
	}
	c.id = p.MessageID
	c.describe(p.Metadata)
	return nil
}

func (c *client) finish(p uistream.Part) error {
	c.finished = true
	c.describe(p.Metadata)
	known := slices.Contains(commonReasons, p.FinishReason)
	if !known && (c.major > 5 || p.FinishReason != "") && (c.major < 7 || p.FinishReason != "interrupted") {
		return fmt.Errorf("finish reason")
	}
	return nil
}

func (c *client) describe(m *uistream.Metadata) {
	if m == nil {
		return
	}
	merged := uistream.Metadata{}
	if c.metadata != nil {
		merged = *c.metadata
	}
	text, err := json.Marshal(m)
	if err != nil || json.Unmarshal(text, &merged) != nil { // keys of m replace existing keys
		panic("metadata that is none")
	}
	c.metadata = &merged
}

func (c *client) resetOpen() {
	c.open, c.inputs = map[string]*part{}, map[string]*strings.Builder{}
}

func (c *client) add(p *part) *part {
	c.parts = append(c.parts, p)
	return p
}

func (c *client) stepBegin() int {
	for i := len(c.parts); i > 0; i-- {
		if c.parts[i-1].Type == "step-start" {
			return i
		}
	}
	return 0
}

func (c *client) grow(p uistream.Part) error {
	open := c.open[p.ID]
	if open == nil {
		return fmt.Errorf("nothing is open under %s", p.ID)
	}
	open.Text += p.Delta
	if strings.HasSuffix(p.Type, "-end") {
		open.State = "done"
		delete(c.open, p.ID)
	}
	return nil
}

// current finds the call in the step. Older versions search the whole message.
func (c *client) current(p uistream.Part) *part {
	from := 0
	if c.major >= 7 {
		from = c.stepBegin()
	}
	for _, q := range c.parts[from:] {
		if q.ToolCallID == p.ToolCallID {
			return q
		}
	}
	return nil
}

func (c *client) call(id string) *part {
	for _, q := range slices.Backward(c.parts) {
		if id != "" && q.ToolCallID == id {
			return q
		}
	}
	return nil
}

// update updates the call's part, or adds one.
func (c *client) update(q *part, p uistream.Part, known part) {
	if q == nil {
		made := uistream.UIPart{Type: "tool-" + p.ToolName, ToolCallID: p.ToolCallID}
		if p.Dynamic {
			made.Type, made.ToolName = "dynamic-tool", p.ToolName
		}
		q = c.add(&part{UIPart: made})
	}
	known.Type, known.ToolName, known.ToolCallID, known.Approval = q.Type, q.ToolName, q.ToolCallID, q.Approval
	*q = known
}

func (c *client) assembleCall(p uistream.Part) error {
	q := c.call(p.ToolCallID)
	if q == nil {
		return fmt.Errorf("no such call")
	}
	switch p.Type {
	case "tool-input-delta":
		if c.inputs[p.ToolCallID] == nil {
			return fmt.Errorf("the input has not begun")
		}
		c.inputs[p.ToolCallID].WriteString(p.InputTextDelta)
		known := part{UIPart: uistream.UIPart{State: "input-streaming"}, RawInput: c.inputs[p.ToolCallID].String()}
		if json.Valid([]byte(known.RawInput)) {
			known.Input = json.RawMessage(known.RawInput)
		}
		c.update(c.current(p), p, known)
	case "tool-output-available":
		c.update(q, p, part{UIPart: uistream.UIPart{State: "output-available", Input: q.Input, Output: p.Output}})
	case "tool-output-error":
		c.update(q, p, part{UIPart: uistream.UIPart{State: "output-error", Input: q.Input, ErrorText: p.ErrorText}, RawInput: q.RawInput})
	case "tool-output-denied":
		q.State = "output-denied"
	case "tool-approval-request":
		q.State, q.Approval = "approval-requested", &uistream.Approval{ID: p.ApprovalID}
	}
	return nil
}

func (c *client) responded(p uistream.Part) error {
	for _, q := range c.parts {
		if q.Approval != nil && q.Approval.ID == p.ApprovalID {
			c.respond(q, *p.Approved, p.Reason)
			return nil
		}
	}
	return fmt.Errorf("no such approval")
}

// respond also is the app's answer to an approval.
func (c *client) respond(q *part, approved bool, reason string) {
	if reason == "" {
		reason = q.Approval.Reason
	}
	q.State, q.Approval = "approval-responded", &uistream.Approval{ID: q.Approval.ID, Approved: &approved, Reason: reason}
}

func (c *client) takeData(p uistream.Part) {
	if p.Transient {
		return
	}
	for _, q := range c.parts {
		if p.ID != "" && q.Type == p.Type && q.ID == p.ID {
			q.Data = p.Data
			return
		}
	}
	c.add(&part{UIPart: uistream.UIPart{Type: p.Type, ID: p.ID, Data: p.Data}})
}

// message returns the message without the client's own fields.
func (c *client) message() uistream.UIMessage {
	m := uistream.UIMessage{ID: c.id, Role: "assistant", Parts: []uistream.UIPart{}}
	for _, p := range c.parts {
		m.Parts = append(m.Parts, p.UIPart)
	}
	if c.metadata != nil {
		known := *c.metadata
		m.Metadata = &known
	}
	return m
}
