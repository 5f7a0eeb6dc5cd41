package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// whoami answers with the caller of a route.
func whoami(w http.ResponseWriter, _ *http.Request, c *gateway.RouteCaller) error {
	return json.NewEncoder(w).Encode(map[string]any{"actor": c.Actor, "user": c.Caller.User, "client": c.Client != nil})
}

func TestARouteOfTheProgramNeedsItsScope(t *testing.T) {
	t.Parallel()
	scopes := []string{"read", "chat", "approve", "operate", "admin"}
	routes := map[string]gateway.Route{"GET /open/{path...}": {Public: true, Serve: whoami}}
	keys := map[string]string{}
	var file strings.Builder
	for _, scope := range scopes {
		routes["PUT /needs/"+scope] = gateway.Route{Scope: scope, Serve: whoami}
		key, sum := gateway.NewAPIKey()
		keys[scope] = "Bearer " + key
		fmt.Fprintf(&file, "- {name: %s, tenant: acme, sha256: %s, scopes: [%[1]s]}\n", scope, sum)
	}
	h := openHooked(t, gateway.Peers{Routes: routes}, actConfig(keysFile(t, file.String())))
	// Which keys a scope admits.
	admitted := map[string]string{
		"read": "read chat approve operate admin", "chat": "chat operate admin", "approve": "approve operate admin",
		"operate": "operate admin", "admin": "admin",
	}
	for _, scope := range scopes {
		for _, key := range scopes {
			r := h.request(t, http.MethodPut, "/needs/"+scope, "", "Authorization", keys[key])
			if strings.Contains(admitted[scope], key) {
				if got, want := text(t, r), fmt.Sprintf(`{"actor":"key:%s","client":true,"user":""}`+"\n", key); got != want || r.StatusCode != http.StatusOK {
					t.Errorf("a key with %s at a route for %s: got %d %s, want %s", key, scope, r.StatusCode, got, want)
				}
				continue
			}
			wantFault(t, r, 403, "SCOPE_MISSING")
		}
		wantFault(t, h.request(t, http.MethodPut, "/needs/"+scope, ""), 401, "API_KEY_MISSING")
		wantFault(t, h.request(t, http.MethodGet, "/needs/"+scope, "", "Authorization", keys["admin"]), 405, "METHOD_NOT_ALLOWED")
	}
	r := h.request(t, http.MethodGet, "/open/a/b", "", "Authorization", keys["admin"])
	if got, want := text(t, r), `{"actor":"","client":false,"user":""}`+"\n"; got != want {
		t.Errorf("a public route: got %s, want %s", got, want)
	}
	h.report(t)
	refused := 0
	for _, e := range h.State.AuditLog(t, "acme") {
		if e.GetAction() == "scope.missing" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("the audit log has no refusal")
	}
}

func TestARouteActsForItsCaller(t *testing.T) {
	t.Parallel()
	file, keys := actKeys(t)
	var hook hookLog
	h := openHooked(t, gateway.Peers{
		AfterEntry: func(_ context.Context, e gateway.Entered) { hook.add(e.Entry) },
		Routes: map[string]gateway.Route{"POST /orders/{id}/ask": {Scope: "chat", Serve: func(w http.ResponseWriter, r *http.Request, c *gateway.RouteCaller) error {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			started, err := c.Client.Start(r.Context(), &agentv1.StartRequest{SessionId: r.PathValue("id"), Message: string(body)})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "run of %s for %s", started.GetSessionId(), c.Caller.User)
			return err
		}}},
	}, actConfig(file))
	within := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { within <- h.service.ServeWithin(ctx, time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-within; err != nil {
			t.Error(err)
		}
	})
	r := h.request(t, http.MethodPost, "/orders/o1/ask", "Where is it?", "Authorization", keys["mia"])
	if got, want := text(t, r), "run of o1 for mia"; got != want {
		t.Errorf("got %d %s, want %s", r.StatusCode, got, want)
	}
	if got := h.State.Get("default", "o1").GetSession().GetUserId(); got != "mia" {
		t.Errorf("the session belongs to %q, want mia", got)
	}
	if !hook.has("o1") {
		t.Error("the request of the route was no entry")
	}
	wantFault(t, h.request(t, http.MethodPost, "/orders/o1/ask", "Again", "Authorization", keys["page"]), 409, "SESSION_BUSY")
	wantFault(t, h.request(t, http.MethodPost, "/orders/o2/ask", strings.Repeat("x", 9<<20), "Authorization", keys["mia"]), 413, "BODY_TOO_LARGE")
}

