package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Provider is a fake model provider. It implements OpenAI's chat completions and Anthropic's messages; its
// callback writes the answers.
type Provider struct {
	// URL is the baseURL for both providers.
	URL string

	mu       sync.Mutex
	requests []ProviderRequest
}

// ProviderRequest is a received request.
type ProviderRequest struct {
	Wire string // openai or anthropic
	Body map[string]any
	At   time.Time
}

// LastUser returns the newest user text in the request.
func (r ProviderRequest) LastUser() string {
	users := r.Users()
	if len(users) == 0 {
		return ""
	}
	return users[len(users)-1]
}

// Users returns the user texts in the request, in order.
func (r ProviderRequest) Users() []string {
	var texts []string
	messages, _ := r.Body["messages"].([]any)
	for _, message := range messages {
		if m, _ := message.(map[string]any); m["role"] == "user" {
			texts = append(texts, contentText(m["content"]))
		}
	}
	return texts
}

func contentText(content any) string {
	if text, ok := content.(string); ok {
		return text
	}
	var b strings.Builder
	parts, _ := content.([]any)
	for _, p := range parts {
		if part, ok := p.(map[string]any); ok {
			text, _ := part["text"].(string)
			b.WriteString(text)
		}
	}
	return b.String()
}

// Speech writes one answer of a Provider.
type Speech struct {
	ProviderRequest
	// Number counts the requests, from 1.
	Number int

	w     http.ResponseWriter
	r     *http.Request
	begun bool
	block int  // the index of Anthropic's open block; below 0 for none
	texts bool // the open block is a text
	calls int  // number of calls so far
}

// StartProvider starts a provider. It runs say for every request, and ends with the test.
func StartProvider(t testing.TB, say func(*Speech)) *Provider {
	t.Helper()
	p := &Provider{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := ProviderRequest{Wire: "openai", At: time.Now()}
		if strings.HasSuffix(r.URL.Path, "/messages") {
			q.Wire = "anthropic"
		}
		if err := json.NewDecoder(r.Body).Decode(&q.Body); err != nil {
			http.Error(w, "the request is not JSON", http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.requests = append(p.requests, q)
		n := len(p.requests)
		p.mu.Unlock()
		say(&Speech{ProviderRequest: q, Number: n, w: w, r: r, block: -1})
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.URL = server.URL
	return p
}

// Requests returns the requests so far with lastUser as their newest user text.
func (p *Provider) Requests(lastUser string) []ProviderRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	var asked []ProviderRequest
	for _, r := range p.requests {
		if r.LastUser() == lastUser {
			asked = append(asked, r)
		}
	}
	return asked
}

// Text sends a piece of text.
func (s *Speech) Text(text string) {
	s.begin()
	if s.Wire == "anthropic" {
		if !s.texts {
			s.texts = true
			s.open(`{"type":"text","text":""}`)
		}
		s.event(
			"content_block_delta",
			fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%s}}`, s.block, jsonString(text)),
		)
		return
	}
	s.openAI(fmt.Sprintf(`{"content":%s}`, jsonString(text)), "null")
}

// Call sends a tool call with JSON arguments after the answer's text.
func (s *Speech) Call(id, name, arguments string) {
	s.begin()
	index := s.calls
	s.calls++
	if s.Wire == "anthropic" {
		s.close()
		s.open(fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":{}}`, id, name))
		s.event(
			"content_block_delta",
			fmt.Sprintf(
				`{"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%s}}`,
				s.block,
				jsonString(arguments),
			),
		)
		return
	}
	s.openAI(
		fmt.Sprintf(
			`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}]}`,
			index,
			id,
			name,
			jsonString(arguments),
		),
		"null",
	)
}

// End ends the answer.
func (s *Speech) End() {
	s.begin()
	reason := map[string]string{"openai": "stop", "anthropic": "end_turn"}[s.Wire]
	if s.calls > 0 {
		reason = map[string]string{"openai": "tool_calls", "anthropic": "tool_use"}[s.Wire]
	}
	if s.Wire == "anthropic" {
		s.close()
		s.event(
			"message_delta",
			fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":5}}`, reason),
		)
		s.event("message_stop", `{"type":"message_stop"}`)
		return
	}
	s.openAI(`{}`, fmt.Sprintf("%q", reason))
	s.event("", "[DONE]")
}

// open opens one of Anthropic's blocks; close closes the open one.
func (s *Speech) open(block string) {
	s.block++
	s.event("content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, s.block, block))
}

func (s *Speech) close() {
	if s.block >= 0 {
		s.event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, s.block))
	}
}

// Refuse answers with an HTTP status, an error kind, and headers: name, value, ….
func (s *Speech) Refuse(status int, kind string, headers ...string) {
	for i := 0; i+1 < len(headers); i += 2 {
		s.w.Header().Set(headers[i], headers[i+1])
	}
	s.w.Header().Set("Content-Type", "application/json")
	s.w.WriteHeader(status)
	text := `{"error":{"message":"refused by the test","type":%[1]q,"code":%[1]q}}`
	if s.Wire == "anthropic" {
		text = `{"type":"error","error":{"type":%[1]q,"message":"refused by the test"}}`
	}
	_, _ = fmt.Fprintf(s.w, text, kind) // fails if the caller has disconnected
}

// Cut breaks the connection in the middle of the answer.
func (*Speech) Cut() { panic(http.ErrAbortHandler) }

// Hang sends nothing more until the caller disconnects. It reports whether the caller did so within the limit.
func (s *Speech) Hang(limit time.Duration) bool {
	s.begin()
	select {
	case <-s.r.Context().Done():
		return true
	case <-time.After(limit):
		return false
	}
}

// Await sends nothing until the channel is closed. It reports false if the caller disconnects first.
func (s *Speech) Await(closed <-chan struct{}) bool {
	s.begin()
	select {
	case <-closed:
		return true
	case <-s.r.Context().Done():
		return false
	}
}

func (s *Speech) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.WriteHeader(http.StatusOK)
	if s.Wire == "anthropic" {
		s.event(
			"message_start",
			`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"fake","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}`,
		)
		return
	}
	s.openAI(`{"role":"assistant","content":""}`, "null")
}

func (s *Speech) openAI(delta, finish string) {
	s.event(
		"",
		fmt.Sprintf(
			`{"id":"c1","object":"chat.completion.chunk","created":1795000000,"model":"fake","choices":[{"index":0,"delta":%s,"finish_reason":%s}],"usage":null}`,
			delta,
			finish,
		),
	)
}

func (s *Speech) event(name, data string) {
	if name != "" {
		_, _ = fmt.Fprintf(s.w, "event: %s\n", name) // fails if the caller has disconnected; the same below
	}
	_, _ = fmt.Fprintf(s.w, "data: %s\n\n", data)
	_ = http.NewResponseController(s.w).Flush()
}

func jsonString(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always marshals
	}
	return string(b)
}
