package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

// limit bounds every wait of a test.
const limit = 3 * time.Minute

// script is the model of the clerk.
const script = `
models:
  clerk:
    chunk: whole
    rules:
      - when: {toolFailed: refund}
        reply: 'It stays as it is.'
      - when: {toolResult: refund}
        reply: 'Refunded {{field .LastResult "amount"}}.'
      - when: {lastUser: 'refund (?P<amount>\d+)'}
        reply: [{call: {name: refund, arguments: '{"amount": {{.Group.amount}}}'}}]
      - reply: 'You said: {{join .Users ", "}}.'
`

type amount struct {
	Amount int `json:"amount"`
}

// clerk is an agent whose tool needs an approval and then calls refund.
func clerk(refund func(context.Context) error) agent.Agent {
	return agent.Agent{Name: "clerk", Model: "script/clerk", Tools: []agent.Tool{
		agent.NewTool("refund", "Refunds.", func(ctx context.Context, _ *agent.Call, in amount) (amount, error) {
			return in, refund(ctx)
		}, agent.RequireApproval(), agent.Safe()),
	}}
}

func nothing(context.Context) error { return nil }

// options are those of a runtime with the clerk, on a free port and in memory unless data is a folder.
func options(t *testing.T, data string, refund func(context.Context) error) holdfast.Options {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: script})
	if err != nil {
		t.Fatal(err)
	}
	return holdfast.Options{
		Agents: []agent.Agent{clerk(refund)}, Models: map[string]executor.Model{"script": model},
		Data: data, InMemory: data == "", Listen: "127.0.0.1:0", LogOutput: t.Output(),
	}
}

// start starts a runtime that ends with the test.
func start(t *testing.T, o holdfast.Options) *holdfast.Runtime {
	t.Helper()
	r, err := holdfast.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, r) })
	return r
}

// end closes a runtime, which may have ended.
func end(t *testing.T, r *holdfast.Runtime) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Errorf("the runtime ended with %v", err)
	}
}

