package aisdk_test

import (
	"testing"
)

// paths are scenarios with edits and regenerations.
func paths(c client) []scenario {
	count, fails := c.uniqueText("count", "again"), c.uniqueText("fail once", "again")
	byAnswer, byQuestion := c.uniqueText("count", "by-answer"), c.uniqueText("count", "by-question")
	first, forgotten, other := c.uniqueText("hello", "first"), c.uniqueText("hello", "forgotten"), c.uniqueText("hello", "other")
	suspended := c.uniqueText("count", "suspended")
	return []scenario{
		{
			Name: "an edit", Agent: "helper", Steps: []step{send(first), send(forgotten), edit(0, other), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(other), "assistant:", said("You said: "+other),
					"user:", said("recite"), "assistant:", said("You said: "+other+", recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "an edit of a question that waits for an answer", Agent: "helper", Steps: []step{send("ask me"), edit(0, suspended)},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(suspended), "assistant:", said("Answer 1."))
				p.posted(t, 2)
			},
		},
		{
			Name: "another answer", Agent: "helper", Steps: []step{send("hello"), send(count), do("regenerate"), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said(count), "assistant:", said("Answer 2."),
					"user:", said("recite"), "assistant:", said("You said: hello, "+count+", recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "another answer in place of one that is named", Agent: "helper",
			Steps: []step{send(byAnswer), send("forgotten"), do("regenerate", "nth", 1), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(byAnswer), "assistant:", said("Answer 2."), "user:", said("recite"), "assistant:", said("You said: "+byAnswer+", recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "another answer to a message that is named", Agent: "helper",
			Steps: []step{send(byQuestion), send("forgotten"), do("regenerate", "nth", 0), send("recite")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said(byQuestion), "assistant:", said("Answer 2."), "user:", said("recite"), "assistant:", said("You said: "+byQuestion+", recite"))
				p.posted(t, 4)
			},
		},
		{
			Name: "another answer behind an error", Agent: "helper", Steps: []step{send("hello"), send(fails), mark(), do("regenerate")},
			check: func(t *testing.T, p *played) {
				if p.Marks[0].Status != "error" {
					t.Errorf("at first the chat was %s, want error", p.Marks[0].Status)
				}
				if p.Status != "ready" || p.Error != "" {
					t.Errorf("the chat is %s with %q, want ready", p.Status, p.Error)
				}
				p.heldOnly(t, "user:", said("hello"), "assistant:", said("You said: hello"), "user:", said(fails), "assistant:", said("Now it goes."))
				p.stored(t)
				p.posted(t, 3)
			},
		},
		{
			Name: "another answer of a client tool", Agent: "helper", Tools: ada, Auto: "tools", Steps: []step{send("ask me"), do("regenerate")},
			check: func(t *testing.T, p *played) {
				p.holds(t, "user:", said("ask me"), "assistant:", done("ask", question, name), said("I was told: "+name))
				p.posted(t, 4)
				p.called(t, "ask", "ask")
			},
		},
	}
}

// repetitions are scenarios with repeated or late requests.
func repetitions(c client) []scenario {
	twice, keyed, stale := c.uniqueText("count", "twice"), c.uniqueText("count", "keyed"), c.uniqueText("count", "stale")
	body := func(id, text string) map[string]any {
		return map[string]any{"id": "{session}", "agentType": "helper", "trigger": "submit-message", "messages": []any{userMessage(id, text)}}
	}
	behind := func(run, text string) map[string]any {
		b := body("behind "+run, text)
		b["runId"] = run
		return b
	}
	return []scenario{
		{
			Name: "two equal requests", Agent: "helper",
			Steps: []step{
				do("twice", "path", "/chat", "body", body("one", twice)), post("/chat", body("one", twice)), post("/chat", body("one", "another text")),
			},
			check: func(t *testing.T, p *played) {
				for i := range 3 {
					p.answered(t, i, 200, "Answer 1.")
					if p.Answers[i].Run != p.Answers[0].Run {
						t.Errorf("answer %d is run %s, want %s as the first", i, p.Answers[i].Run, p.Answers[0].Run)
					}
				}
				p.answered(t, 3, 409, `"MESSAGE_EXISTS"`)
				p.asked(t, twice, 1)
			},
		},
		{
			Name: "two requests under one key", Agent: "helper",
			Steps: []step{
				do("request", "path", "/chat", "body", body("one", keyed), "headers", map[string]any{"X-Holdfast-Request-Key": "a key"}),
				do("request", "path", "/chat", "body", body("one", keyed), "headers", map[string]any{"X-Holdfast-Request-Key": "a key"}),
				do("request", "path", "/chat", "body", body("two", "another text"), "headers", map[string]any{"X-Holdfast-Request-Key": "a key"}),
			},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 200, "Answer 1.")
				p.answered(t, 1, 200, "Answer 1.")
				p.answered(t, 2, 409, `"REQUEST_KEY_REUSED"`)
				p.asked(t, keyed, 1)
			},
		},
		{
			Name: "a request behind the newest run", Agent: "helper",
			Steps: []step{
				send(stale), post("/chat", behind("no such run", "lost")),
				do("request", "path", "/chat", "body", body("behind by header", "lost"), "headers", map[string]any{"X-Holdfast-Run-Id": "no such run"}),
				post("/chat", behind("{run}", "hello")), reload(),
			},
			check: func(t *testing.T, p *played) {
				p.answered(t, 0, 409, `"RUN_STALE"`)
				p.answered(t, 1, 409, `"RUN_STALE"`)
				p.answered(t, 2, 200, "You said: hello")
				p.holds(t, "user:", said(stale), "assistant:", said("Answer 1."), "user:", said("hello"), "assistant:", said("You said: hello"))
			},
		},
	}
}
