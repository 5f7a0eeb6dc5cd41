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

// app is the app's own server: it gives the page, runs the tools of the page, and
// passes everything else on to the gateway.
type app struct {
	url string

	mu       sync.Mutex
	gateway  *httputil.ReverseProxy
	sessions map[string]*record
}

// record is what has come to the app's server for one session.
type record struct {
	posts []string      // to /chat, in their order
	runs  []string      // of the page's tools: the name of each
	held  chan struct{} // tools that are to be held wait until it is closed
	cut   cut           // of the next request to /chat
	// wire is what pages and gateway have said to each other, for failures.
	wire []*exchange
}

// exchange is a request and what has come of its answer; each is cut to wireKept.
type exchange struct {
	http.ResponseWriter
	mu   sync.Mutex
	text strings.Builder
	cut  cut
}

// cut is how the connection of a request breaks when the gateway has begun to answer.
type cut int

const (
	whole  cut = iota
	begun      // the page has seen that it is answered
	silent     // it has not, and browsers may send the request once more by themselves
)

const wireKept = 6000

// Write passes on what the gateway says, or breaks the connection.
func (e *exchange) Write(text []byte) (int, error) {
	if e.cut != whole {
		e.keep("(cut)")
		if e.cut == begun {
			_, _ = e.ResponseWriter.Write([]byte(": begun\n\n")) // a page that is gone has its cut
			_ = http.NewResponseController(e.ResponseWriter).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	e.keep(string(text))
	return e.ResponseWriter.Write(text)
}

// WriteHeader passes on the status.
func (e *exchange) WriteHeader(status int) {
	e.keep(fmt.Sprintf("\n%d\n", status))
	e.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController what can flush.
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
			_, _ = w.Write(content) // a browser that is gone needs no answer
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

// front has everything that is not the app's passed on to a gateway.
func (a *app) front(gateway string) {
	target, err := url.Parse(gateway)
	if err != nil {
		panic(err) // the address of a process that we have started
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gateway = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, // at once
		// A page that leaves ends its requests in the middle, which is no news.
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
	// A connection that breaks in the middle of a body is broken to the page, too,
	// which net/http does by a panic.
	gateway.ServeHTTP(e, r)
}

// wire writes down an exchange of the session.
func (a *app) wire(session string, e *exchange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.record(session)
	r.wire = append(r.wire, e)
}

// said gives what pages and gateway have said to each other about a session.
func (a *app) said(session string) string {
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

// breakNext breaks the connection of the session's next request to /chat as soon as the
// gateway has begun to answer.
func (a *app) breakNext(session string, how cut) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record(session).cut = how
}

// note writes down what a request to /chat is about.
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

// runTool does what a page's tool does: it finds out where the user is.
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
		case <-r.Context().Done(): // the page is gone
			return
		}
	}
	answer := map[string]any{"output": map[string]any{"city": "Rome"}}
	if call.Input.Fail {
		answer = map[string]any{"error": "the user does not want to be found"}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // a page that is gone needs no answer
}

// record gives the record of a session; the caller holds mu.
func (a *app) record(session string) *record {
	r := a.sessions[session]
	if r == nil {
		r = &record{held: make(chan struct{})}
		a.sessions[session] = r
	}
	return r
}

// release lets the session's tools end that are held, now and later.
func (a *app) release(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.record(session).held)
}

// posts tells what was sent to /chat for a session, one a line.
func (a *app) posts(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.record(session).posts, "\n")
}

// runs tells which tools the session's pages have run. The order means nothing: a page
// runs the tools of one reply at once.
func (a *app) runs(session string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(a.record(session).runs)), " ")
}