// within returns a client for the process.
func within(t *testing.T, r *holdfast.Runtime, c holdfast.Caller) *client.Client {
	t.Helper()
	found, err := r.Client(c)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// say sends a message to the clerk and returns its answer.
func say(t *testing.T, c *client.Client, session, text string) *client.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	answer, err := c.Ask(ctx, &agentv1.StartRequest{SessionId: session, AgentType: "clerk", Message: text})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// approve approves the only open call of an answer, and returns the next answer.
func approve(t *testing.T, c *client.Client, answer *client.Answer) *client.Answer {
	t.Helper()
	if len(answer.Calls) != 1 {
		t.Fatalf("%d calls wait for an approval, want 1: %+v", len(answer.Calls), answer)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := c.Approve(ctx, answer.Calls[0], ""); err != nil {
		t.Fatal(err)
	}
	next, err := c.Wait(ctx, answer.Session, "")
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// request sends a request with headers and returns the status and the text of the answer.
func request(t *testing.T, method, url, body string, headers ...string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}

// message is the body of a chat's request.
func message(session, text string) string {
	return fmt.Sprintf(`{"id":%q,"agentType":"clerk","messages":[{"id":%q,"role":"user","parts":[{"type":"text","text":%q}]}]}`,
		session, session+text, text)
}

func TestAnAgentAnswersOverHTTPAndInTheProcess(t *testing.T) {
	t.Parallel()
	var refunds atomic.Int32
	r := start(t, options(t, "", func(context.Context) error {
		refunds.Add(1)
		return nil
	}))
	c := within(t, r, holdfast.Caller{})
	if _, text := request(t, http.MethodPost, r.URL()+"/chat", message("http", "refund 5")); !strings.Contains(text, "tool-approval-request") {
		t.Fatalf("the stream asks for no approval: %s", text)
	}
	waiting, err := c.Wait(t.Context(), "http", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := refunds.Load(); got != 0 {
		t.Fatalf("%d refunds before the approval, want 0", got)
	}
	if got := approve(t, c, waiting).Text; got != "Refunded 5." {
		t.Errorf("got %q after the approval, want a refund of 5", got)
	}
	remote := client.New(client.Config{URL: r.URL()})
	if got := approve(t, remote, say(t, c, "process", "refund 7")).Text; got != "Refunded 7." {
		t.Errorf("got %q, want a refund of 7", got)
	}
	if got := refunds.Load(); got != 2 {
		t.Errorf("%d refunds, want 2", got)
	}
}

func TestAStreamIsFollowedInTheProcess(t *testing.T) {
	t.Parallel()
	o := options(t, "", nothing)
	o.Listen = holdfast.NoListen
	r := start(t, o)
	if r.Addr() != nil || r.URL() != "" {
		t.Errorf("the runtime has an address: %v", r.Addr())
	}
	c := within(t, r, holdfast.Caller{})
	started, err := c.Start(t.Context(), &agentv1.StartRequest{SessionId: "s", AgentType: "clerk", Message: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	frames, ended := 0, false
	for frame, err := range c.Follow(t.Context(), &agentv1.StreamRequest{SessionId: "s", RunId: started.GetRunId()}) {
		if err != nil {
			t.Fatal(err)
		}
		frames++
		ended = frame.GetEnd() != nil
	}
	if !ended || frames < 2 {
		t.Errorf("%d frames, ended %v; want some and the end", frames, ended)
	}
}

func TestConversationsSurviveARestartOfTheProgram(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "a", "folder")
	first := start(t, options(t, data, nothing))
	waiting := say(t, within(t, first, holdfast.Caller{}), "kept", "refund 3")
	end(t, first)

	second := start(t, options(t, data, nothing))
	c := within(t, second, holdfast.Caller{})
	if got := approve(t, c, waiting).Text; got != "Refunded 3." {
		t.Errorf("got %q, want the refund that waited over the restart", got)
	}
	if got := say(t, c, "kept", "and hello").Text; got != "You said: refund 3, and hello." {
		t.Errorf("got %q, want the first turn in it", got)
	}
}

func TestTheEndOfTheContextInTheMiddleOfARunLosesNothing(t *testing.T) {
	t.Parallel()
	data, entered := t.TempDir(), make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t, data, func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	o.Env = []string{"HOLDFAST_EXECUTOR_DRAIN_GRACE=10ms"} // the call does not end by itself
	first, err := holdfast.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	c := within(t, first, holdfast.Caller{})
	waiting := say(t, c, "cut", "refund 9")
	if _, err := c.Approve(t.Context(), waiting.Calls[0], ""); err != nil {
		t.Fatal(err)
	}
	<-entered
	cancel()
	if err := first.Wait(); err != nil {
		t.Errorf("the runtime ended with %v, want nil", err)
	}
	if _, err := c.Get(expired(t), "cut"); err == nil {
		t.Error("the client still reaches the ended runtime")
	}

	var refunds atomic.Int32
	second := start(t, options(t, data, func(context.Context) error {
		refunds.Add(1)
		return nil
	}))
	answer, err := within(t, second, holdfast.Caller{}).Wait(t.Context(), "cut", "")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Text != "Refunded 9." || refunds.Load() != 1 {
		t.Errorf("got %q after %d refunds, want the repeated call of a safe tool", answer.Text, refunds.Load())
	}
}

// expired returns a context that ends at once, so that a client retries nothing.
func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestOneRuntimeAtATimeUsesAFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := start(t, options(t, data, nothing))
	_, err := holdfast.Start(t.Context(), options(t, data, nothing))
	wantFault(t, err, fault.Conflict, "DATA_IN_USE", data)
	end(t, first)
	start(t, options(t, data, nothing))
}

func wantFault(t *testing.T, err error, kind fault.Kind, reason, says string) {
	t.Helper()
	if !errors.Is(err, kind) || fault.ReasonOf(err) != reason || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %v (%s) about %q", err, kind, reason, says)
	}
}

func TestWrongOptionsSayWhatToChange(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for name, test := range map[string]struct {
		change func(*holdfast.Options)
		kind   fault.Kind
		reason string
		says   string
	}{
		"a taken port":     {func(o *holdfast.Options) { o.Listen = taken.Addr().String() }, fault.Unavailable, "LISTEN_FAILED", "Options.Listen"},
		"an open port":     {func(o *holdfast.Options) { o.Listen = "0.0.0.0:0" }, fault.Invalid, "INSECURE_LISTEN", "Options.Listen"},
		"two places":       {func(o *holdfast.Options) { o.Data = "d" }, fault.Invalid, "OPTIONS_INVALID", "Options.InMemory"},
		"a wrong variable": {func(o *holdfast.Options) { o.Env = []string{"HOLDFAST_EXECUTOR_SLOTS=many"} }, fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_SLOTS"},
		"no such file":     {func(o *holdfast.Options) { o.AgentFiles = []string{"none.yaml"} }, fault.NotFound, "AGENTS_NOT_FOUND", "none.yaml"},
		"no such keys":     {func(o *holdfast.Options) { o.APIKeys = "none.yaml" }, fault.Invalid, "API_KEYS_INVALID", "none.yaml"},
		"an agent twice":   {func(o *holdfast.Options) { o.Agents = append(o.Agents, clerk(nothing)) }, fault.Conflict, "AGENT_EXISTS", "clerk"},
		"a wrong agent":    {func(o *holdfast.Options) { o.Agents[0].Name = "" }, fault.Invalid, "AGENT_INVALID", "name"},
		"an unknown model": {func(o *holdfast.Options) { o.Models = nil }, fault.Invalid, "MODEL_INVALID", `the provider "script"`},
		"a model without":  {func(o *holdfast.Options) { o.Models = map[string]executor.Model{"script": nil} }, fault.Invalid, "MODEL_INVALID", "script"},
		"all origins": {func(o *holdfast.Options) {
			o.Authenticate = func(*http.Request) (*holdfast.Caller, error) { return nil, nil }
			o.Env = []string{"HOLDFAST_GATEWAY_CORS_ORIGINS=*"}
		}, fault.Invalid, "CORS_ORIGIN_INVALID", "HOLDFAST_GATEWAY_CORS_ORIGINS"},
		"two kinds of callers": {func(o *holdfast.Options) {
			o.Authenticate = func(*http.Request) (*holdfast.Caller, error) { return nil, nil }
			o.Env = []string{"HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true"}
		}, fault.Invalid, "CONFIG_INVALID", "HOLDFAST_GATEWAY_INSECURE_NO_AUTH"},
		"a missing API key": {func(o *holdfast.Options) { o.Agents[0].Model = "anthropic/claude" }, fault.Invalid, "MODEL_INVALID", "Options.Env"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, "", nothing)
			test.change(&o)
			_, err := holdfast.Start(t.Context(), o)
			wantFault(t, err, test.kind, test.reason, test.says)
		})
	}
}

func TestAnEndedContextStartsNothing(t *testing.T) {
	t.Parallel()
	if err := holdfast.Run(expired(t), options(t, t.TempDir(), nothing)); err == nil {
		t.Error("a runtime started with an ended context")
	}
}

func TestAnErrorOfReadyEndsTheRuntime(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	data := t.TempDir()
	o := options(t, data, nothing)
	o.Ready = func(r *holdfast.Runtime) error {
		if status, _ := request(t, http.MethodGet, r.URL()+"/readyz", ""); status != http.StatusOK {
			t.Errorf("/readyz answers %d in Ready, want 200", status)
		}
		return full
	}
	if err := holdfast.Run(t.Context(), o); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	start(t, options(t, data, nothing)) // the folder is free
}

func TestVariablesWinOverOptions(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "other.db")
	o := options(t, t.TempDir(), nothing)
	o.Env = []string{"HOLDFAST_STATE_SQLITE_PATH=" + elsewhere, "HOLDFAST_GATEWAY_LISTEN=127.0.0.1:0", "HOLDFAST_GATEWAY_DEFAULT_AGENT="}
	o.Listen = "192.0.2.1:1" // no address of this machine
	r := start(t, o)
	if _, err := os.Stat(elsewhere); err != nil {
		t.Errorf("the database is not where the variable says: %v", err)
	}
	if _, text := request(t, http.MethodPost, r.URL()+"/chat", strings.Replace(message("s", "hello"), `"agentType":"clerk",`, "", 1)); !strings.Contains(text, "You said") {
		t.Errorf("the only agent is not the default: %s", text)
	}
}

func TestWithoutAgentsTheDemoAnswers(t *testing.T) {
	t.Parallel()
	r := start(t, holdfast.Options{InMemory: true, Listen: "127.0.0.1:0", LogOutput: t.Output()})
	_, text := request(t, http.MethodPost, r.URL()+"/chat", `{"id":"d","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"What is 6 * 7?"}]}]}`)
	if !strings.Contains(text, `"output":{"value":42}`) {
		t.Errorf("got %s", text)
	}
}

func TestCallersOfTheProcessReachTheirOwnTenantAndUser(t *testing.T) {
	t.Parallel()
	r := start(t, options(t, "", nothing))
	ann := within(t, r, holdfast.Caller{Tenant: "acme", User: "ann"})
	say(t, ann, "s", "hello")
	for name, test := range map[string]struct {
		caller holdfast.Caller
		reason string
	}{
		"the same user":     {holdfast.Caller{Tenant: "acme", User: "ann"}, ""},
		"no user":           {holdfast.Caller{Tenant: "acme"}, ""},
		"another user":      {holdfast.Caller{Tenant: "acme", User: "bob"}, "SESSION_NOT_FOUND"},
		"another tenant":    {holdfast.Caller{Tenant: "other", Scopes: []string{"admin"}}, "SESSION_NOT_FOUND"},
		"the operator":      {holdfast.Caller{Tenant: "acme", User: "bob", Scopes: []string{"operate"}}, ""},
		"nobody in default": {holdfast.Caller{}, "SESSION_NOT_FOUND"},
		"without a right":   {holdfast.Caller{Tenant: "acme", User: "ann", Scopes: []string{}}, "SCOPE_MISSING"},
	} {
		if _, err := within(t, r, test.caller).Get(t.Context(), "s"); fault.ReasonOf(err) != test.reason {
			t.Errorf("%s: got %v, want %q", name, err, test.reason)
		}
	}
	for reason, caller := range map[string]holdfast.Caller{
		"SCOPE_UNKNOWN":  {Scopes: []string{"root"}},
		"TENANT_INVALID": {Tenant: "a\nb"},
		"USER_INVALID":   {User: strings.Repeat("u", 257)},
	} {
		if _, err := r.Client(caller); fault.ReasonOf(err) != reason {
			t.Errorf("got %v, want %s", err, reason)
		}
	}
}

// lockedBuffer is a buffer for many goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// mounted serves the handler of a runtime below /agents of a server of the program, whose users have cookies.
func mounted(t *testing.T, o holdfast.Options) (url string) {
	t.Helper()
	o.Listen = holdfast.NoListen
	r := start(t, o)
	mux := http.NewServeMux()
	mux.Handle("/agents/", http.StripPrefix("/agents", r.Handler()))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/agents"
}

func TestAProgramMountsTheGatewayAndAuthenticatesItsUsers(t *testing.T) {
	t.Parallel()
	o := options(t, "", nothing)
	o.Authenticate = func(r *http.Request) (*holdfast.Caller, error) {
		cookie, err := r.Cookie("user")
		switch {
		case err != nil:
			return nil, nil // API keys may decide
		case cookie.Value == "gone":
			return nil, fault.New(fault.Unauthenticated, "SESSION_OVER", "log in again")
		case cookie.Value == "broken":
			return nil, errors.New("the table of users is locked")
		}
		return &holdfast.Caller{Tenant: "acme", User: cookie.Value}, nil
	}
	var log lockedBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	url := mounted(t, o)
	if status, text := request(t, http.MethodPost, url+"/chat", message("s", "hello"), "Cookie", "user=ann"); status != http.StatusOK || !strings.Contains(text, "You said") {
		t.Fatalf("ann's chat answers %d: %s", status, text)
	}
	for name, test := range map[string]struct {
		status  int
		says    string
		headers []string
	}{
		"ann":           {http.StatusOK, "hello", []string{"Cookie", "user=ann"}},
		"bob":           {http.StatusOK, `"messages":[]`, []string{"Cookie", "user=bob"}},
		"nobody":        {http.StatusUnauthorized, "API_KEY_MISSING", nil},
		"a made-up key": {http.StatusUnauthorized, "API_KEY_WRONG", []string{"Authorization", "Bearer hf_MADEUP"}},
		"a former user": {http.StatusUnauthorized, "SESSION_OVER", []string{"Cookie", "user=gone"}},
		"a failure":     {http.StatusInternalServerError, "INTERNAL", []string{"Cookie", "user=broken"}},
	} {
		status, text := request(t, http.MethodGet, url+"/messages?sessionId=s", "", test.headers...)
		if status != test.status || !strings.Contains(text, test.says) || strings.Contains(text, "locked") {
			t.Errorf("%s: got %d, %s; want %d with %q", name, status, text, test.status, test.says)
		}
	}
	if !strings.Contains(log.String(), "the table of users is locked") {
		t.Errorf("the failure is not in the log: %s", log.String())
	}
	for origin, want := range map[string]int{"https://evil.example": http.StatusForbidden, "null": http.StatusForbidden, strings.TrimSuffix(url, "/agents"): http.StatusAccepted} {
		if got, text := request(t, http.MethodPost, url+"/abort?sessionId=s", "", "Cookie", "user=ann", "Origin", origin); got != want {
			t.Errorf("a page of %s may stop a run: %d, want %d: %s", origin, got, want, text)
		}
	}
}

func TestAMountedGatewayWithoutCredentialsServesThisMachineOnly(t *testing.T) {
	t.Parallel()
	o := options(t, "", nothing)
	o.Listen = holdfast.NoListen
	r := start(t, o)
	for address, want := range map[string]int{"192.0.2.1:5": http.StatusForbidden, "@": http.StatusForbidden, "127.0.0.1:5": http.StatusOK, "[::1]:5": http.StatusOK} {
		w, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/agents", nil)
		request.RemoteAddr = address
		r.Handler().ServeHTTP(w, request)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d: %s", address, w.Code, want, w.Body)
		}
	}
}
