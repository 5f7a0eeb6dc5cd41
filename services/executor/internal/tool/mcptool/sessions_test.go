package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// forgetful is a server with sessions that answers the first call of a tool in a way of its own.
type forgetful struct {
	handler  http.Handler
	answer   func(w http.ResponseWriter, id json.RawMessage)
	resume   func(w http.ResponseWriter, id json.RawMessage) // the stream of the first call; nil leaves it to the handler
	always   bool                                            // it answers all calls so
	sessions atomic.Int64
	calls    atomic.Int64
	forget   atomic.Bool  // it denies the session of the next call
	first    atomic.Value // json.RawMessage: the id of the first call
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	_ = json.Unmarshal(body, &message) // a request without a body has no method
	switch message.Method {
	case "server/discover":
		rpcError(w, http.StatusOK, message.ID, -32601, "method not found")
		return
	case "initialize":
		f.sessions.Add(1)
	case "":
		if r.Method == http.MethodGet && f.resume != nil && r.Header.Get("Last-Event-ID") == "first" {
			f.resume(w, f.first.Load().(json.RawMessage))
			return
		}
	case "tools/call":
		f.first.CompareAndSwap(nil, message.ID)
		if f.forget.CompareAndSwap(true, false) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if f.calls.Add(1) == 1 || f.always {
			f.answer(w, message.ID)
			return
		}
	}
	f.handler.ServeHTTP(w, r)
}

func rpcError(w http.ResponseWriter, status int, id json.RawMessage, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, text)
}

// openForgetful opens a server over HTTP that f answers before.
func openForgetful(t *testing.T, f *forgetful) *mcptool.Server {
	t.Helper()
	server := newServer()
	f.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	return open(t, mcptool.Config{Name: "web", URL: web.URL}, p)
}

// callAdd calls the tool add, and returns the result as JSON, or the error's text after "error: ".
func callAdd(t *testing.T, add agent.Tool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	value, err := add.Execute(ctx, &agent.Call{Input: json.RawMessage(`{"a":2,"b":3}`)})
	if err != nil {
		return "error: " + err.Error()
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestEachWayToLoseACallFollowsItsRetryRule(t *testing.T) {
	t.Parallel()
	type answer = func(http.ResponseWriter, json.RawMessage)
	status := func(code int, text string) answer {
		return func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, text, code) }
	}
	withError := func(httpStatus, code int, text string) answer {
		return func(w http.ResponseWriter, id json.RawMessage) { rpcError(w, httpStatus, id, code, text) }
	}
	cut := func(http.ResponseWriter, json.RawMessage) { panic(http.ErrAbortHandler) }
	body := func(kind, text string) answer {
		return func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "ID", string(id)))
		}
	}
	const (
		stream  = "text/event-stream"
		reply   = `{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"sum":5}}}`
		started = "id: first\nretry: 1\ndata:\n\n" // a stream that can be resumed, at once
	)
	other := func(w http.ResponseWriter, id json.RawMessage) {
		w.Header().Set("Mcp-Session-Id", "another")
		body("application/json", reply)(w, id)
	}
	const done = `{"sum":5}`
	// What becomes of the first call. A second one always works.
	const (
		lasts       = iota // it is answered in its session
		renewed            // the server has not made it: it is made in a new session, whatever its rule
		refused            // the server has refused it: it fails, whatever its rule
		interrupted        // nobody knows: it is made again only if its tool is safe
		own                // the tool's own error, taken for one about the session once
	)
	for name, test := range map[string]struct {
		answer answer
		resume answer
		want   int
	}{
		"404":                                    {status(404, ""), nil, renewed},
		"404 with a JSON-RPC error":              {withError(404, -32001, "Session not found"), nil, renewed},
		"410":                                    {status(410, "Gone"), nil, renewed},
		"400 with a text":                        {status(400, "Bad Request: No valid session ID provided"), nil, renewed},
		"400 with a JSON-RPC error":              {withError(400, -32000, "Bad Request: Session not found"), nil, renewed},
		"400 about a session in capitals":        {status(400, "INVALID SESSION"), nil, renewed},
		"200 with -32001":                        {withError(200, -32001, "Session not found"), nil, renewed},
		"200 with -32000":                        {withError(200, -32000, "session expired"), nil, renewed},
		"200 with -32600":                        {withError(200, -32600, "Invalid Request: unknown session"), nil, renewed},
		"an error in a stream":                   {body(stream, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32001,\"message\":\"Session terminated\"}}\n\n"), nil, renewed},
		"an error of the tool about a session":   {withError(200, -32000, "no browser session"), nil, own},
		"another error of the tool":              {withError(200, -32000, "no such row"), nil, refused},
		"another 400":                            {status(400, "malformed"), nil, refused},
		"401, as the credentials have expired":   {status(401, "Unauthorized: session"), nil, refused},
		"403":                                    {status(403, "Forbidden"), nil, refused},
		"a connection that is cut":               {cut, nil, interrupted},
		"a failure of a proxy":                   {status(502, "Bad Gateway: session"), nil, interrupted},
		"a crash of the server":                  {status(500, "session"), nil, interrupted},
		"an overloaded server":                   {status(503, "later"), nil, interrupted},
		"too many requests":                      {status(429, "later"), nil, interrupted},
		"a timeout of the server":                {status(408, "too slow"), nil, interrupted},
		"an answer that is no message":           {body("text/html", "<h1>Hello</h1>"), nil, interrupted},
		"an answer without a body":               {body("application/json", ""), nil, interrupted},
		"half an answer":                         {body("application/json", reply[:40]), nil, interrupted},
		"an answer with another session's id":    {other, nil, lasts},
		"a stream without an answer":             {body(stream, ": hello\n\n"), nil, interrupted},
		"a stream that ends within an answer":    {body(stream, "data: "+reply[:40]), nil, interrupted},
		"a stream without an empty line":         {body(stream, "data: "+reply), nil, lasts},
		"a stream that is resumed":               {body(stream, started), body(stream, "id: second\ndata: "+reply+"\n\n"), lasts},
		"a resumed stream in two parts":          {body(stream, started), body(stream, "data: "+reply[:40]+"\ndata: "+reply[40:]+"\n\n"), lasts},
		"a resumption of an unknown session":     {body(stream, started), status(404, ""), interrupted},
		"a resumption that is not supported":     {body(stream, started), status(405, ""), interrupted},
		"a resumption with an unknown event":     {body(stream, started), status(400, "no such event"), interrupted},
		"a resumption after the session expired": {body(stream, started), status(400, "session expired"), interrupted},
	} {
		for _, rule := range []agent.Retry{agent.RetryNever, agent.RetrySafe} {
			t.Run(name+", retry "+string(rule), func(t *testing.T) {
				t.Parallel()
				f := &forgetful{answer: test.answer, resume: test.resume, always: test.want == own}
				s := openForgetful(t, f)
				add := tool(t, s, "add")
				if rule == agent.RetrySafe {
					add = mcptool.Repeating(add)
				}
				want, calls, sessions := done, int64(2), int64(2) // with the second call
				switch {
				case test.want == lasts:
					sessions = 1
				case test.want == renewed, test.want == interrupted && rule == agent.RetrySafe:
					calls = 3
				case test.want == interrupted:
					want = "error: "
				default:
					want = "error: "
				}
				got := callAdd(t, add)
				if !strings.HasPrefix(got, want) || test.want == interrupted && want != done && !strings.Contains(got, "it is not known whether the call took effect") {
					t.Errorf("the first call = %s, want %s", got, want)
				}
				if test.want == own {
					if got := f.calls.Load(); got != 2 {
						t.Errorf("%d calls, want two: the error may be about the session of the protocol, but not twice", got)
					}
					return
				}
				if got := callAdd(t, add); got != done {
					t.Errorf("the second call = %s, want %s", got, done)
				}
				if f.sessions.Load() > sessions || f.calls.Load() != calls {
					t.Errorf("%d sessions and %d calls, want at most %d and %d", f.sessions.Load(), f.calls.Load(), sessions, calls)
				}
			})
		}
	}
}

