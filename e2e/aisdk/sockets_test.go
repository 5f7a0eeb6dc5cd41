package aisdk_test

import (
	"strings"
	"testing"
)

// sockets are scenarios on version 7's WebSocket transport.
func sockets(c client) []scenario {
	approved := c.uniqueText("write", "socket")
	return []scenario{
		{
			Name: "texts over a socket", Agent: "helper", Socket: true, Steps: []step{resume(), send("hello"), send("recite"), resume()},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said("recite"), "assistant:", said("You said: hello, recite"))
				p.framed(t, "resume", "send", "send", "resume")
			},
		},
		{
			Name: "a client tool over a socket", Agent: "helper", Socket: true, Tools: ada, Auto: "tools", Steps: []step{send("ask twice")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask twice"), "assistant:", done("ask", question, name), done("locate", `{}`, city),
					said("I was told: "+name+" | "+city))
				p.framed(t, "send", "send")
				p.called(t, "ask", "locate")
			},
		},
		{
			Name: "an approval over a socket", Agent: "helper", Socket: true, Auto: "approvals", Steps: []step{send(approved), approve("note_once")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(approved), "assistant:", done("note_once", textInput(approved), `{"written":true}`), said(`I was told: {"written":true}`))
				p.framed(t, "send", "send")
				p.effects(t, approved, 1)
			},
		},
		{
			Name: "a socket that is cut in mid-answer", Agent: "narrator", Socket: true,
			Steps: []step{begin("tell me a story"), textOf(someText), do("cut"), settle(), mark(), resume()},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				if at := p.Marks[0]; at.Status != "error" || len(at.Finishes) != 1 || !at.Finishes[0].IsDisconnect {
					t.Errorf("behind the cut the chat was %s, ends %+v; want a disconnect", at.Status, at.Finishes)
				}
				p.heldOnly(t, "user:", said("tell me a story"), "assistant:", said(story()))
				p.stored(t)
				p.framed(t, "send", "resume")
			},
		},
		{
			Name: "a socket that is cut in a continuation", Agent: "narrator", Socket: true, Auto: "tools",
			Steps: []step{
				send("ask me"), do("outputOnly", "tool", "ask", "output", map[string]any{"name": "Ada"}), textOf(someText), do("cut"), settle(), mark(), resume(),
			},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.heldOnly(t, "user:", said("ask me"), "assistant:", said("Let me ask. "), done("ask", question, name), said(story()))
				p.stored(t)
				p.called(t, "ask")
				p.framed(t, "send", "send", "resume")
			},
		},
		{
			Name: "a request that is aborted over a socket", Agent: "narrator", Socket: true,
			Steps: []step{begin("tell me a story"), textOf(someText), do("stop"), settle(), mark(), resume()},
			check: func(t *testing.T, p *played) {
				p.cut(t)
				if at := p.Marks[0]; at.Status != "ready" || len(at.Finishes) != 1 || !at.Finishes[0].IsAbort {
					t.Errorf("behind the abort the chat was %s, ends %+v; want ready and an abort", at.Status, at.Finishes)
				}
				p.holds(t, "user:", said("tell me a story"), "assistant:", said(story()))
				p.framed(t, "send", "abort", "resume")
			},
		},
		{
			Name: "another answer and an edit over a socket", Agent: "helper", Socket: true,
			Steps: []step{send(c.uniqueText("count", "socket")), do("regenerate"), edit(0, "hello")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"))
				p.framed(t, "send", "send", "send")
			},
		},
		{
			Name: "an error over a socket", Agent: "nobody", Socket: true, Steps: []step{send("hello"), do("request", "path", "/chat", "body", map[string]any{
				"id": "{session} 2", "agentType": "helper", "messages": []any{userMessage("m", "hello")},
			})},
			check: func(t *testing.T, p *played) {
				if p.Status != "error" || !strings.Contains(p.Error, "There is no such agent: ") {
					t.Errorf("the chat is %s with %q, want an error that says that there is no such agent", p.Status, p.Error)
				}
				p.framed(t, "send")
			},
		},
	}
}

// framed checks the frames sent by the client.
func (p *played) framed(t *testing.T, want ...string) {
	t.Helper()
	var sent []string
	for _, f := range p.Frames {
		sent = append(sent, f.Type)
	}
	if strings.Join(sent, " ") != strings.Join(want, " ") {
		t.Errorf("the client has sent the frames %q, want %q", sent, want)
	}
}
