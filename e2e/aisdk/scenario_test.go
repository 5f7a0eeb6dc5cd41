package aisdk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// scenario is what a user and a page do, and what has to come of it.
type scenario struct {
	Name    string            `json:"name"`
	Session string            `json:"session"`
	Agent   string            `json:"agent"`
	Tools   map[string]answer `json:"tools,omitempty"` // what the page's tools answer
	// ToolsFrom is the page from which on there are tools: 1 is the one behind the
	// first reload.
	ToolsFrom int               `json:"toolsFrom,omitempty"`
	Auto      string            `json:"auto,omitempty"` // when the chat sends on by itself: tools, approvals, both
	Headers   map[string]string `json:"headers,omitempty"`
	Body      map[string]any    `json:"body,omitempty"`
	LastOnly  bool              `json:"lastOnly,omitempty"` // the page sends its last message alone
	Socket    bool              `json:"socket,omitempty"`
	Steps     []step            `json:"steps"`

	from  int // the major that knows all that it needs; 0 for every version
	check func(*testing.T, *played)
}

// answer is what a tool of the page comes to.
type answer struct {
	Output any `json:"output,omitempty"`
	Error  any `json:"errorText,omitempty"`
}

// step is one of the methods of play.mjs's Play, with its arguments.
type step map[string]any

func do(what string, arguments ...any) step {
	s := step{"do": what}
	for i := 0; i < len(arguments); i += 2 {
		s[arguments[i].(string)] = arguments[i+1]
	}
	return s
}

// What users do.
func send(text string) step            { return do("send", "text", text) }
func edit(nth int, text string) step   { return do("send", "text", text, "nth", nth) }
func begin(text string) step           { return do("begin", "text", text) }
func output(tool string, out any) step { return do("output", "tool", tool, "output", out) }
func approve(tool string) step         { return do("decide", "tool", tool, "approved", true) }
func deny(tool, reason string) step {
	return do("decide", "tool", tool, "approved", false, "reason", reason)
}

// What pages do.
func reload() step               { return do("reload") }
func resume() step               { return do("resume") }
func settle() step               { return do("settle") }
func mark() step                 { return do("mark") }
func textOf(characters int) step { return do("textOf", "characters", characters) }

// What else happens.
func post(path string, body any) step { return do("request", "path", path, "body", body) }
func status(want string) step         { return do("status", "status", want) }

// ada is what the page's tools answer where nothing else is said.
var ada = map[string]answer{"ask": {Output: map[string]any{"name": "Ada"}}, "locate": {Output: map[string]any{"city": "Rome"}}}

// played is what came of a scenario.
type played struct {
	held
	Failure string // of the scenario itself
	Posts   []struct {
		Trigger, MessageID, Role, Run string
		Messages, Status              int
	}
	Frames []struct{ Type string } // that were sent over a socket
	// Answers are those to the requests beside the chat.
	Answers []struct {
		Code      int
		Body, Run string
	}
	Marks   []held // what the chat held in the middle
	Streams []struct {
		Request string
		Major   int // of the client that it was for; 0 for the scenario's own
		Chunks  []json.RawMessage
	}

	world  *world
	client client
	name   string
}

// held is what a chat holds and was told.
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

// session is the id of the scenario's session.
func (p *played) session() string { return fmt.Sprintf("%s with ai %d", p.name, p.client.Major) }

// ui gives the messages without what only this version has.
func (h *held) ui() []harness.UIMessage {
	var messages []harness.UIMessage
	for _, m := range h.Messages {
		messages = append(messages, m.UIMessage)
	}
	return messages
}

// ready makes sure that all went well.
func (p *played) ready(t *testing.T) {
	t.Helper()
	if p.Status != "ready" || p.Error != "" || len(p.Errors) > 0 {
		t.Errorf("the chat is %s with the error %q, was told %q; want ready and no error", p.Status, p.Error, p.Errors)
	}
}

// holds compares the conversation at the client, and checks that the same is stored.
func (p *played) holds(t *testing.T, want ...string) {
	t.Helper()
	p.ready(t)
	p.heldOnly(t, want...)
	p.stored(t)
}

// heldOnly compares the conversation at the client: "user:" and "assistant:" begin a
// message, the others are lines of its content.
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

// stored compares what the client holds with what GET /messages tells: ids, contents,
// and how approvals were answered.
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
				continue // others than 7 are not told how somebody else has decided, only what came of it
			}
			if got, want := fmt.Sprint(verdict(part)), fmt.Sprint(verdict(stored[i].Parts[j])); got != want {
				t.Errorf("message %d has the approval %s of %s at the client and %s in the conversation", i, got, part.Tool(), want)
			}
		}
	}
}

// verdict is how the approval of a part stands.
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

// posted checks how often the chat has posted.
func (p *played) posted(t *testing.T, times int) {
	t.Helper()
	if len(p.Posts) != times {
		t.Errorf("the chat has posted %d times, want %d: %+v", len(p.Posts), times, p.Posts)
	}
}

// called checks which calls the page was told to run.
func (p *played) called(t *testing.T, tools ...string) {
	t.Helper()
	if !slices.Equal(p.ToolCalls, tools) {
		t.Errorf("the page was told to run %q, want %q", p.ToolCalls, tools)
	}
}

// answered checks the answer to a request beside the chat: its code, and a piece of it.
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

// askedOnce checks that the model was asked for the text so many times.
func (p *played) asked(t *testing.T, text string, times int) {
	t.Helper()
	if got := len(p.world.brain.provider.Asked(text)); got != times {
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

// done is a call that went well.
func done(tool, input, output string) string { return call(tool, input, "output-available", output) }
