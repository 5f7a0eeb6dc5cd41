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

// paceLimit is how long the model waits for its reader.
const paceLimit = 2 * time.Minute

// done is the model's text after the results of its calls.
const done = "Now it is done ."

// entry is one message of a request to the model.
type entry struct {
	role, text string
	calls      []string // of the assistant
	callID     string   // of a result
}

// request is a request to the model.
type request []entry

// model is a fake provider. It calls the tools named by the user's first word and records its requests. Users
// say "WORD SESSION".
type model struct {
	*harness.Provider

	mu                sync.Mutex
	requestsBySession map[string][]request // by session
	paces             map[string]*pace     // by session
}

func startModel(t *testing.T) *model {
	t.Helper()
	m := &model{requestsBySession: map[string][]request{}, paces: map[string]*pace{}}
	m.Provider = harness.StartProvider(t, m.answer)
	return m
}

// words are the user words known to the model.
var words = []string{"ask", "hurry", "pay", "mixed", "say", "never", "go"}

func (m *model) answer(s *harness.Speech) {
	r := decodeRequest(s.Body)
	session, word, answered := r.subject()
	m.mu.Lock()
	m.requestsBySession[session] = append(m.requestsBySession[session], r)
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

// requests returns the model's requests of a session.
func (m *model) requests(session string) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requestsBySession[session])
}

// decodeRequest decodes a request of OpenAI's API.
func decodeRequest(body map[string]any) request {
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

// subject returns the session, the user's last word, and whether the resulting calls have been answered.
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

// problem describes a violation in the request, or returns "": the assistant's calls must be followed by exactly
// one result each.
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

// result returns the result of a call, and the number of results.
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

// pace lets the model send a word once its reader has the previous one. A nil pace never waits.
type pace struct {
	mu      sync.Mutex
	has     string // the reader's text
	late    bool   // the reader fell behind
	changed chan struct{}
}

// pace makes the model wait for the readers of a session. They report their progress with follow.
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

// fellBehind reports whether a reader fell behind.
func (p *pace) fellBehind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}
