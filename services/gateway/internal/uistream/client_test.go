package uistream_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// keys are what the strict versions of the client (ai 5.0 and 6.0) take for each
// type: the keys that have to be there, then those that may.
var keys = map[string][2][]string{
	"start":                 {nil, {"messageId", "messageMetadata"}},
	"finish":                {nil, {"finishReason", "messageMetadata"}},
	"error":                 {{"errorText"}, nil},
	"start-step":            {},
	"finish-step":           {},
	"reset-step":            {},
	"text-start":            {{"id"}, nil},
	"text-delta":            {{"id", "delta"}, nil},
	"text-end":              {{"id"}, nil},
	"reasoning-start":       {{"id"}, nil},
	"reasoning-delta":       {{"id", "delta"}, nil},
	"reasoning-end":         {{"id"}, nil},
	"tool-input-start":      {{"toolCallId", "toolName"}, {"dynamic", "title", "providerExecuted"}},
	"tool-input-delta":      {{"toolCallId", "inputTextDelta"}, nil},
	"tool-input-available":  {{"toolCallId", "toolName", "input"}, {"dynamic", "title", "providerExecuted"}},
	"tool-output-available": {{"toolCallId", "output"}, {"dynamic", "preliminary", "providerExecuted"}},
	"tool-output-error":     {{"toolCallId", "errorText"}, {"dynamic", "providerExecuted"}},
}

// newer are the keys of types that came with a major version.
var newer = map[string]map[string][2][]string{
	"6": {"tool-approval-request": {{"approvalId", "toolCallId"}, nil}, "tool-output-denied": {{"toolCallId"}, nil}},
	"7": {"tool-approval-response": {{"approvalId", "approved"}, {"reason", "providerExecuted"}}},
}

var dataKeys = [2][]string{{"data"}, {"id", "transient"}}

// mayBeNull are the keys whose value may be null.
var mayBeNull = []string{"input", "output", "data"}

var commonReasons = []string{"stop", "length", "content-filter", "tool-calls", "error", "other"}

// client assembles a message as version 7.0.173 of the package ai does, and
// refuses what any supported version refuses.
type client struct {
	major    uistream.Major // 0 is the newest
	id       string
	parts    []*uistream.UIPart
	open     map[string]*uistream.UIPart
	inputs   map[string]bool
	finished bool
	failed   string
}

func (c *client) take(text []byte) error {
	if bytes.ContainsAny(text, "\n\r") {
		return fmt.Errorf("more than one line")
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	var p uistream.Part
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if err := c.checkKeys(p.Type, raw); err != nil {
		return err
	}
	return c.assemble(p)
}

func (c *client) checkKeys(kind string, raw map[string]json.RawMessage) error {
	allowed, known := keys[kind]
	for since, types := range newer {
		if here, ok := types[kind]; ok {
			allowed, known = here, c.major == 0 || fmt.Sprint(int(c.major)) >= since
		}
	}
	if len(kind) > 5 && kind[:5] == "data-" {
		allowed, known = dataKeys, true
	}
	if !known {
		return fmt.Errorf("unknown type")
	}
	for _, key := range allowed[0] {
		if _, there := raw[key]; !there {
			return fmt.Errorf("%s is missing", key)
		}
	}
	for key, value := range raw {
		if key != "type" && !slices.Contains(allowed[0], key) && !slices.Contains(allowed[1], key) {
			return fmt.Errorf("%s is unknown", key)
		}
		if string(value) == "null" && !slices.Contains(mayBeNull, key) {
			return fmt.Errorf("%s is null", key)
		}
	}
	return nil
}

func (c *client) assemble(p uistream.Part) error {
	switch p.Type {
	case "start":
		*c = client{major: c.major, id: p.MessageID}
		c.forget()
	case "start-step":
		c.parts = append(c.parts, &uistream.UIPart{Type: "step-start"})
	case "reset-step":
		c.parts = c.parts[:c.stepBegin()]
		c.forget()
	case "text-start", "reasoning-start":
		part := &uistream.UIPart{Type: p.Type[:len(p.Type)-len("-start")], State: "streaming"}
		c.parts, c.open[p.ID] = append(c.parts, part), part
	case "text-delta", "reasoning-delta":
		if c.open[p.ID] == nil {
			return fmt.Errorf("nothing is open under %s", p.ID)
		}
		c.open[p.ID].Text += p.Delta
	case "text-end", "reasoning-end":
		if c.open[p.ID] == nil {
			return fmt.Errorf("nothing is open under %s", p.ID)
		}
		c.open[p.ID].State = "done"
		delete(c.open, p.ID)
	case "finish":
		c.finished = true
		known := slices.Contains(commonReasons, p.FinishReason) || p.FinishReason == "interrupted" && (c.major == 0 || c.major >= 7)
		if !known {
			return fmt.Errorf("finish reason")
		}
	case "error":
		c.failed = p.ErrorText
	case "tool-approval-response":
		return c.answer(p)
	default:
		if p.ToolCallID != "" {
			return c.assembleCall(p)
		}
		if p.Data != nil && !p.Transient {
			c.parts = append(c.parts, &uistream.UIPart{Type: p.Type, Input: p.Data})
		}
	}
	return nil
}

func (c *client) forget() {
	c.open, c.inputs = map[string]*uistream.UIPart{}, map[string]bool{}
}

func (c *client) stepBegin() int {
	for i := len(c.parts); i > 0; i-- {
		if c.parts[i-1].Type == "step-start" {
			return i
		}
	}
	return 0
}

func (c *client) assembleCall(p uistream.Part) error {
	var part *uistream.UIPart
	for _, q := range c.parts {
		if q.ToolCallID == p.ToolCallID {
			part = q
		}
	}
	if part == nil && p.ToolName != "" {
		part = &uistream.UIPart{Type: "tool-" + p.ToolName, ToolCallID: p.ToolCallID}
		c.parts = append(c.parts, part)
	}
	if part == nil {
		return fmt.Errorf("no such call")
	}
	switch p.Type {
	case "tool-input-start":
		c.inputs[p.ToolCallID] = true
		part.State = "input-streaming"
	case "tool-input-delta":
		if !c.inputs[p.ToolCallID] {
			return fmt.Errorf("the input has not begun")
		}
	case "tool-input-available":
		part.State, part.Input = "input-available", p.Input
	case "tool-output-available":
		part.State, part.Output = "output-available", p.Output
	case "tool-output-error":
		part.State, part.ErrorText = "output-error", p.ErrorText
	case "tool-output-denied":
		part.State = "output-denied"
	case "tool-approval-request":
		part.State, part.Approval = "approval-requested", &uistream.Approval{ID: p.ApprovalID}
	}
	return nil
}

func (c *client) answer(p uistream.Part) error {
	for _, part := range c.parts {
		if part.Approval != nil && part.Approval.ID == p.ApprovalID {
			part.State, part.Approval = "approval-responded", &uistream.Approval{ID: p.ApprovalID, Approved: p.Approved}
			return nil
		}
	}
	return fmt.Errorf("no such approval")
}

func (c *client) message() uistream.UIMessage {
	m := uistream.UIMessage{ID: c.id, Role: "assistant", Parts: []uistream.UIPart{}}
	for _, p := range c.parts {
		m.Parts = append(m.Parts, *p)
	}
	return m
}