func TestAnErrorOfARouteIsItsAnswer(t *testing.T) {
	t.Parallel()
	fails := func(err error) gateway.Route {
		return gateway.Route{Public: true, Serve: func(http.ResponseWriter, *http.Request, *gateway.RouteCaller) error { return err }}
	}
	h := openHooked(t, gateway.Peers{Routes: map[string]gateway.Route{
		"GET /x/fault":   fails(fault.New(fault.Conflict, "ORDER_CLOSED", "the order is closed")),
		"GET /x/refusal": fails(&gateway.Refusal{Status: 402, Code: "NO_CREDIT", Message: "Pay."}),
		"GET /x/wrong":   fails(&gateway.Refusal{Status: 302}),
		"GET /x/error":   fails(errors.New("the database is down")),
		"GET /x/panic":   {Public: true, Serve: func(http.ResponseWriter, *http.Request, *gateway.RouteCaller) error { panic("oh") }},
		"GET /x/late": {Public: true, Serve: func(w http.ResponseWriter, _ *http.Request, _ *gateway.RouteCaller) error {
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			return errors.New("the database is down")
		}},
	}}, func(c *gateway.Config) { c.CORSOrigins = []string{"https://app.example"} })
	wantFault(t, h.request(t, http.MethodGet, "/x/fault", ""), 409, "ORDER_CLOSED")
	wantFault(t, h.request(t, http.MethodGet, "/x/refusal", ""), 402, "NO_CREDIT")
	for _, path := range []string{"/x/wrong", "/x/error", "/x/panic"} {
		wantFault(t, h.request(t, http.MethodGet, path, ""), 500, "INTERNAL")
	}
	r := h.request(t, http.MethodGet, "/x/late", "")
	if body, err := io.ReadAll(r.Body); err == nil || string(body) != "half" {
		t.Errorf("a route that fails late: got %q and %v, want a broken connection", body, err)
	}
	preflight := h.request(t, http.MethodOptions, "/x/error", "", "Origin", "https://app.example", "Access-Control-Request-Method", "PUT")
	if got := preflight.Header.Get("Access-Control-Allow-Methods"); got != "PUT" {
		t.Errorf("the preflight allows %q, want PUT", got)
	}
}

func TestARouteThatCannotBeServedIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	good := gateway.Route{Scope: "read", Serve: whoami}
	for name, test := range map[string]struct {
		routes map[string]gateway.Route
		says   string
	}{
		"no method":              {map[string]gateway.Route{"/report": good}, "must be a method and a path"},
		"another method":         {map[string]gateway.Route{"BREW /report": good}, "must be a method and a path"},
		"a host":                 {map[string]gateway.Route{"GET shop.example/report": good}, "must be a method and a path"},
		"no scope":               {map[string]gateway.Route{"GET /report": {Serve: whoami}}, "must have a scope or be public"},
		"two rights":             {map[string]gateway.Route{"GET /report": {Scope: "read", Public: true, Serve: whoami}}, "must have a scope or be public"},
		"an unknown scope":       {map[string]gateway.Route{"GET /report": {Scope: "write", Serve: whoami}}, `the scope "write"`},
		"no function":            {map[string]gateway.Route{"GET /report": {Scope: "read"}}, "has no Serve"},
		"a route of ours":        {map[string]gateway.Route{"POST /chat": good}, "collides with /chat"},
		"another method of ours": {map[string]gateway.Route{"PUT /sessions/{id}": good}, "collides with /sessions/{id}"},
		"a session of ours":      {map[string]gateway.Route{"GET /sessions/mine": good}, "collides with /sessions/{id}"},
		"everything":             {map[string]gateway.Route{"GET /{path...}": good}, "collides"},
		"the root":               {map[string]gateway.Route{"GET /{$}": good}, "collides with /{$}"},
		"all below the root":     {map[string]gateway.Route{"GET /": good}, "collides"},
		"below a method":         {map[string]gateway.Route{"POST /holdfast.agent.v1.AgentService/Mine": good}, "collides with /holdfast.agent.v1.AgentService/"},
		"the agents":             {map[string]gateway.Route{"GET /agents/{agent}/{name}/report": good}, "collides with /agents/{agent}/{name}/{path...}"},
		"two that overlap":       {map[string]gateway.Route{"GET /a/{b}/c": good, "GET /a/b/{c}": good}, "conflicts"},
		"a wrong wildcard":       {map[string]gateway.Route{"GET /a/{b": good}, "bad wildcard"},
	} {
		var c gateway.Config
		if err := config.Load(&c, nil); err != nil {
			t.Fatal(err)
		}
		c.InsecureNoAuth = true
		_, err := gateway.New(t.Context(), c, gateway.Peers{Network: New(t).Network, Routes: test.routes})
		if fault.ReasonOf(err) != "ROUTE_INVALID" || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want ROUTE_INVALID that says %q", name, err, test.says)
		}
	}
}
