package human_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// paceLimit is how long the model waits for its reader to have what it said.
const paceLimit = 2 * time.Minute

// done is what the model says when it has the results of its calls.
const done = "Now it is done ."

// entry is one message of a request to the model.
type entry struct {
	role, text string
	calls      []string // of the assistant
	callID     string   // of a result
}

// request is what the model was asked with.
type request []entry

// model is the fake of a provider, which calls the tools that the user's first word
// says, and remembers what it was asked. Users say "WORD SESSION".
type model struct {
	*harness.Provider

	mu    sync.Mutex
	heard map[string][]request // by session
	paces map[string]*pace     // by session
}

func startModel(t *testing.T) *model {
	t.Helper()
	m := &model{heard: map[string][]request{}, paces: map[string]*pace{}}
	m.Provider = harness.StartProvider(t, m.answer)
	return m
}

// words are those of users that the model knows.
var words = []string{"ask", "hurry", "pay", "mixed", "say", "never", "go"}

func (m *model) answer(s *harness.Speech) {
	r := hear(s.Body)
	session, word, answered := r.subject()
	m.mu.Lock()
	m.heard[session] = append(m.heard[session], r)
	p := m.paces[session]
	m.mu.Unlock()
	switch {
	case answered:
		p.say(s, done)
	case word == "ask":
		p.say(s, "Let me ask .")
		s.Call("call_ask", "ask", `{"question": "How much?"}`)
	case word == "hurry":
		s.Call("call_hurry", "hurry", `{"question": "How much, quickly?"}`)
	case word == "pay":
		p.say(s, "Let me pay .")
		s.Call("call_pay", "pay", fmt.Sprintf(`{"label": %q}`, "pay "+session))
	case word == "mixed":
		p.say(s, "Let me do three .")
		s.Call("call_record", "record", fmt.Sprintf(`{"label": %q}`, "record "+session))
		s.Call("call_ask", "ask", `{"question": "How much?"}`)
		s.Call("call_pay", "pay", fmt.Sprintf(`{"label": %q}`, "pay "+session))
	default:
		p.say(s, "You say "+word+" .")
	}
	s.End()
}

// requests gives what the model was asked with in a session.
func (m *model) requests(session string) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.heard[session])
}

// hear reads a request of OpenAI's wire.
func hear(body map[string]any) request {
	var r request
	messages, _ := body["messages"].([]any)
	for _, each := range messages {
		m, _ := each.(map[string]any)
		e := entry{role: fmt.Sprint(m["role"]), text: text(m["content"])}
		e.callID, _ = m["tool_call_id"].(string)
		calls, _ := m["tool_calls"].([]any)
		for _, each := range calls {
			call, _ := each.(map[string]any)
			e.calls = append(e.calls, fmt.Sprint(call["id"]))
		}
		r = append(r, e)
	}
	return r
}

func text(content any) string {
	if text, ok := content.(string); ok {
		return text
	}
	var all strings.Builder
	parts, _ := content.([]any)
	for _, each := range parts {
		part, _ := each.(map[string]any)
		text, _ := part["text"].(string)
		all.WriteString(text)
	}
	return all.String()
}

// subject is the session, the word that its user has said last, and whether the calls
// that came of it are answered.
func (r request) subject() (session, word string, answered bool) {
	for _, e := range r {
		first, rest, _ := strings.Cut(e.text, " ")
		switch {
		case e.role == "user" && slices.Contains(words, first):
			word, answered = first, false
			if session == "" {
				session = rest
			}
		case e.role == "tool":
			answered = true
		}
	}
	return session, word, answered
}

// problem says what is wrong with the request, "" when nothing is: behind the
// assistant's calls stand their results, one for each, before anything else.
func (r request) problem() string {
	var open []string
	for i, e := range r {
		switch {
		case e.role == "tool":
			at := slices.Index(open, e.callID)
			if at < 0 {
				return fmt.Sprintf("message %d is the result of %q, which is not open there", i, e.callID)
			}
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return fmt.Sprintf("message %d stands before the results of %q", i, open)
		default:
			open = slices.Clone(e.calls)
		}
	}
	if len(open) > 0 {
		return fmt.Sprintf("it has no results of %q", open)
	}
	return ""
}

// result gives the result of a call, and how many there are.
func (r request) result(call string) (text string, n int) {
	for _, e := range r {
		if e.role == "tool" && e.callID == call {
			text = e.text
			n++
		}
	}
	return text, n
}

// String prints the request for failures.
func (r request) String() string {
	var b strings.Builder
	for _, e := range r {
		fmt.Fprintf(&b, "  %s %s%q %q\n", e.role, e.callID, e.text, e.calls)
	}
	return b.String()
}

// pace lets the model say a word when its reader has the one before. Nil lets it say
// everything at once.
type pace struct {
	mu      sync.Mutex
	has     string // the reader's text
	late    bool   // the reader did not follow
	changed chan struct{}
}

// pace makes the model wait for the readers of a session, which tell by follow how far
// they are.
func (m *model) pace(session string) *pace {
	p := &pace{changed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paces[session] = p
	return p
}

func (p *pace) follow(got harness.UIMessage) { p.change(func() { p.has = got.Text() }) }

func (p *pace) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pace) say(s *harness.Speech, text string) {
	if p == nil {
		s.Text(text)
		return
	}
	limit := time.After(paceLimit)
	for word := range strings.SplitAfterSeq(text, " ") {
		s.Text(word)
		for waiting := true; waiting; {
			p.mu.Lock()
			has, changed := p.late || strings.HasSuffix(p.has, word), p.changed
			p.mu.Unlock()
			if has {
				break
			}
			select {
			case <-changed:
			case <-limit:
				p.change(func() { p.late = true })
				waiting = false
			}
		}
	}
}

// lagged reports whether a reader has not followed.
func (p *pace) lagged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}
