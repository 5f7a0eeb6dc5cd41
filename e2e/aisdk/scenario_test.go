package aisdk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// scenario lists the actions of a user and a page, and checks the result.
type scenario struct {
	Name    string            `json:"name"`
	Session string            `json:"session"`
	Agent   string            `json:"agent"`
	Tools   map[string]answer `json:"tools,omitempty"` // results of the page's tools
	// ToolsFrom is the first page with tools: 1 is the page after the first reload.
	ToolsFrom int               `json:"toolsFrom,omitempty"`
	Auto      string            `json:"auto,omitempty"` // when the chat sends automatically: tools, approvals, both
	Headers   map[string]string `json:"headers,omitempty"`
	Body      map[string]any    `json:"body,omitempty"`
	LastOnly  bool              `json:"lastOnly,omitempty"` // the page sends only its last message
	Socket    bool              `json:"socket,omitempty"`
	Held      []any             `json:"held,omitempty"` // the messages that the page has before it sends
	Steps     []step            `json:"steps"`

	from  int // the first major with the needed features; 0 for every version
	check func(*testing.T, *played)
}

// answer is the result of a page tool.
type answer struct {
	Output any `json:"output,omitempty"`
	Error  any `json:"errorText,omitempty"`
}

// step is a method of play.mjs's Play with its arguments.
type step map[string]any

func do(what string, arguments ...any) step {
	s := step{"do": what}
	for i := 0; i < len(arguments); i += 2 {
		s[arguments[i].(string)] = arguments[i+1]
	}
	return s
}

// Actions of users.
func send(text string) step            { return do("send", "text", text) }
func edit(nth int, text string) step   { return do("send", "text", text, "nth", nth) }
func begin(text string) step           { return do("begin", "text", text) }
func output(tool string, out any) step { return do("output", "tool", tool, "output", out) }
func approve(tool string) step         { return do("decide", "tool", tool, "approved", true) }
func deny(tool, reason string) step {
	return do("decide", "tool", tool, "approved", false, "reason", reason)
}

// Actions of pages.
func reload() step               { return do("reload") }
func resume() step               { return do("resume") }
func settle() step               { return do("settle") }
func mark() step                 { return do("mark") }
func textOf(characters int) step { return do("textOf", "characters", characters) }

// Other actions.
func post(path string, body any) step { return do("request", "path", path, "body", body) }
func status(want string) step         { return do("status", "status", want) }

// ada are the default results of the page's tools.
var ada = map[string]answer{"ask": {Output: map[string]any{"name": "Ada"}}, "locate": {Output: map[string]any{"city": "Rome"}}}

// played is the result of a scenario.
type played struct {
	held
	Failure string // of the scenario itself
	Posts   []struct {
		Trigger, MessageID, Role, Run string
		Messages, Status              int
	}
	Frames []struct{ Type string } // sent over a socket
	// Answers are the responses to requests outside of the chat.
	Answers []struct {
		Code      int
		Body, Run string
	}
	Marks   []held // intermediate states of the chat
	Streams []struct {
		Request string
		Major   int // the client's major; 0 for the scenario's own
		Chunks  []json.RawMessage
	}

	world  *world
	client client
	name   string
}

// held is the state of a chat.
type held struct {
	Status, Error string
	Messages      []message
	ToolCalls     []string
	Data          []struct {
		Type string
		Data json.RawMessage
	}
	Errors   []string
	Finishes []struct {
		IsAbort, IsDisconnect, IsError bool
		FinishReason                   string
	}
}

type message struct {
	harness.UIMessage
	Metadata json.RawMessage
}

// session returns the id of the scenario's session.
func (p *played) session() string { return fmt.Sprintf("%s with ai %d", p.name, p.client.Major) }

// ui returns the messages without version-specific parts.
func (h *held) ui() []harness.UIMessage {
	var messages []harness.UIMessage
	for _, m := range h.Messages {
		messages = append(messages, m.UIMessage)
	}
	return messages
}

// ready verifies that the scenario succeeded.
func (p *played) ready(t *testing.T) {
	t.Helper()
	if p.Status != "ready" || p.Error != "" || len(p.Errors) > 0 {
		t.Errorf("the chat is %s with the error %q, was told %q; want ready and no error", p.Status, p.Error, p.Errors)
	}
}

// holds compares the client's conversation, and checks that the same is stored.
func (p *played) holds(t *testing.T, want ...string) {
	t.Helper()
	p.ready(t)
	p.heldOnly(t, want...)
	p.stored(t)
}

