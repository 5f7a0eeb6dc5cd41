package react_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// app is the app's own server: it serves the page, runs the page's tools, and forwards everything else to the
// gateway.
type app struct {
	url string

	mu       sync.Mutex
	gateway  *httputil.ReverseProxy
	sessions map[string]*record
}

// record holds the requests of one session.
type record struct {
	posts []string      // to /chat, in order
	runs  []string      // names of the executed page tools
	held  chan struct{} // held tools wait until it is closed
	cut   cut           // for the next request to /chat
	// wire is the traffic between pages and gateway, for failure messages.
	wire []*exchange
}

// exchange is a request and its answer, each truncated to wireKept.
type exchange struct {
	http.ResponseWriter
	mu   sync.Mutex
	text strings.Builder
	cut  cut
}

// cut is how a connection breaks after the gateway has begun its answer.
type cut int

const (
	whole  cut = iota
	begun      // the page has received the start of the answer
	silent     // the page has received nothing; browsers may repeat the request
)

const wireKept = 6000

// Write forwards the gateway's output, or breaks the connection.
func (e *exchange) Write(text []byte) (int, error) {
	if e.cut != whole {
		e.keep("(cut)")
		if e.cut == begun {
			_, _ = e.ResponseWriter.Write([]byte(": begun\n\n")) // fails if the page has disconnected
			_ = http.NewResponseController(e.ResponseWriter).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	e.keep(string(text))
	return e.ResponseWriter.Write(text)
}

// WriteHeader forwards the status.
func (e *exchange) WriteHeader(status int) {
	e.keep(fmt.Sprintf("\n%d\n", status))
	e.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController access to Flush.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *exchange) keep(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.text.Len() < wireKept {
		e.text.WriteString(text)
	}
}

// startApp starts the server; it ends with the test.
func startApp(t *testing.T) *app {
	t.Helper()
	script := bundle(t)
	page, err := os.ReadFile("app/index.html")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{sessions: map[string]*record{}}
	serve := func(contentType string, content []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(content) // fails if the browser has disconnected
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", serve("text/html; charset=utf-8", page))
	mux.Handle("GET /app.js", serve("text/javascript; charset=utf-8", script))
	mux.HandleFunc("POST /tools/{tool}", a.runTool)
	mux.HandleFunc("/", a.pass)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// front forwards all other requests to a gateway.
func (a *app) front(gateway string) {
	target, err := url.Parse(gateway)
	if err != nil {
		panic(err) // the address of our own process
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gateway = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // flush at once
		// A page that leaves aborts its requests, which is normal.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
}

func (a *app) pass(w http.ResponseWriter, r *http.Request) {
	e := &exchange{ResponseWriter: w}
	e.keep(r.Method + " " + r.URL.Path + "\n")
	if session, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/stream"), "/chat/"); ok {
		a.wire(session, e)
	}
	if r.Method == http.MethodPost && r.URL.Path == "/chat" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		e.keep(string(body))
		a.note(body, e)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	a.mu.Lock()
	gateway := a.gateway
	a.mu.Unlock()
	// A broken upstream body must break the page's connection too; net/http does so by a panic.
	gateway.ServeHTTP(e, r)
}

// wire records an exchange of the session.
func (a *app) wire(session string, e *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(session)
	r.wire = append(r.wire, e)
}

// traffic returns the traffic of a session.
func (a *app) traffic(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all strings.Builder
	for _, e := range a.record(session).wire {
		e.mu.Lock()
		all.WriteString(e.text.String() + "\n")
		e.mu.Unlock()
	}
	return all.String()
}

// resumes returns how many requests for a running answer have been answered.
func (a *app) resumes(session string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.record(session).wire {
		e.mu.Lock()
		request, answer, _ := strings.Cut(e.text.String(), "\n")
		if strings.HasPrefix(request, "GET ") && strings.TrimSpace(answer) != "" {
			n++
		}
		e.mu.Unlock()
	}
	return n
}

// breakNext breaks the connection of the session's next request to /chat once the gateway has begun its answer.
func (a *app) breakNext(session string, how cut) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(session).cut = how
}

// note records the content of a request to /chat.
func (a *app) note(body []byte, e *exchange) {
	var chat struct {
		ID        string `json:"id"`
		Trigger   string `json:"trigger"`
		MessageID string `json:"messageId"`
		Messages  []struct {
			Role string `json:"role"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &chat); err != nil || len(chat.Messages) == 0 {
		chat.Trigger = fmt.Sprintf("no request: %v", err)
	}
	what := chat.Trigger
	if n := len(chat.Messages); n > 0 {
		what += " behind " + chat.Messages[n-1].Role
	}
	if chat.MessageID != "" {
		what += " of a message"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(chat.ID)
	r.posts, r.wire = append(r.posts, what), append(r.wire, e)
	e.cut, r.cut = r.cut, whole
}

// runTool runs the page's tool: it locates the user.
func (a *app) runTool(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Session string `json:"session"`
		Input   struct {
			Hold bool `json:"hold"`
			Fail bool `json:"fail"`
		} `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	record := a.record(call.Session)
	record.runs = append(record.runs, r.PathValue("tool"))
	held := record.held
	a.mu.Unlock()
	if call.Input.Hold {
		select {
		case <-held:
		case <-r.Context().Done(): // the page has disconnected
			return
		}
	}
	answer := map[string]any{"output": map[string]any{"city": "Rome"}}
	if call.Input.Fail {
		answer = map[string]any{"error": "the user does not want to be found"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails if the page has disconnected
}

// record returns the record of a session; the caller holds mu.
func (a *app) record(session string) *record {
	r := a.sessions[session]
	if r == nil {
		r = &record{held: make(chan struct{})}
		a.sessions[session] = r
	}
	return r
}

// release lets the session's held tools end, now and later.
func (a *app) release(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.record(session).held)
}

// posts returns the session's requests to /chat, one per line.
func (a *app) posts(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.record(session).posts, "\n")
}

// runs returns the tools executed by the session's pages. A page runs the tools of a reply in parallel, so the
// order is arbitrary.
func (a *app) runs(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(a.record(session).runs)), " ")
}
