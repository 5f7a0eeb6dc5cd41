package aisdk_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// uniqueText returns a text unique to this client.
func (c client) uniqueText(text, name string) string {
	return fmt.Sprintf("%s #%s-%d", text, name, c.Major)
}

// texts are scenarios without answers by the page.
func texts(c client) []scenario {
	note := c.uniqueText("note it", "server-tool")
	input := fmt.Sprintf(`{"text":%q}`, note)
	return []scenario{
		{
			Name: "a text", Agent: "helper", Steps: []step{send("hello"), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said("recite"), "assistant:", said("You said: hello, recite"))
				p.posted(t, 2)
				p.ended(t, "stop")
			},
		},
		{
			Name: "a conversation from elsewhere", Agent: "helper", Steps: []step{send("recite"), mark(), reload(), send("recite"), mark(), edit(0, "recite")},
			Held: []any{
				userMessage("i1", "before"),
				map[string]any{"id": "i2", "role": "assistant", "parts": []any{map[string]any{"type": "text", "text": "I hear."}}},
			},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("recite"), "assistant:", said("You said: recite"))
				p.posted(t, 3)
				if p.Posts[0].Messages != 3 || p.Posts[1].Messages != 5 {
					t.Errorf("the page has sent %+v, want its whole conversation", p.Posts)
				}
				for i, last := range []string{"You said: before, recite", "You said: before, recite, recite"} {
					if got := p.Marks[i].Messages; got[len(got)-1].Text() != last || got[1].ID != "i2" || got[1].Text() != "I hear." {
						t.Errorf("answer %d: got %+v, want %q behind what the page had", i+1, got, last)
					}
				}
			},
		},
		{
			Name: "an edit that cuts the conversation", Agent: "helper",
			Steps: []step{send("hello"), send("recite"), do("truncate", "keep", 2), send("more"), reload(), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said("more"), "assistant:", said("You said: more"),
					"user:", said("recite"), "assistant:", said("You said: hello, more, recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "a server tool", Agent: "helper", Auto: "tools", Steps: []step{send(note)},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(note), "assistant:", done("note", input, `{"written":true}`), said(`I was told: {"written":true}`))
				p.posted(t, 1)
				p.effects(t, note, 1)
			},
		},
		{
			Name: "reasoning", Agent: "thinker", Steps: []step{send("hello")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", `reasoning "They said hello. I am friendly."`, said("Hello to you."))
			},
		},
		{
			Name: "an output", Agent: "clerk", Steps: []step{send("sort it")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.hasData(t, "data-output", `{"urgent":true}`)
			},
		},
		{
			Name: "a custom event and a patch of the state", Agent: "crier", Steps: []step{send("the news")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				p.hasData(t, "data-news", `{"news":"the news"}`)
				p.hasData(t, "data-state-patch", `"the news"`)
				if got := p.Messages[len(p.Messages)-1].Text(); got != "It is known." {
					t.Errorf("the answer is %q", got)
				}
			},
		},
		{
			Name: "metadata", Agent: "narrator", Steps: []step{send("hello")},
			check: func(t *testing.T, p *played) {
				p.ready(t)
				var told struct {
					RunID, AgentType string
					Usage            map[string]any
				}
				if err := json.Unmarshal(p.Messages[1].Metadata, &told); err != nil {
					t.Fatalf("the answer's metadata is %q: %v", p.Messages[1].Metadata, err)
				}
				if told.RunID != p.Posts[0].Run || told.AgentType != "narrator" || len(told.Usage) == 0 {
					t.Errorf("the answer's metadata is %s, want run %s, agent narrator and a usage", p.Messages[1].Metadata, p.Posts[0].Run)
				}
			},
		},
		{
			Name: "a failure of the model", Agent: "narrator", Auto: "both", Steps: []step{send("fail"), mark(), send("hello")},
			check: func(t *testing.T, p *played) {
				if at := p.Marks[0]; at.Status != "error" || at.Error == "" || strings.Contains(at.Error, "secret") || len(p.Errors) != 1 {
					t.Errorf("the chat was %s with %q, was told %q; want one error without details", at.Status, at.Error, p.Errors)
				}
				if text := p.Messages[len(p.Messages)-1].Text(); p.Status != "ready" || text != "You said: hello" {
					t.Errorf("the chat is %s and the next answer is %q", p.Status, text)
				}
				p.posted(t, 2)
			},
		},
		{
			Name: "an unknown agent", Agent: "nobody", Steps: []step{send("hello"), do("request", "path", "/chat", "body", map[string]any{
				"id": "{session} 2", "agentType": "helper", "messages": []any{userMessage("m", "hello")},
			})},
			check: func(t *testing.T, p *played) {
				if p.Status != "error" || !strings.HasPrefix(p.Error, "There is no such agent: ") {
					t.Errorf("the chat is %s with %q, want an error that says that there is no such agent", p.Status, p.Error)
				}
			},
		},
	}
}

// userMessage is a message in the transport's form.
func userMessage(id, text string) map[string]any {
	return map[string]any{"id": id, "role": "user", "parts": []any{map[string]any{"type": "text", "text": text}}}
}

// hasData checks that the answer has one data part of the type containing the piece.
func (p *played) hasData(t *testing.T, kind, piece string) {
	t.Helper()
	var found []string
	for _, d := range p.Data {
		if d.Type == kind {
			found = append(found, string(d.Data))
		}
	}
	parts := 0
	for _, part := range p.Messages[len(p.Messages)-1].Parts {
		if part.Type == kind {
			parts++
		}
	}
	if len(found) != 1 || parts != 1 || !strings.Contains(found[0], piece) {
		t.Errorf("the page was told the %s %q, and the message has %d such parts; want one with %s", kind, found, parts, piece)
	}
}
