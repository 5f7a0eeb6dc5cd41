package holdfast_test

// The functions of this file are the examples of docs/hooks.md: TestTheExamplesOfTheManualAreCompiled compares both.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
)

// shop is the program's own knowledge of its users.
type shop struct {
	users  map[string]string // by cookie
	credit map[string]int
}

func (s *shop) beforeEntry(ctx context.Context, e *holdfast.Entry) error {
	switch e.Kind {
	case "start", "edit", "regenerate":
		if s.credit[e.Caller.User] <= 0 {
			return &holdfast.Refusal{Status: http.StatusPaymentRequired, Code: "NO_CREDIT", Message: "Your credit is used up."}
		}
		e.Run.Metadata = map[string]string{"shop": e.Request.Header.Get("X-Shop")}
		for i := range e.Run.Messages {
			e.Run.Messages[i].Text = strings.TrimSpace(e.Run.Messages[i].Text)
		}
	case "resume", "retry":
		session, err := e.Session(ctx)
		if err != nil {
			return err // 500, and nothing is started
		}
		if session != nil && session.Live {
			return &holdfast.Refusal{Status: http.StatusConflict, Code: "STILL_WRITING", Message: "The answer is being written."}
		}
	}
	return nil
}

func (s *shop) afterEntry(ctx context.Context, e holdfast.Entered) {
	switch e.Kind {
	case "start", "resume", "retry":
		slog.InfoContext(ctx, "a run has begun", "kind", e.Kind, "session", e.SessionID, "run", e.RunID, "repeated", e.Repeated)
	}
}

func (s *shop) authenticate(r *http.Request) (*holdfast.Caller, error) {
	cookie, err := r.Cookie("user")
	if err != nil || s.users[cookie.Value] == "" {
		return nil, fault.New(fault.Unauthenticated, "SIGNED_OUT", "sign in again")
	}
	return &holdfast.Caller{Tenant: "acme", User: s.users[cookie.Value]}, nil
}

func (s *shop) ask(w http.ResponseWriter, r *http.Request, c *holdfast.RouteCaller) error {
	var order struct{ Question string }
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		return &holdfast.Refusal{Status: http.StatusBadRequest, Code: "ORDER_INVALID", Message: "The order cannot be read."}
	}
	answer, err := c.Client.Ask(r.Context(), &agentv1.StartRequest{SessionId: "order-" + r.PathValue("id"), Message: order.Question})
	if err != nil {
		return err // a fault keeps its status
	}
	return json.NewEncoder(w).Encode(map[string]string{"reply": answer.Text})
}

func (s *shop) status(w http.ResponseWriter, r *http.Request, c *holdfast.RouteCaller) error {
	got, err := c.Client.Session(r.Context(), "order-"+r.PathValue("id"))
	if err != nil {
		return err
	}
	if r.URL.Query().Has("stop") {
		if _, err := c.Client.Interrupt(r.Context(), &agentv1.InterruptRequest{SessionId: got.GetSession().GetSessionId()}); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "%s %s", got.GetSession().GetStatus(), got.GetRun().GetRunId())
	return err
}

func run(ctx context.Context, s *shop, agents []agent.Agent) error {
	return holdfast.Run(ctx, holdfast.Options{
		Agents:       agents,
		Env:          os.Environ(),
		Authenticate: s.authenticate,
		BeforeEntry:  s.beforeEntry,
		AfterEntry:   s.afterEntry,
		Routes: map[string]holdfast.Route{
			"POST /orders/{id}/ask":   {Scope: "chat", Serve: s.ask},
			"GET /orders/{id}/status": {Scope: "chat", Serve: s.status},
		},
		Log: slog.Default(),
	})
}

func gatewayProcess(s *shop) {
	gateway.Main(gateway.Peers{BeforeEntry: s.beforeEntry, AfterEntry: s.afterEntry, Authenticate: s.authenticate})
}

var _, _ = run, gatewayProcess

func TestTheExamplesOfTheManualAreCompiled(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/hooks.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("hooks_example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	for _, text := range blocks {
		code, _, _ := strings.Cut(text, "```")
		if !strings.Contains(string(source), code) {
			t.Errorf("hooks_example_test.go does not have this example:\n%s", code)
		}
	}
	if len(blocks) != 7 {
		t.Errorf("the page has %d examples, want 7", len(blocks))
	}
}

func TestTheExamplesOfTheManualWork(t *testing.T) {
	t.Parallel()
	s := &shop{users: map[string]string{"a": "ann", "b": "bob"}, credit: map[string]int{"ann": 1}}
	o := options(t, "", nothing)
	o.Authenticate, o.BeforeEntry, o.AfterEntry, o.DefaultAgent = s.authenticate, s.beforeEntry, s.afterEntry, "clerk"
	o.Routes = map[string]holdfast.Route{
		"POST /orders/{id}/ask": {Scope: "chat", Serve: s.ask}, "GET /orders/{id}/status": {Scope: "chat", Serve: s.status},
	}
	r := start(t, o)
	for _, test := range []struct {
		name, method, path, body, cookie string
		status                           int
		says                             string
	}{
		{"nobody", "POST", "/chat", message("s", "hello"), "c", 401, "needed"},
		{"no credit", "POST", "/chat", message("s", "hello"), "b", 402, "Your credit is used up."},
		{"credit", "POST", "/chat", message("s", "  hello  "), "a", 200, `You said: hello.`},
		{"a form of one's own", "POST", "/orders/7/ask", `{"question":"where?"}`, "a", 200, `{"reply":"You said: where?."}`},
		{"a wrong form", "POST", "/orders/7/ask", `where?`, "a", 400, "ORDER_INVALID"},
		{"a route without credit", "POST", "/orders/8/ask", `{"question":"where?"}`, "b", 403, "NO_CREDIT"},
		{"the state of the work", "GET", "/orders/7/status?stop", "", "a", 200, "completed"},
		{"the work of another", "GET", "/orders/7/status", "", "b", 404, "SESSION_NOT_FOUND"},
	} {
		status, text := request(t, test.method, r.URL()+test.path, test.body, "Cookie", "user="+test.cookie)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: got %d %.300s, want %d %s", test.name, status, text, test.status, test.says)
		}
	}
	got, err := within(t, r, holdfast.Caller{Tenant: "acme", User: "ann"}).Session(t.Context(), "s")
	if _, has := got.GetSession().GetMetadata()["shop"]; err != nil || !has {
		t.Errorf("the session has the metadata %v, %v", got.GetSession().GetMetadata(), err)
	}
}
