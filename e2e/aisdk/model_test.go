package aisdk_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// brain produces the model's replies and records its requests. The part of a user's text before " #" selects the
// reply; the rest keeps texts distinct.
type brain struct {
	provider *harness.Provider

	mu    sync.Mutex
	wrong []string // requests that a real provider would refuse
}

// reply is one reply of the model.
type reply func(b *brain, s *harness.Speech, heard conversation)

// turns are the replies to a text, one per step. The last one serves all further steps. An unlisted text is
// repeated.
var turns = map[string][]reply{
	"note it":             {calling("note", `{"text":%q}`), tell},
	"ask me":              {calling("ask", `{"question":"Who are you?"}`), tell},
	"ask badly":           {calling("ask", `{}`), tell},
	"ask twice":           {both(calling("ask", `{"question":"Who are you?"}`), calling("locate", `{}`)), tell},
	"ask again and again": {calling("ask", `{"question":"Who are you?"}`), calling("ask", `{"question":"And who else?"}`), tell},
	"write":               {calling("note_once", `{"text":%q}`), tell},
	"write and calculate": {both(calling("note_once", `{"text":%q}`), calling("calculate", `{"expression":"6*7"}`)), tell},
	"do all":              {both(calling("note", `{"text":%q}`), calling("ask", `{"question":"Who are you?"}`), calling("calculate", `{"expression":"6*7"}`)), tell},
	"fail once":           {nowItGoes},
	"count":               {count},
	"recite":              {recite},
}

func (b *brain) say(s *harness.Speech) {
	heard := decodeRequest(s.Body)
	b.note(heard)
	if selector(s.LastUser()) == "fail once" && len(b.provider.Requests(s.LastUser())) == 1 {
		s.Refuse(http.StatusUnauthorized, "invalid_api_key") // a refused request would be changed and sent again
		return
	}
	replies := turns[selector(s.LastUser())]
	if len(replies) == 0 {
		replies = []reply{repeat}
	}
	replies[min(heard.steps(), len(replies)-1)](b, s, heard)
	s.End()
}

// selector returns the selecting part of a text.
func selector(text string) string {
	ask, _, _ := strings.Cut(text, " #")
	return ask
}

// calling makes a call. %q in the arguments stands for the user's text.
func calling(tool, arguments string) reply {
	return func(_ *brain, s *harness.Speech, heard conversation) {
		s.Call(fmt.Sprintf("call_%d_%s", s.Number, tool), tool, strings.ReplaceAll(arguments, "%q", fmt.Sprintf("%q", s.LastUser())))
	}
}

func both(replies ...reply) reply {
	return func(b *brain, s *harness.Speech, heard conversation) {
		for _, r := range replies {
			r(b, s, heard)
		}
	}
}

// tell reports the results of the calls.
func tell(_ *brain, s *harness.Speech, heard conversation) {
	s.Text("I was told: " + strings.Join(heard.results(), " | "))
}

func repeat(_ *brain, s *harness.Speech, heard conversation) {
	s.Text("You said: " + s.LastUser())
	if results := heard.results(); len(results) > 0 {
		s.Text(". I was told: " + strings.Join(results, " | "))
	}
	for _, notice := range heard.notices() {
		s.Text(". " + notice)
	}
}

func recite(_ *brain, s *harness.Speech, heard conversation) {
	var users []string
	for _, m := range heard {
		if m.role == "user" {
			users = append(users, m.text)
		}
	}
	s.Text("You said: " + strings.Join(users, ", "))
}

// count reports how often this text was requested.
func count(b *brain, s *harness.Speech, _ conversation) {
	s.Text(fmt.Sprintf("Answer %d.", len(b.provider.Requests(s.LastUser()))))
}

func nowItGoes(_ *brain, s *harness.Speech, _ conversation) { s.Text("Now it goes.") }

// conversation is the content of a request to the model.
type conversation []spoken

type spoken struct {
	role, text string
	callID     string   // of a result
	calls      []string // their ids
}

// decodeRequest decodes a request of OpenAI's API.
func decodeRequest(body map[string]any) conversation {
	var heard conversation
	messages, _ := body["messages"].([]any)
	for _, m := range messages {
		message, _ := m.(map[string]any)
		s := spoken{}
		s.role, _ = message["role"].(string)
		s.text, _ = message["content"].(string)
		s.callID, _ = message["tool_call_id"].(string)
		calls, _ := message["tool_calls"].([]any)
		for _, c := range calls {
			call, _ := c.(map[string]any)
			id, _ := call["id"].(string)
			s.calls = append(s.calls, id)
		}
		heard = append(heard, s)
	}
	return heard
}

// steps returns the number of replies since the user's last text.
func (c conversation) steps() int {
	n := 0
	for _, m := range c {
		switch m.role {
		case "user":
			n = 0
		case "assistant":
			n++
		}
	}
	return n
}

func (c conversation) results() []string {
	var results []string
	for _, m := range c {
		if m.role == "tool" {
			results = append(results, m.text)
		}
	}
	return results
}

// notices returns the runtime's own messages beside the conversation.
func (c conversation) notices() []string {
	var notices []string
	for _, m := range c {
		if _, late, found := strings.Cut(m.text, " came after its deadline: "); m.role != "tool" && found {
			notices = append(notices, "Late: "+late)
		}
	}
	return notices
}

// note records a request whose calls are not answered exactly once, right behind them.
func (b *brain) note(c conversation) {
	var open []string
	for _, m := range c {
		at := slices.Index(open, m.callID)
		switch {
		case m.role == "tool" && at < 0:
			b.blame("the result of %s is not asked for", m.callID, c)
		case m.role == "tool":
			open = slices.Delete(open, at, at+1)
		case len(open) > 0 && m.role != "system":
			b.blame("no result of %s", open[0], c)
		}
		if m.role != "tool" {
			open = m.calls
		}
	}
	if len(open) > 0 {
		b.blame("no result of %s", open[0], c)
	}
}

func (b *brain) blame(format, call string, c conversation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format+" in %+v", call, c))
}

// blames lists the requests that a real provider would refuse.
func (b *brain) blames() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}
