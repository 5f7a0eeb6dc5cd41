package aisdk_test

import (
	"strings"
	"testing"
)

// answers are scenarios with unusual or invalid answers.
func answers(c client) []scenario {
	stolen := c.uniqueText("write", "stolen")
	ada := map[string]any{"name": "Ada"}
	return []scenario{
		{
			Name: "a client tool without an output", Agent: "helper", Tools: map[string]answer{"ask": {}}, Auto: "tools", Steps: []step{send("ask me")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.posted(t, 2)
				p.continued(t, 1)
				if got := p.Messages[1].Text(); got != "I was told: null" {
					t.Errorf("the answer is %q, want that the model was told null", got)
				}
			},
		},
		{
			Name: "two client tools of which one is slow", Agent: "helper", Tools: map[string]answer{"locate": {Output: map[string]any{"city": "Rome"}}},
			Auto: "tools", Steps: []step{send("ask twice"), output("ask", ada)},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask twice"), "assistant:", done("ask", question, name), done("locate", `{}`, city),
					said("I was told: "+name+" | "+city))
				p.posted(t, 2)
			},
		},
		{
			Name: "a call that does not fit its schema", Agent: "helper", Tools: map[string]answer{"ask": {Output: ada}}, Auto: "tools",
			Steps: []step{send("ask badly")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.stored(t)
				p.posted(t, 1)
				p.called(t) // another client runs it
				if text := p.Messages[1].Text(); !strings.Contains(text, "question is missing") {
					t.Errorf("the answer is %q, want that the model was told what is wrong", text)
				}
			},
		},
		{
			Name: "an answer on a page that was reloaded", Agent: "helper", Auto: "tools", Steps: []step{send("ask me"), reload(), output("ask", ada)},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 2)
			},
		},
		{
			Name: "an answer behind an interrupt", Agent: "helper", Auto: "tools",
			Steps: []step{send("ask me"), post("/chat/{session}/interrupt", map[string]any{}), output("ask", ada)},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 202, `"done"`)
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 2)
				p.continued(t, 1)
			},
		},
		{
			Name: "an answer behind an abort", Agent: "helper", Auto: "tools",
			Steps: []step{send("ask me"), post("/chat/{session}/abort", map[string]any{}), output("ask", ada), mark(), send("hello")},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 202, `"done"`)
				if at := p.Marks[0]; at.Status != "error" || at.Error == "" {
					t.Errorf("behind the abort the chat was %s with %q, want an error: nothing goes on", at.Status, at.Error)
				}
				if text := p.Messages[len(p.Messages)-1].Text(); p.Status != "ready" || !strings.HasPrefix(text, "You said: hello") {
					t.Errorf("the chat is %s and the next answer is %q", p.Status, text)
				}
				p.posted(t, 3)
			},
		},
		{
			Name: "an output in place of a decision", Agent: "helper", Auto: "tools", from: 6,
			Steps: []step{send(stolen), output("note_once", map[string]any{"written": true}), mark(), reload(), approve("note_once"), do("goOn")},
			check: func(t *testing.T, p *played) {
				if at := p.Marks[0]; at.Status != "error" || !strings.HasPrefix(at.Error, "Another kind of answer is expected here: ") {
					t.Errorf("the chat was %s with %q, want a sentence about the kind", at.Status, at.Error)
				}
				p.holds(t, "user:", said(stolen), "assistant:", done("note_once", textInput(stolen), `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 3)
				p.effects(t, stolen, 1)
			},
		},
		{
			Name: "another question in place of one that waits", Agent: "helper", Auto: "tools",
			Steps: []step{send("ask me"), do("regenerate"), output("ask", ada)},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 3)
			},
		},
		{
			Name: "another answer in place of one that was interrupted", Agent: "narrator",
			Steps: []step{
				send("hello"), begin("tell me a story"), textOf(someText), post("/chat/{session}/interrupt", map[string]any{}), settle(),
				do("regenerate"), send("hello"),
			},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 202, `"requested"`)
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said("tell me a story"), "assistant:", said(story()),
					"user:", said("hello"), "assistant:", said("You said: hello"))
				p.posted(t, 4)
			},
		},
	}
}
