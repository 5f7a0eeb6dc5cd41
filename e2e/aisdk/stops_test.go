package aisdk_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// stopped are scenarios in which the user stops a stream, which ends only the stream, and goes on at once.
func stopped() []scenario {
	stop := []step{begin("tell me a story"), textOf(someText), do("stop"), settle(), mark()}
	return []scenario{
		{
			Name: "a stop, then a message", Agent: "narrator", Steps: append(slices.Clone(stop), send("hello")),
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.ready(t)
				p.posted(t, 2)
				stored := p.world.Messages(t, p.session())
				if len(stored) != 4 || !strings.HasPrefix(stored[1].Text(), p.Marks[0].Messages[1].Text()) || stored[1].Text() == story() {
					t.Errorf("the conversation is\n%s, want the story up to the stop", harness.Transcript(stored))
				}
				if got := p.Messages[3].Text(); got != "You said: hello" {
					t.Errorf("the next answer is %q", got)
				}
			},
		},
		{
			Name: "a stop, then a regeneration", Agent: "narrator", Steps: append(slices.Clone(stop), do("regenerate")),
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.holds(t, "user:", said("tell me a story"), "assistant:", said(story()))
				p.posted(t, 2)
				if p.Messages[1].ID == p.Marks[0].Messages[1].ID {
					t.Error("the old answer went on")
				}
			},
		},
		{
			Name: "a stop of the run, then an edit that cuts the conversation", Agent: "narrator",
			Steps: []step{
				send("hello"), begin("tell me a story"), textOf(someText), do("stop"), post("/chat/{session}/interrupt", map[string]any{}), mark(),
				do("truncate", "keep", 2), send("bye"),
			},
			check: func(t *testing.T, p *played) {
				if cut := p.Marks[0].Messages[3].Text(); len(cut) < someText || len(cut) >= len(story()) {
					t.Errorf("the answer was stopped with %q, want some of the story", cut)
				}
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said("bye"), "assistant:", said("You said: bye"))
				p.posted(t, 3)
			},
		},
		{
			Name: "a stop, then an edit", Agent: "narrator", Steps: append(slices.Clone(stop), edit(0, "hello")),
			check: func(t *testing.T, p *played) {
				p.cut(t)
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"))
				p.posted(t, 2)
			},
		},
	}
}

// stops are scenarios in which a stop interrupts the continuation of a message.
func stops(client) []scenario {
	continues := []step{send("ask me"), do("outputOnly", "tool", "ask", "output", map[string]any{"name": "Ada"}), textOf(someText)}
	return []scenario{
		{
			Name: "an interrupt of a continuation", Agent: "narrator", Auto: "tools",
			Steps: append(append([]step{}, continues...), post("/chat/{session}/interrupt", map[string]any{}), settle(), mark(), send("hello")),
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 202, `"requested"`)
				p.cut(t)
				reason := map[int]string{7: "interrupted", 6: "other", 5: ""}[p.client.Major]
				if ends := p.Marks[0].Finishes; p.Marks[0].Status != "ready" || ends[len(ends)-1].FinishReason != reason {
					t.Errorf("behind the interrupt the chat was %s, ends %+v; want ready and %q", p.Marks[0].Status, ends, reason)
				}
				if got := string(p.Marks[0].Messages[1].Metadata); !strings.Contains(got, `"interrupted"`) {
					t.Errorf("the metadata of what was interrupted is %s, want that it says so", got)
				}
				p.ready(t)
				p.stored(t)
				p.posted(t, 3)
				if got := p.Messages[3].Text(); got != "You said: hello" {
					t.Errorf("the next answer is %q", got)
				}
			},
		},
		{
			Name: "an abort of a continuation", Agent: "narrator", Auto: "tools",
			Steps: append(append([]step{}, continues...), post("/chat/{session}/abort", map[string]any{}), settle(), mark(), send("hello")),
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 202, `"requested"`)
				p.cut(t)
				if at := p.Marks[0]; at.Status != "error" || at.Error == "" || strings.Contains(at.Error, "framework_") {
					t.Errorf("behind the abort the chat was %s with %q, want an error for people", at.Status, at.Error)
				}
				if p.Status != "ready" || p.Error != "" {
					t.Errorf("the chat is %s with %q, want ready", p.Status, p.Error)
				}
				p.posted(t, 3)
				if got := p.Messages[3].Text(); got != "You said: hello" {
					t.Errorf("the next answer is %q", got)
				}
			},
		},
	}
}
