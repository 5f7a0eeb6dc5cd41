package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// uiPart is a part of a message as clients keep it.
type uiPart = map[string]any

// uiClient builds a message from a stream as the AI SDK's client does, and reports parts that this
// client would refuse.
type uiClient struct {
	id     string
	parts  []uiPart
	open   map[string]uiPart // unfinished texts and inputs
	reason string            // of the finish; "" before
	failed string            // text of the error part
	asked  []string          // calls of onToolCall

	metadata map[string]any // of the message
}

// clientWith returns a client with a message.
func clientWith(id string, parts ...uiPart) *uiClient { return &uiClient{id: id, parts: parts} }

// apply applies the events of one stream, up to its end or a cut.
func (c *uiClient) apply(t testing.TB, events []event) {
	t.Helper()
	c.open, c.reason = map[string]uiPart{}, ""
	for i, e := range events {
		if e.data == "[DONE]" {
			if i != len(events)-1 {
				t.Errorf("something stands behind the end")
			}
			return
		}
		var p uiPart
		if err := json.Unmarshal([]byte(e.data), &p); err != nil {
			t.Fatalf("%s: %v", e.data, err)
		}
		if err := c.part(p); err != nil {
			t.Fatalf("part %d, %s: %v; all: %s", i, e.data, err, dataLines(events))
		}
	}
}

// replay applies a stream that the client has requested with GET. Its first start part empties the
// message.
func (c *uiClient) replay(t testing.TB, events []event) {
	t.Helper()
	c.parts, c.metadata = nil, nil
	c.apply(t, events)
}

func (c *uiClient) part(p uiPart) error {
	kind, _ := p["type"].(string)
	if m, _ := p["messageMetadata"].(map[string]any); m != nil {
		if c.metadata == nil {
			c.metadata = map[string]any{}
		}
		maps.Copy(c.metadata, m)
	}
	switch kind {
	case "start":
		if c.id != "" && p["messageId"] != c.id {
			return fmt.Errorf("another message: %q is what the client has", c.id)
		}
		c.id, _ = p["messageId"].(string)
	case "start-step":
		c.parts = append(c.parts, uiPart{"type": "step-start"})
	case "finish-step", "message-metadata":
	case "reset-step":
		at := len(c.parts)
		for at > 0 && c.parts[at-1]["type"] != "step-start" {
			at--
		}
		c.parts, c.open = c.parts[:at], map[string]uiPart{}
	case "finish":
		c.reason, _ = p["finishReason"].(string)
	case "error":
		c.failed, _ = p["errorText"].(string)
	case "data-subagent":
		at := slices.IndexFunc(c.parts, func(known uiPart) bool { return known["type"] == kind && known["id"] == p["id"] })
		if at < 0 {
			c.parts = append(c.parts, p)
		} else {
			c.parts[at] = p
		}
	default:
		if strings.HasPrefix(kind, "data-") {
			c.data(p)
			return nil
		}
		if base, _, _ := strings.Cut(kind, "-"); base == "text" || base == "reasoning" {
			return c.block(base, kind, p)
		}
		return c.tool(kind, p)
	}
	return nil
}

// data adds a data part, or replaces the one with its type and id.
func (c *uiClient) data(p uiPart) {
	at := slices.IndexFunc(c.parts, func(q uiPart) bool { return p["id"] != nil && q["type"] == p["type"] && q["id"] == p["id"] })
	if at < 0 {
		c.parts = append(c.parts, p)
		return
	}
	c.parts[at] = p
}

func (c *uiClient) block(base, kind string, p uiPart) error {
	id := fmt.Sprint(base, p["id"])
	if kind == base+"-start" {
		c.open[id] = uiPart{"type": base, "text": "", "state": "streaming"}
		c.parts = append(c.parts, c.open[id])
		return nil
	}
	part := c.open[id]
	if part == nil {
		return fmt.Errorf("the block was not begun")
	}
	if kind == base+"-end" {
		part["state"] = "done"
		delete(c.open, id)
		return nil
	}
	part["text"] = part["text"].(string) + p["delta"].(string)
	return nil
}

