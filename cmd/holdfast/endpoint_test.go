package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/pkg/webhook"
)

const appSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// application is an application with an agent endpoint at an address of this machine. It can be killed and started again.
type application struct {
	*endpointapp.App
	t       *testing.T
	address string
	server  *http.Server
}

func startApplication(t *testing.T, description string) *application {
	t.Helper()
	secret, err := webhook.ParseSecret(appSecret)
	if err != nil {
		t.Fatal(err)
	}
	a := &application{App: &endpointapp.App{Secrets: []webhook.Secret{secret}}, t: t, address: "127.0.0.1:0"}
	a.Describe(description)
	a.up()
	t.Cleanup(a.kill)
	return a
}

func (a *application) up() {
	a.t.Helper()
	var network net.ListenConfig
	listener, err := network.Listen(a.t.Context(), "tcp", a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.address = listener.Addr().String()
	server := &http.Server{Handler: a.App, ReadHeaderTimeout: time.Minute}
	a.server = server
	go func() { _ = server.Serve(listener) }() // ErrServerClosed
}

// kill closes the application with its connections.
func (a *application) kill() { _ = a.server.Close() }

func (a *application) url() string { return "http://" + a.address + "/agents" }

// variables lets an executor use the application.
func (a *application) variables() []string {
	return []string{"HOLDFAST_EXECUTOR_ENDPOINTS=" + a.url(), "HOLDFAST_EXECUTOR_ENDPOINT_SECRETS=" + appSecret}
}

// clerkModel asks for refunds.
const clerkModel = `
models:
  scripted:
    script: |
      models:
        clerk:
          chunk: whole
          rules:
            - when: {toolFailed: refund}
              reply: 'Failed: {{.LastResult}}'
            - when: {toolResult: refund}
              reply: 'Done: {{.LastResult}}'
            - when: {lastUser: '(?P<amount>\d+)'}
              reply: [{call: {name: refund, arguments: '{"amount": {{.Group.amount}}}'}}]
            - reply: 'You said {{.LastUser}}.'
`

const clerk = `{"endpoint": 1, "build": "b1", "agents": [{
  "name": "clerk", "model": "scripted/clerk",
  "stateSchema": {"type": "object", "properties": {"refunds": {"type": "integer", "default": 0}}},
  "callbacks": ["hooks.beforeRun", "hooks.afterRun", "guard.onReply", "prompt"],
  "tools": [{"name": "refund", "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
    "callbacks": ["execute", "approval"]}]
}], "sources": {"clerk": "src/agents.ts:12", "clerk/refund": "src/agents.ts:31"}}`

func TestAnApplicationRunsTheToolsAndCallbacksOfItsAgents(t *testing.T) {
	t.Parallel()
	app := startApplication(t, clerk)
	var user, prompted atomic.Value
	ended := make(chan string, 10)
	app.Handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
		user.Store(c.Context.User.ID)
		c.Event("progress", map[string]any{"half": true})
		c.Set("refunds", c.State["refunds"].(float64)+1)
		return map[string]any{"refunded": 1}, nil
	})
	app.Handle("approval/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
		return strings.Contains(string(c.Input), "500"), nil
	})
	app.Handle("prompt", func(_ context.Context, c *endpointapp.Call) (any, error) {
		prompted.Store(fmt.Sprint(c.State["refunds"]))
		return "You refund.", nil
	})
	app.Handle("guard/onReply", func(_ context.Context, c *endpointapp.Call) (any, error) {
		if strings.Contains(fmt.Sprint(c.Body["output"]), "forbidden") {
			return map[string]any{"fail": "We do not say this."}, nil
		}
		return nil, nil
	})
	app.Handle("hook/beforeRun", func(_ context.Context, c *endpointapp.Call) (any, error) {
		if c.Context.User.ID == "nobody" {
			return nil, &endpointapp.Error{Message: "user nobody is blocked", PublicMessage: "You are blocked."}
		}
		return nil, nil
	})
	app.Handle("hook/afterRun", func(_ context.Context, c *endpointapp.Call) (any, error) {
		ended <- fmt.Sprint(c.Context.Session.ID, " ", c.Body["status"])
		return nil, nil
	})
	o := openOffice(t, writeAgents(t, clerkModel), t.TempDir(), app.variables()...)

	o.sends(t, "small", "clerk", "ann", "Refund 5")
	o.awaits("refunded", "sessions", "show", "small")
	o.expects(0, []string{`"refunds": 1`}, "sessions", "show", "small", "--json")
	if user.Load() != "ann" || prompted.Load() != "1" {
		t.Errorf("the tool saw the user %v, the second prompt %v refunds", user.Load(), prompted.Load())
	}

	o.sends(t, "large", "clerk", "ann", "Refund 500")
	call := o.waitingCall(t, "large")
	o.expects(0, []string{"accepted"}, "calls", "approve", "large", call)
	o.awaits("refunded", "sessions", "show", "large")

	o.sends(t, "guarded", "clerk", "ann", "Say something forbidden")
	o.awaits("We do not say this.", "sessions", "show", "guarded")
	o.sends(t, "blocked", "clerk", "nobody", "Hello")
	o.awaits("You are blocked.", "sessions", "show", "blocked")
	seen := map[string]bool{}
	for range 5 { // the run that waits for the approval ends too
		seen[<-ended] = true
	}
	if !seen["small completed"] || !seen["guarded failed"] {
		t.Errorf("the ends of runs are %v", seen)
	}
	o.expects(0, []string{"clerk"}, "agents", "list")
}

