package aisdk_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// The model's questions and the pages' answers.
const (
	question = `{"question":"Who are you?"}`
	name     = `{"name":"Ada"}`
	city     = `{"city":"Rome"}`
)

// abandoned is the model's result of a call replaced by a new message.
const abandoned = "client_tool_abandoned"

// clientTools are scenarios with page tools.
func clientTools(c client) []scenario {
	late := c.uniqueText("hello", "late")
	guest := c.uniqueText("ask me", "guest")
	return []scenario{
		{
			Name: "a client tool", Agent: "helper", Tools: ada, Auto: "tools", Steps: []step{send("ask me")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 2)
				p.called(t, "ask")
				p.continued(t, 1)
			},
		},
		{
			Name: "a tool of the page", Agent: "guest", Tools: ada, Auto: "tools", Steps: []step{send(guest)},
			Body: map[string]any{"instructions": "Speak French.", "tools": []any{map[string]any{
				"name": "ask", "description": "Asks the user.", "inputSchema": map[string]any{
					"type": "object", "properties": map[string]any{"question": map[string]any{"type": "string"}}, "required": []string{"question"},
				},
			}}},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(guest), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 2)
				p.called(t, "ask")
				for _, r := range p.world.brain.provider.Requests(guest) {
					sent, _ := json.Marshal(r.Body)
					if !strings.Contains(string(sent), `"name":"ask"`) || !strings.Contains(string(sent), "Speak French.") {
						t.Errorf("the model was sent %s, want the tool and the instructions of the page", sent)
					}
				}
			},
		},
		{
			Name: "a client tool that fails", Agent: "helper", Tools: map[string]answer{"ask": {Error: "nobody is here"}}, Auto: "tools",
			Steps: []step{send("ask me")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.stored(t)
				p.posted(t, 2)
				p.continued(t, 1)
				if text := p.Messages[1].Text(); !strings.Contains(text, "nobody is here") {
					t.Errorf("the answer is %q, want what the page said", text)
				}
			},
		},
		{
			Name: "two client tools in one batch", Agent: "helper", Tools: ada, Auto: "tools", Steps: []step{send("ask twice")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask twice"), "assistant:", done("ask", question, name), done("locate", `{}`, city),
					said("I was told: "+name+" | "+city))
				p.posted(t, 2)
				p.called(t, "ask", "locate")
			},
		},
		{
			Name: "client tools one after the other", Agent: "helper", Tools: ada, Auto: "tools", Steps: []step{send("ask again and again")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask again and again"), "assistant:", done("ask", question, name),
					done("ask", `{"question":"And who else?"}`, name), said("I was told: "+name+" | "+name))
				p.posted(t, 3)
				p.called(t, "ask", "ask")
				p.continued(t, 1)
			},
		},
		{
			Name: "half of a batch", Agent: "helper", Auto: "tools",
			Steps: []step{
				send("ask twice"), output("ask", map[string]any{"name": "Ada"}), do("goOn"), mark(),
				output("locate", map[string]any{"city": "Rome"}),
			},
			check: func(t *testing.T, p *played) {
				half := p.Marks[0]
				if n := len(half.Finishes); half.Status != "ready" || len(half.Messages) != 2 || p.client.Major > 5 && half.Finishes[n-1].FinishReason != "tool-calls" {
					t.Errorf("with half of the answers the chat was %s, with %d messages, ends %+v", half.Status, len(half.Messages), half.Finishes)
				}
				p.holds(t, "user:", said("ask twice"), "assistant:", done("ask", question, name), done("locate", `{}`, city),
					said("I was told: "+name+" | "+city))
				p.posted(t, 3)
				p.continued(t, 1)
			},
		},
		{
			Name: "a client tool of a page that sends one message", Agent: "helper", Tools: ada, Auto: "tools", LastOnly: true,
			Steps: []step{send("hello"), send("ask me"), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"),
					"user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name),
					"user:", said("recite"), "assistant:", said("You said: hello, ask me, recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "a new message instead of an answer", Agent: "helper", Steps: []step{send("ask me"), send("never mind")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.posted(t, 2)
				p.checkAbandoned(t, "You said: never mind. I was told: ", 1)
			},
		},
		{
			Name: "a new message with half of the answers", Agent: "helper",
			Steps: []step{send("ask twice"), output("ask", map[string]any{"name": "Ada"}), send("never mind")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.posted(t, 2)
				p.checkAbandoned(t, "You said: never mind. I was told: "+name+" | ", 1)
			},
		},
		{
			Name: "an answer behind its deadline", Agent: "hasty", Auto: "tools",
			Steps: []step{send("ask me"), status("completed"), output("ask", map[string]any{"name": "Ada"}), send(late)},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.stored(t)
				p.posted(t, 3)
				first, second := p.Messages[1].Text(), p.Messages[3].Text()
				if !strings.Contains(first, "in time") {
					t.Errorf("the first answer is %q, want that the model was told of the timeout", first)
				}
				if strings.Count(second, "Late: "+name) != 1 {
					t.Errorf("the second answer is %q, want that the model was told of the late answer once", second)
				}
			},
		},
		{
			Name: "an answer that is given twice", Agent: "helper", Auto: "tools",
			Steps: []step{
				send("ask me"), post("/chat/{session}/submit-tool-result", map[string]any{"toolCallId": "{call:ask}", "result": map[string]any{"name": "Ada"}}),
				post("/chat/{session}/submit-tool-result", map[string]any{"toolCallId": "{call:ask}", "result": map[string]any{"name": "Eve"}}),
				status("completed"), output("ask", map[string]any{"name": "Bob"}),
			},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 200, `"accepted"`)
				p.answered(t, 1, 200, `"already_completed"`)
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 2)
			},
		},
	}
}

// continued checks that all posts after the first continued the same message id.
func (p *played) continued(t *testing.T, nth int) {
	t.Helper()
	for _, post := range p.Posts[1:] {
		if post.MessageID != p.Messages[nth].ID || post.Role != "assistant" {
			t.Errorf("the chat went on with message %q of the %s, want %q of the assistant", post.MessageID, post.Role, p.Messages[nth].ID)
		}
	}
	if len(p.Messages) != nth+1 {
		t.Errorf("there are %d messages, want %d: the answer goes on in the one that asked", len(p.Messages), nth+1)
	}
}

// checkAbandoned checks that the second answer has the words and then this number of abandoned calls.
func (p *played) checkAbandoned(t *testing.T, words string, times int) {
	t.Helper()
	if len(p.Messages) != 4 {
		t.Fatalf("there are %d messages, want 4", len(p.Messages))
	}
	text := p.Messages[3].Text()
	if rest, found := strings.CutPrefix(text, words); !found || strings.Count(rest, abandoned) != times {
		t.Errorf("the second answer is %q, want %q and then %s %d times", text, words, abandoned, times)
	}
	if stored := p.world.Messages(t, p.session()); len(stored) != 4 || stored[3].Text() != text {
		t.Errorf("the conversation does not end with the second answer: %+v", stored)
	}
}