func TestASessionThatIsForgottenMidCallInterruptsTheOtherCalls(t *testing.T) {
	t.Parallel()
	for rule, want := range map[agent.Retry]string{agent.RetryNever: "error: ", agent.RetrySafe: `{"sum":5}`} {
		t.Run(string(rule), func(t *testing.T) {
			t.Parallel()
			entered, release := make(chan struct{}), make(chan struct{})
			f := &forgetful{}
			f.answer = func(http.ResponseWriter, json.RawMessage) {
				close(entered)
				<-release
			}
			s := openForgetful(t, f)
			t.Cleanup(func() { close(release) }) // before the server is closed, which waits
			add := tool(t, s, "add")
			if rule == agent.RetrySafe {
				add = mcptool.Repeating(add)
			}
			first := make(chan string, 1)
			go func() { first <- callAdd(t, add) }()
			<-entered
			f.forget.Store(true)
			if got := callAdd(t, tool(t, s, "add")); got != `{"sum":5}` {
				t.Errorf("the call that the server denied = %s, want its result in a new session", got)
			}
			if got := <-first; !strings.HasPrefix(got, want) {
				t.Errorf("the call in flight = %s, want %s", got, want)
			}
		})
	}
}

func TestACallDuringARestartIsNotMadeAndLaterOnesAre(t *testing.T) {
	t.Parallel()
	handler := func() http.Handler { // with sessions of its own
		server := newServer()
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	}
	before := httptest.NewServer(handler())
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	s := open(t, mcptool.Config{Name: "web", URL: before.URL}, p)
	add := tool(t, s, "add")
	before.CloseClientConnections()
	before.Close()
	if got := callAdd(t, add); !strings.Contains(got, "was not made") && !strings.Contains(got, "is not available") {
		t.Errorf("a call while the server is down = %s, want that it was not made", got)
	}
	var listener net.Listener
	eventually(t, "the address is free", func() bool {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", before.Listener.Addr().String())
		return err == nil
	})
	after := httptest.NewUnstartedServer(handler())
	_ = after.Listener.Close() // another address
	after.Listener = listener
	after.Start()
	t.Cleanup(after.Close)
	t.Cleanup(after.CloseClientConnections)
	eventually(t, "calls are made again", func() bool { return callAdd(t, mcptool.Repeating(add)) == `{"sum":5}` })
}