func TestRunsWaitForAnApplicationThatIsDown(t *testing.T) {
	t.Parallel()
	app := startApplication(t, `{"endpoint": 1, "agents": [{"name": "clerk", "model": "scripted/clerk", "tools": [
		{"name": "refund", "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}}, "timeout": "2s", "callbacks": ["execute"]}]}]}`)
	var calls sync.Map // by session
	app.Handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
		n, _ := calls.LoadOrStore(c.Context.Session.ID, &atomic.Int64{})
		n.(*atomic.Int64).Add(1)
		return "paid", nil
	})
	app.kill()
	o := openOffice(t, writeAgents(t, clerkModel), t.TempDir(), app.variables()...)
	o.awaits("the endpoint cannot be reached", "agents", "list")

	app.up()
	o.awaits("clerk", "agents", "list") // without a restart
	o.sends(t, "first", "clerk", "", "Refund 1")
	o.awaits("paid", "sessions", "show", "first")

	app.kill()
	o.sends(t, "second", "clerk", "", "Refund 2")
	o.awaits("running", "sessions", "show", "second")
	app.up()
	o.awaits("paid", "sessions", "show", "second")
	for _, session := range []string{"first", "second"} {
		if n, ok := calls.Load(session); !ok || n.(*atomic.Int64).Load() != 1 {
			t.Errorf("the calls of %s: %v", session, n)
		}
	}
}

func TestAnApplicationThatIsKilledInACall(t *testing.T) {
	t.Parallel()
	const tools = `{"endpoint": 1, "agents": [
		{"name": "safe", "model": "scripted/clerk", "tools": [{"name": "refund", "inputSchema": {"type": "object"}, "retry": "safe", "callbacks": ["execute"]}]},
		{"name": "once", "model": "scripted/clerk", "tools": [{"name": "refund", "inputSchema": {"type": "object"}, "callbacks": ["execute"]}]}]}`
	app := startApplication(t, tools)
	begun := make(chan string, 10)
	var killed atomic.Bool
	keys := sync.Map{}
	app.Handle("tool/refund", func(ctx context.Context, c *endpointapp.Call) (any, error) {
		keys.Store(c.Context.Call.IdempotencyKey, c.Agent)
		begun <- c.Agent
		if !killed.Load() {
			<-ctx.Done()
			return nil, endpointapp.ErrNoEnd
		}
		return "paid", nil
	})
	o := openOffice(t, writeAgents(t, clerkModel), t.TempDir(), app.variables()...)
	o.sends(t, "safe", "safe", "", "Refund 1")
	o.sends(t, "once", "once", "", "Refund 1")
	<-begun
	<-begun
	killed.Store(true)
	app.kill()
	app.up()
	o.awaits("paid", "sessions", "show", "safe")
	o.awaits("the process that ran this call", "sessions", "show", "once")
	if agent := <-begun; agent != "safe" || len(begun) != 0 {
		t.Errorf("%s was called again, and %d more", agent, len(begun))
	}
	count := 0
	keys.Range(func(any, any) bool { count++; return true })
	if count != 2 {
		t.Errorf("%d idempotency keys, want one for each call", count)
	}
}

func TestDevFollowsAnEndpointAndPrintsItsMistakes(t *testing.T) {
	t.Parallel()
	app := startApplication(t, `{"endpoint": 1, "agents": [{"name": "parrot", "model": "scripted/clerk", "callbacks": ["prompt"]}]}`)
	app.Secrets = nil
	app.Unsigned = true // as an author allows it for development
	app.Handle("prompt", func(context.Context, *endpointapp.Call) (any, error) { return "You repeat.", nil })
	r := start(t, "--data", t.TempDir(), "--agents", writeAgents(t, clerkModel), "--endpoint", app.url())
	if got := r.do(t, http.MethodPost, "/chat", `{"id":"p","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"hello"}]}]}`); !strings.Contains(got, "You said hello.") {
		t.Errorf("got %s", got)
	}
	app.Describe(`{"endpoint": 1, "agents": [{"name": "parrot", "model": "scripted/clerk", "maxSteps": 0}, {"name": "owl", "model": "scripted/clerk"}],
		"sources": {"parrot": "src/agents.ts:12"}}`)
	for _, want := range []string{"agents added: owl", `out of service: src/agents.ts:12: agent "parrot": maxSteps is 0`} {
		for deadline := time.After(limit); !strings.Contains(r.teller.lines(), want); {
			select {
			case <-deadline:
				t.Fatalf("no %q in %s", want, r.teller.lines())
			case <-time.After(time.Millisecond):
			}
		}
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"agents", "check", writeAgents(t, clerkModel), "--endpoint", app.url()}, nil, &out, io.Discard)
	if want := "src/agents.ts:12: agent \"parrot\": maxSteps is 0; it must be between 1 and 10000\n"; err == nil || out.String() != want {
		t.Errorf("agents check = %v, %q, want %q", err, out.String(), want)
	}
	app.kill()
	out.Reset()
	if err := run(t.Context(), []string{"agents", "check", "--endpoint", app.url()}, nil, &out, io.Discard); err == nil || !strings.Contains(out.String(), "the endpoint cannot be reached") {
		t.Errorf("agents check = %v, %q", err, out.String())
	}
}
