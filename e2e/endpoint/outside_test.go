package endpoint_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// outside is the world that the apps act on: a ledger of effects, and gates at which a tool waits for the suite.
type outside struct {
	URL string

	lag     atomic.Int64 // the longest delay before and after each effect, in nanoseconds
	mu      sync.Mutex
	posts   []post
	waiting map[string]int // requests at a gate that have arrived so far
	open    map[string]chan struct{}
	changed chan struct{} // closed and replaced at every change
}

// post is one effect. Label begins with the id of its session and a slash.
type post struct{ Key, Label string }

// startOutside starts the world; it ends with the test.
func startOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{waiting: map[string]int{}, open: map[string]chan struct{}{}, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /post", func(w http.ResponseWriter, r *http.Request) {
		var p post
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Label == "" {
			http.Error(w, "the ledger wants a label", http.StatusBadRequest)
			return
		}
		o.pause(r)
		o.change(func() { o.posts = append(o.posts, p) })
		o.pause(r)
	})
	mux.HandleFunc("POST /gate", func(w http.ResponseWriter, r *http.Request) {
		var gate struct{ Name string }
		if err := json.NewDecoder(r.Body).Decode(&gate); err != nil || gate.Name == "" {
			http.Error(w, "a gate wants a name", http.StatusBadRequest)
			return
		}
		o.change(func() { o.waiting[gate.Name]++ })
		select {
		case <-o.gate(gate.Name):
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	o.URL = server.URL
	return o
}

// pause delays an effect, or its confirmation.
func (o *outside) pause(r *http.Request) {
	lag := o.lag.Load()
	if lag == 0 {
		return
	}
	select {
	case <-time.After(time.Duration(rand.Int64N(lag))):
	case <-r.Context().Done():
	}
}

func (o *outside) change(edit func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	edit()
	close(o.changed)
	o.changed = make(chan struct{})
}

// gate returns the channel that is closed when the gate opens.
func (o *outside) gate(name string) chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[name] == nil {
		o.open[name] = make(chan struct{})
	}
	return o.open[name]
}

// Open opens a gate for all that wait at it and all that come.
func (o *outside) Open(name string) {
	gate := o.gate(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-gate:
	default:
		close(gate)
	}
}

// Labels returns the effects of a session in order, without the id of the session.
func (o *outside) Labels(session string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var labels []string
	for _, p := range o.posts {
		if label, ok := strings.CutPrefix(p.Label, session+"/"); ok {
			labels = append(labels, label)
		}
	}
	return labels
}

// Posts returns the effects with the label.
func (o *outside) Posts(label string) []post {
	o.mu.Lock()
	defer o.mu.Unlock()
	var posts []post
	for _, p := range o.posts {
		if p.Label == label {
			posts = append(posts, p)
		}
	}
	return posts
}

// await waits until done is true.
func (o *outside) await(t testing.TB, what string, done func() bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		o.mu.Lock()
		changed := o.changed
		o.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// AwaitGate waits until n requests have come to the gate.
func (o *outside) AwaitGate(t testing.TB, name string, n int) {
	t.Helper()
	o.await(t, "a call at the gate "+name, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.waiting[name] >= n
	})
}

// AwaitLabel waits for an effect of the session whose label begins with the text.
func (o *outside) AwaitLabel(t testing.TB, session, beginning string) {
	t.Helper()
	o.await(t, "the effect "+beginning+" of "+session, func() bool {
		for _, label := range o.Labels(session) {
			if strings.HasPrefix(label, beginning) {
				return true
			}
		}
		return false
	})
}

// model is the scripted model of all sessions: a provider with the API of OpenAI. The messages of users name the script in
// brackets.
type model struct {
	*harness.Provider

	mu      sync.Mutex
	scripts map[string]script
	asked   map[string][]request
}

// script has the replies to one session. They are counted by the replies in the conversation, or, if it is shortened, by the
// requests.
type script struct {
	turns     []turn
	shortened bool
}

// request is one call of the model.
type request struct {
	System   string
	Tools    []offered
	Messages []map[string]any
	Body     map[string]any
}

// offered is a tool as the model sees it.
type offered struct {
	Name, Description string
	Parameters        json.RawMessage
	Strict            bool
}

func startModel(t *testing.T) *model {
	t.Helper()
	m := &model{scripts: map[string]script{}, asked: map[string][]request{}}
	m.Provider = harness.StartProvider(t, m.reply)
	return m
}

// Write gives a script to the model.
func (m *model) Write(name string, turns []turn) { m.write(name, script{turns: turns}) }

func (m *model) write(name string, s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scripts[name] = s
}

// Asked returns the requests for a script so far.
func (m *model) Asked(name string) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[name]
}

func (m *model) reply(s *harness.Speech) {
	q := read(s.Body)
	replies := 0
	var said []string
	for _, message := range q.Messages {
		switch text, _ := message["content"].(string); message["role"] {
		case "assistant":
			replies++
		case "user":
			said = append(said, text)
		}
	}
	name, found := m.find(said)
	m.mu.Lock()
	if found.shortened {
		replies = len(m.asked[name])
	}
	m.asked[name] = append(m.asked[name], q)
	m.mu.Unlock()
	if replies >= len(found.turns) {
		s.Text(fmt.Sprintf("the script %q has no turn %d", name, replies+1))
		s.End()
		return
	}
	next := found.turns[replies]
	if next.text != "" {
		s.Text(next.text)
	}
	for i, c := range next.calls {
		s.Call(callID(replies+1, i+1), c.tool, strings.ReplaceAll(c.arguments, sessionMark, scriptSession(name)))
	}
	s.End()
}

// find finds the script that a message names in brackets.
func (m *model) find(said []string) (name string, s script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, text := range said {
		_, rest, _ := strings.Cut(text, "[")
		named, _, _ := strings.Cut(rest, "]")
		if found, ok := m.scripts[named]; ok {
			return named, found
		}
	}
	return "", script{}
}

// read reads a request of OpenAI's chat completions.
func read(body map[string]any) request {
	q := request{Body: body}
	messages, _ := body["messages"].([]any)
	for _, m := range messages {
		message, _ := m.(map[string]any)
		if parts, ok := message["content"].([]any); ok {
			text := ""
			for _, p := range parts {
				part, _ := p.(map[string]any)
				piece, _ := part["text"].(string)
				text += piece
			}
			message["content"] = text
		}
		if role := message["role"]; role == "system" || role == "developer" {
			text, _ := message["content"].(string)
			q.System += text
			continue
		}
		q.Messages = append(q.Messages, message)
	}
	text, err := json.Marshal(body["tools"])
	if err != nil {
		panic(err) // it came as JSON
	}
	var tools []struct{ Function offered }
	if err := json.Unmarshal(text, &tools); err != nil {
		panic(err)
	}
	for _, t := range tools {
		q.Tools = append(q.Tools, t.Function)
	}
	return q
}
