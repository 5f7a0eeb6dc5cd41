package mcptool_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/outbound"
)

// forgetful is a server with sessions that answers the first call of a tool in a way of its own.
type forgetful struct {
	handler  http.Handler
	answer   func(w http.ResponseWriter, id json.RawMessage)
	always   bool // it answers all calls so
	sessions atomic.Int64
	calls    atomic.Int64
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
	case "tools/call":
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

func TestEachWayToForgetASessionLeadsToANewOne(t *testing.T) {
	t.Parallel()
	status := func(code int, text string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, _ json.RawMessage) { http.Error(w, text, code) }
	}
	withError := func(httpStatus, code int, text string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, id json.RawMessage) { rpcError(w, httpStatus, id, code, text) }
	}
	cut := func(http.ResponseWriter, json.RawMessage) { panic(http.ErrAbortHandler) }
	inStream := func(text string) func(http.ResponseWriter, json.RawMessage) {
		return func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, text, id)
		}
	}
	const done, lost = `{"sum":5}`, "error: "
	for name, test := range map[string]struct {
		answer   func(http.ResponseWriter, json.RawMessage)
		always   bool
		want     string // the beginning of the result of the first call
		sessions int64  // after a second call, which always works
		calls    int64
	}{
		"404":                                  {status(404, ""), false, done, 2, 3},
		"404 with a JSON-RPC error":            {withError(404, -32001, "Session not found"), false, done, 2, 3},
		"410":                                  {status(410, "Gone"), false, done, 2, 3},
		"400 with a text":                      {status(400, "Bad Request: No valid session ID provided"), false, done, 2, 3},
		"400 with a JSON-RPC error":            {withError(400, -32000, "Bad Request: Session not found"), false, done, 2, 3},
		"200 with -32001":                      {withError(200, -32001, "Session not found"), false, done, 2, 3},
		"200 with -32000":                      {withError(200, -32000, "session expired"), false, done, 2, 3},
		"200 with -32600":                      {withError(200, -32600, "Invalid Request: unknown session"), false, done, 2, 3},
		"an error in a stream":                 {inStream("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32001,\"message\":\"Session terminated\"}}\n\n"), false, done, 2, 3},
		"an error of the tool about a session": {withError(200, -32000, "no browser session"), true, lost, 2, 0},
		"another error of the tool":            {withError(200, -32000, "no such row"), false, lost, 1, 2},
		"another 400":                          {status(400, "malformed"), false, lost, 2, 2},
		"401":                                  {status(401, "Unauthorized: session"), false, lost, 2, 2},
		"403":                                  {status(403, "Forbidden"), false, lost, 2, 2},
		"a connection that is cut":             {cut, false, lost, 2, 2},
		"a failure of a proxy":                 {status(502, "Bad Gateway: session"), false, lost, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newServer()
			f := &forgetful{answer: test.answer, always: test.always, handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)}
			web := httptest.NewServer(f)
			t.Cleanup(web.Close)
			t.Cleanup(web.CloseClientConnections)
			_, p := stdio(t, "")
			p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
			s := open(t, mcptool.Config{Name: "web", URL: web.URL}, p)
			if got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`); !strings.HasPrefix(got, test.want) {
				t.Errorf("the first call = %s, want %s", got, test.want)
			}
			if test.always {
				if got := f.calls.Load(); got != 2 {
					t.Errorf("%d calls, want two: the error may be about the session of the protocol, but not twice", got)
				}
				return
			}
			if got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`); got != done {
				t.Errorf("the second call = %s, want %s", got, done)
			}
			if f.sessions.Load() > test.sessions || f.calls.Load() != test.calls {
				t.Errorf("%d sessions and %d calls, want at most %d and %d", f.sessions.Load(), f.calls.Load(), test.sessions, test.calls)
			}
		})
	}
}