func (c *uiClient) tool(kind string, p uiPart) error {
	id, _ := p["toolCallId"].(string)
	if kind == "tool-approval-response" {
		for _, part := range c.parts {
			if a, _ := part["approval"].(uiPart); a != nil && a["id"] == p["approvalId"] {
				part["state"], part["approval"] = "approval-responded", uiPart{"id": a["id"], "approved": p["approved"]}
				return nil
			}
		}
		return fmt.Errorf("nobody asked")
	}
	part := c.call(id)
	if part == nil {
		if kind != "tool-input-start" && kind != "tool-input-available" {
			return fmt.Errorf("the call is not known")
		}
		part = uiPart{"type": fmt.Sprint("tool-", p["toolName"]), "toolCallId": id}
		if p["dynamic"] == true {
			part["type"], part["toolName"] = "dynamic-tool", p["toolName"]
		}
		c.parts = append(c.parts, part)
	}
	switch kind {
	case "tool-input-start":
		part["state"] = "input-streaming"
		c.open[id] = uiPart{"text": ""}
	case "tool-input-delta":
		if c.open[id] == nil {
			return fmt.Errorf("the input was not begun")
		}
		text := c.open[id]["text"].(string) + p["inputTextDelta"].(string)
		c.open[id]["text"] = text
		var input any
		if json.Unmarshal([]byte(text), &input) == nil {
			part["input"] = input
		}
	case "tool-input-available":
		part["state"], part["input"] = "input-available", p["input"]
		c.asked = append(c.asked, id)
	case "tool-input-error":
		part["state"], part["input"], part["errorText"] = "output-error", p["input"], p["errorText"]
	case "tool-approval-request":
		part["state"], part["approval"] = "approval-requested", uiPart{"id": p["approvalId"]}
	case "tool-output-available":
		part["state"], part["output"] = "output-available", p["output"]
	case "tool-output-error":
		part["state"], part["errorText"] = "output-error", p["errorText"]
	case "tool-output-denied":
		part["state"] = "output-denied"
	default:
		return fmt.Errorf("unknown part")
	}
	return nil
}

func (c *uiClient) call(id string) uiPart {
	at := slices.IndexFunc(c.parts, func(p uiPart) bool { return p["toolCallId"] == id })
	if at < 0 {
		return nil
	}
	return c.parts[at]
}

// output answers a call as addToolOutput does.
func (c *uiClient) output(id string, output any) *uiClient {
	part := c.call(id)
	delete(part, "approval")
	part["state"], part["output"] = "output-available", output
	return c
}

// respond answers an approval as addToolApprovalResponse does.
func (c *uiClient) respond(id string, approved bool) *uiClient {
	part := c.call(id)
	part["state"], part["approval"] = "approval-responded", uiPart{"id": "a-" + id, "approved": approved}
	return c
}

// post returns the body of a POST with the message as the last one.
func (c *uiClient) post(session string, more ...string) string {
	body := map[string]any{"id": session, "trigger": "submit-message", "messageId": c.id, "messages": []any{
		map[string]any{"id": "u-hi", "role": "user", "parts": []any{uiPart{"type": "text", "text": "hi"}}}, c.message(),
	}}
	for i := 0; i < len(more); i += 2 {
		body[more[i]] = more[i+1]
	}
	return toJSON(body)
}

func (c *uiClient) message() map[string]any {
	return map[string]any{"id": c.id, "role": "assistant", "parts": append([]uiPart{}, c.parts...)}
}

// fromString returns a client with the message.
func fromString(t testing.TB, message string) *uiClient {
	t.Helper()
	var m struct {
		ID    string
		Parts []uiPart
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		t.Fatal(err)
	}
	return clientWith(m.ID, m.Parts...)
}

// String returns the message for comparisons.
func (c *uiClient) String() string { return toJSON(c.message()) }

func toJSON(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(b)
}
