package aisdk_test

import (
	"fmt"
	"strings"
	"testing"
)

// The calculation under approval.
const (
	product = `{"expression":"6*7"}`
	result  = `{"value":42}`
)

// approvals are scenarios with approval requests.
func approvals(c client) []scenario {
	approved, denied := c.uniqueText("write", "approved"), c.uniqueText("write", "denied")
	one, mixed := c.uniqueText("write and calculate", "one"), c.uniqueText("do all", "mixed")
	reloaded, single := c.uniqueText("write", "reloaded"), c.uniqueText("write", "single")
	abandoned, submitted := c.uniqueText("write", "abandoned"), c.uniqueText("write", "submitted")
	return []scenario{
		{
			Name: "an approval", Agent: "helper", Auto: "approvals", from: 6, Steps: []step{send(approved), mark(), approve("note_once")},
			check: func(t *testing.T, p *played) {
				if at := p.Marks[0].Messages[1]; len(at.Parts) < 2 || at.Parts[len(at.Parts)-1].State != "approval-requested" {
					t.Errorf("before the decision the answer was %+v, want that it asks for an approval", at)
				}
				p.holds(t, "user:", said(approved), "assistant:", done("note_once", textInput(approved), `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 2)
				p.continued(t, 1)
				p.effects(t, approved, 1)
				p.decided(t, "note_once", true, "")
			},
		},
		{
			Name: "a denial", Agent: "helper", Auto: "approvals", from: 6, Steps: []step{send(denied), deny("note_once", "not today")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.stored(t)
				p.posted(t, 2)
				p.continued(t, 1)
				p.effects(t, denied, 0)
				p.decided(t, "note_once", false, "not today")
				if text := p.Messages[1].Text(); !strings.HasPrefix(text, "I was told: ") || !strings.Contains(text, "not today") {
					t.Errorf("the answer is %q, want that the model was told the reason", text)
				}
			},
		},
		{
			Name: "one approval and one denial", Agent: "helper", Auto: "approvals", from: 6,
			Steps: []step{send(one), approve("note_once"), deny("calculate", "no sums")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.stored(t)
				p.posted(t, 2)
				p.continued(t, 1)
				p.effects(t, one, 1)
				p.decided(t, "note_once", true, "")
				p.decided(t, "calculate", false, "no sums")
			},
		},
		{
			Name: "a batch of all kinds", Agent: "helper", Tools: ada, Auto: "both", from: 6, Steps: []step{send(mixed), approve("calculate")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(mixed), "assistant:", done("note", textInput(mixed), `{"written":true}`), done("ask", question, name),
					done("calculate", product, result), said(`I was told: {"written":true} | `+name+" | "+result))
				p.posted(t, 2)
				p.continued(t, 1)
				p.effects(t, mixed, 1)
			},
		},
		{
			Name: "an approval on a page that was reloaded", Agent: "helper", Auto: "approvals", from: 6,
			Steps: []step{send(reloaded), reload(), mark(), approve("note_once")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(reloaded), "assistant:", done("note_once", textInput(reloaded), `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 2)
				p.effects(t, reloaded, 1)
			},
		},
		{
			Name: "an approval on a page that sends one message", Agent: "helper", Auto: "approvals", LastOnly: true, from: 6,
			Steps: []step{send("hello"), send(single), approve("note_once")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"),
					"user:", said(single), "assistant:", done("note_once", textInput(single), `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 3)
			},
		},
		{
			Name: "a new message instead of a decision", Agent: "helper", Auto: "approvals", from: 6, Steps: []step{send(abandoned), send("never mind")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.posted(t, 2)
				p.checkAbandoned(t, "You said: never mind. I was told: ", 1)
				p.effects(t, abandoned, 0)
			},
		},
		{
			Name: "an approval beside the chat", Agent: "helper", Auto: "approvals", from: 6,
			Steps: []step{
				send(submitted),
				post("/chat/{session}/submit-tool-result", map[string]any{"toolCallId": "{call:note_once}", "result": "stolen"}),
				post("/chat/{session}/submit-tool-result", map[string]any{
					"toolCallId": "{call:note_once}", "kind": "approval-response", "approvalId": "{approval:note_once}", "approved": true,
				}),
				resume(),
			},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 400, "KIND_MISMATCH")
				p.answered(t, 1, 200, `"new_run"`)
				p.holds(t, "user:", said(submitted), "assistant:", done("note_once", textInput(submitted), `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 1)
				p.effects(t, submitted, 1)
			},
		},
	}
}

func textInput(text string) string { return fmt.Sprintf(`{"text":%q}`, text) }

// decided checks the decision in the tool's part.
func (p *played) decided(t *testing.T, tool string, approved bool, reason string) {
	t.Helper()
	state := map[bool]string{true: "output-available", false: "output-denied"}[approved]
	for _, part := range p.Messages[len(p.Messages)-1].Parts {
		if part.Tool() != tool {
			continue
		}
		if part.State != state || part.Approval == nil || part.Approval.Approved == nil || *part.Approval.Approved != approved || part.Approval.Reason != reason {
			t.Errorf("the call of %s is %s with the approval %+v, want %s, %t, %q", tool, part.State, part.Approval, state, approved, reason)
		}
		return
	}
	t.Errorf("there is no call of %s", tool)
}
