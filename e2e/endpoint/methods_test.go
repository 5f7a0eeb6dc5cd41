package endpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// methodCall is one call of a method of the agent methodical, and what its client sees.
type methodCall struct {
	method, arguments string
	// want are the values before the result and the result, or the error, each a line.
	want string
}

var methodCalls = []methodCall{
	{"add", `[1, 2.5]`, `result 3.5`},
	{"arguments", `[]`, `result []`},
	{"arguments", `[null, "ü", [1], {"a": {"b": 2}}]`, `result [null,"ü",[1],{"a":{"b":2}}]`},
	{"nothing", `[]`, `result null`},
	{"increment", `[]`, `result 1`},
	{"increment", `[]`, `result 2`},
	{"countdown", `[3]`, "value 3\nvalue 2\nvalue 1\nresult \"go\""},
	{"fail", `[]`, `error …`}, // in the words of the library, without the error
	{"missing", `[]`, `error Method missing does not exist`},
}

// methodFrame is a frame of the protocol of the npm package agents.
type methodFrame struct {
	Type    string          `json:"type"`
	ID      string          `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Args    json.RawMessage `json:"args,omitempty"`
	Success bool            `json:"success,omitempty"`
	Done    *bool           `json:"done,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// playMethods calls the methods on one socket, one after the other, and looks at the state that they leave.
func (w *world) playMethods(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, response, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(w.served.URL, "http")+"/agents/methodical/room", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + harness.Key}},
	})
	if err != nil {
		t.Fatalf("open the socket: %v %v", err, response)
	}
	defer func() { _ = conn.CloseNow() }()
	for i, c := range methodCalls {
		id := fmt.Sprint("call-", i)
		if err := wsjson.Write(ctx, conn, methodFrame{Type: "rpc", ID: id, Method: c.method, Args: json.RawMessage(c.arguments)}); err != nil {
			t.Fatalf("call %s: %v", c.method, err)
		}
		var got []string
		for ended := false; !ended; {
			var f methodFrame
			if err := wsjson.Read(ctx, conn, &f); err != nil {
				t.Fatalf("the answer of %s: %v", c.method, err)
			}
			switch {
			case f.Type != "rpc" || f.ID != id:
			case !f.Success:
				got, ended = append(got, "error "+f.Error), true
			case f.Done != nil && !*f.Done:
				got = append(got, "value "+compact(string(f.Result)))
			default:
				got, ended = append(got, "result "+compact(string(f.Result))), true
			}
		}
		if got := strings.Join(got, "\n"); !fits(got, c.want) || strings.Contains(got, "secret") {
			t.Errorf("%s %s: got\n%s\nwant\n%s", c.method, c.arguments, indent(got), indent(c.want))
		}
	}
	if body := w.served.Do(t, http.MethodGet, "/agents/methodical/room", nil).Body; !strings.Contains(body, `"state":{"count":2}`) {
		t.Errorf("the session is %s, want the state of the methods", body)
	}
}