// heldOnly compares the client's conversation: "user:" and "assistant:" begin a message, the other lines are its
// content.
func (p *played) heldOnly(t *testing.T, want ...string) {
	t.Helper()
	if got, want := harness.Transcript(p.ui()), transcript(want); got != want {
		t.Errorf("the client holds\n%swant\n%s", got, want)
	}
}

func transcript(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		if line == "user:" || line == "assistant:" {
			b.WriteString(line + "\n")
		} else {
			b.WriteString("  " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return b.String()
}

// stored compares the client's messages with GET /messages: ids, contents, and decisions on approvals.
func (p *played) stored(t *testing.T) {
	t.Helper()
	stored := p.world.Messages(t, p.session())
	if got, want := harness.Transcript(p.ui()), harness.Transcript(stored); got != want {
		t.Errorf("the client holds\n%sbut the conversation is\n%s", got, want)
		return
	}
	for i, m := range p.ui() {
		if m.ID != stored[i].ID {
			t.Errorf("message %d has the id %q at the client and %q in the conversation", i, m.ID, stored[i].ID)
		}
		if len(m.Parts) != len(stored[i].Parts) {
			t.Errorf("message %d has %d parts at the client and %d in the conversation", i, len(m.Parts), len(stored[i].Parts))
			continue
		}
		for j, part := range m.Parts {
			if p.client.Major < 7 && part.Approval != nil && part.Approval.Approved == nil && part.State != "approval-requested" {
				continue // versions before 7 receive the outcome of another client's decision, not the decision
			}
			if got, want := fmt.Sprint(verdict(part)), fmt.Sprint(verdict(stored[i].Parts[j])); got != want {
				t.Errorf("message %d has the approval %s of %s at the client and %s in the conversation", i, got, part.Tool(), want)
			}
		}
	}
}

// verdict describes the decision in a part.
func verdict(p harness.UIPart) string {
	switch a := p.Approval; {
	case a == nil:
		return "none"
	case a.Approved == nil:
		return a.ID + " open"
	default:
		return fmt.Sprintf("%s %t %q", a.ID, *a.Approved, a.Reason)
	}
}

// posted checks the number of posts.
func (p *played) posted(t *testing.T, times int) {
	t.Helper()
	if len(p.Posts) != times {
		t.Errorf("the chat has posted %d times, want %d: %+v", len(p.Posts), times, p.Posts)
	}
}

// called checks the calls passed to the page.
func (p *played) called(t *testing.T, tools ...string) {
	t.Helper()
	if !slices.Equal(p.ToolCalls, tools) {
		t.Errorf("the page was told to run %q, want %q", p.ToolCalls, tools)
	}
}

// answered checks the response to a request outside of the chat: its code and a part of its body.
func (p *played) answered(t *testing.T, nth, code int, piece string) {
	t.Helper()
	if len(p.Answers) <= nth {
		t.Errorf("there are %d answers, want one more than %d", len(p.Answers), nth)
	} else if a := p.Answers[nth]; a.Code != code || !strings.Contains(a.Body, piece) {
		t.Errorf("answer %d is %d %s, want %d with %s", nth, a.Code, a.Body, code, piece)
	}
}

// ended checks the finish reason of the last answer.
func (p *played) ended(t *testing.T, want string) {
	t.Helper()
	if n := len(p.Finishes); p.client.Major > 5 && (n == 0 || p.Finishes[n-1].FinishReason != want) {
		t.Errorf("the answers ended with %+v, want %s as the last reason", p.Finishes, want)
	}
}

// asked checks the number of model requests for the text.
func (p *played) asked(t *testing.T, text string, times int) {
	t.Helper()
	if got := len(p.world.brain.provider.Requests(text)); got != times {
		t.Errorf("the model was asked for %q %d times, want %d", text, got, times)
	}
}

// effects checks how often a note was written.
func (p *played) effects(t *testing.T, text string, times int) {
	t.Helper()
	if lines := p.world.Effects.Lines(text); len(lines) != times {
		t.Errorf("there are the notes %q, want %d", lines, times)
	}
}

// The lines of a message's content.

func said(text string) string { return fmt.Sprintf("text %q", text) }

func call(tool, input, state, outcome string) string {
	return fmt.Sprintf("%s%s %s %s", tool, input, state, outcome)
}

// done describes a successful call.
func done(tool, input, output string) string { return call(tool, input, "output-available", output) }
