package aisdk_test

import (
	"strings"
	"testing"
)

// resumes are scenarios with returning pages.
func resumes(c client) []scenario {
	lost, unheard := c.uniqueText("count", "lost"), "tell me a story"
	asked := []string{"user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: " + name)}
	told := []string{"user:", said("ask me"), "assistant:", said("Let me ask. "), done("ask", question, name), said(story())}
	answers := post("/chat/{session}/submit-tool-result", map[string]any{"toolCallId": "{call:ask}", "result": map[string]any{"name": "Ada"}})
	return []scenario{
		{
			Name: "a page that is reloaded in mid-answer", Agent: "narrator", Steps: []step{begin("tell me a story"), textOf(someText), do("stop"), mark(), reload(), resume()},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.holds(t, "user:", said("tell me a story"), "assistant:", said(story()))
				p.posted(t, 1)
			},
		},
		{
			Name: "a network that is gone in mid-answer", Agent: "narrator", from: 6,
			Steps: []step{do("breakNext", "behind", someWord), send("tell me a story"), mark(), resume()},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				if len(p.Marks[0].Finishes) != 1 || !p.Marks[0].Finishes[0].IsDisconnect {
					t.Errorf("the first answer ended with %+v, want a disconnect", p.Marks[0].Finishes)
				}
				p.heldOnly(t, "user:", said("tell me a story"), "assistant:", said(story()))
				p.stored(t)
				p.posted(t, 1)
			},
		},
		{
			Name: "a page that is reloaded in a continuation", Agent: "narrator", Tools: ada, Auto: "tools",
			Steps: []step{begin("ask me"), textOf(someText), do("stop"), mark(), reload(), resume()},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.holds(t, told...)
				p.posted(t, 2)
				p.called(t) // the call is answered: the new page does not run it again
			},
		},
		{
			Name: "a network that is gone in a continuation", Agent: "narrator", Auto: "tools", from: 6,
			Steps: []step{
				send("ask me"), do("breakNext", "behind", someWord), output("ask", map[string]any{"name": "Ada"}), mark(), resume(),
			},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.heldOnly(t, told...)
				p.stored(t)
				p.posted(t, 2)
				p.called(t, "ask")
			},
		},
		{
			Name: "a page that is reloaded while a call waits", Agent: "helper", Tools: ada, ToolsFrom: 1, Auto: "tools",
			Steps: []step{send("ask me"), reload(), resume()},
			check: func(t *testing.T, p *played) {
				p.holds(t, asked...)
				p.posted(t, 2)
				p.called(t, "ask")
			},
		},
		{
			Name: "a page that is reloaded twice while a call waits", Agent: "helper", Tools: ada, ToolsFrom: 2, Auto: "tools",
			Steps: []step{send("ask me"), reload(), resume(), reload(), resume()},
			check: func(t *testing.T, p *played) {
				p.holds(t, asked...)
				p.posted(t, 2)
				p.called(t, "ask")
			},
		},
		{
			Name: "a page that is reloaded behind the answer", Agent: "helper", Tools: ada, ToolsFrom: 1, Auto: "tools",
			Steps: []step{send("ask me"), answers, status("completed"), reload(), resume()},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 200, `"new_run"`)
				p.holds(t, asked...)
				p.posted(t, 1)
				p.called(t)
			},
		},
		{
			Name: "a page that resumes behind its answer", Agent: "helper", Auto: "tools", from: 6, Steps: []step{send("ask me"), answers, resume()},
			check: func(t *testing.T, p *played) {
				p.holds(t, asked...)
				p.posted(t, 1)
				p.called(t, "ask")
			},
		},
		{
			Name: "a page that resumes an approval", Agent: "helper", Auto: "approvals", from: 6,
			Steps: []step{send(c.uniqueText("write", "resumed")), reload(), resume(), mark(), deny("note_once", "")},
			check: func(t *testing.T, p *played) {
				asks := p.Marks[0].Messages[1]
				if part := asks.Parts[len(asks.Parts)-1]; part.State != "approval-requested" || p.Marks[0].Status != "ready" {
					t.Errorf("the resumed page is %s and has %+v, want that it asks for an approval", p.Marks[0].Status, part)
				}
				p.ready(t)
				p.stored(t)
				p.posted(t, 2)
				p.decided(t, "note_once", false, "")
			},
		},
		{
			Name: "a request that is lost", Agent: "helper", Steps: []step{send("hello"), do("loseNext", "what", "request"), send(lost), mark(), do("regenerate")},
			check: func(t *testing.T, p *played) {
				p.broken(t)
				p.heldOnly(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said(lost), "assistant:", said("Answer 1."))
				p.stored(t)
				p.posted(t, 3)
			},
		},
		{
			// The answer is long. A short one might end before the server notices the broken connection.
			Name: "an answer that is lost", Agent: "narrator", Steps: []step{send("hello"), do("loseNext", "what", "answer"), send(unheard), mark(), resume()},
			check: func(t *testing.T, p *played) {
				p.broken(t)
				p.heldOnly(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said(unheard), "assistant:", said(story()))
				p.stored(t)
				p.posted(t, 2)
			},
		},
		{
			Name: "a continuation that is lost and sent again", Agent: "helper", Auto: "tools",
			Steps: []step{
				send("ask me"), do("loseNext", "what", "answer"), output("ask", map[string]any{"name": "Ada"}), mark(), do("goOn"),
			},
			check: func(t *testing.T, p *played) {
				p.broken(t)
				p.heldOnly(t, asked...)
				p.stored(t)
				p.posted(t, 3)
			},
		},
		{
			Name: "a continuation that is stopped and gone on with", Agent: "narrator", Auto: "tools", from: 7, // older versions cannot drop half a step
			Steps: []step{
				send("ask me"), do("outputOnly", "tool", "ask", "output", map[string]any{"name": "Ada"}), textOf(someText), do("stop"), mark(), do("goOn"),
			},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.holds(t, told...)
				p.posted(t, 3)
			},
		},
		{
			Name: "a page that resumes what it has seen", Agent: "helper", Steps: []step{send("hello"), resume(), resume()},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"))
				p.posted(t, 1)
			},
		},
		{
			Name: "a page that resumes nothing", Agent: "helper", Steps: []step{resume(), send("hello")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"))
			},
		},
	}
}

// broken verifies that the chat saw one error before the mark and recovered.
func (p *played) broken(t *testing.T) {
	t.Helper()
	if len(p.Marks) == 0 || p.Marks[0].Status != "error" || len(p.Errors) != 1 {
		t.Errorf("the chat was told the errors %q, want one", p.Errors)
	}
	if p.Status != "ready" || p.Error != "" {
		t.Errorf("the chat is %s with %q, want ready", p.Status, p.Error)
	}
}

// cut verifies that the first answer broke in the middle; otherwise the test proves nothing.
func (p *played) cut(t *testing.T) {
	t.Helper()
	if len(p.Marks) == 0 || len(p.Marks[0].Messages) != 2 {
		t.Fatalf("nothing was cut: %+v", p.Marks)
	}
	if text := p.Marks[0].Messages[1].Text(); !strings.Contains(text, "word00") || strings.HasSuffix(story(), text[max(0, len(text)-7):]) {
		t.Fatalf("the connection was lost with %q, want some of the story", text)
	}
}
