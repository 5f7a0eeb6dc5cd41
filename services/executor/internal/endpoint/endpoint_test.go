package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/webhook"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// testSecret is the example of the specification of webhooks.
const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// world is an application on an in-memory network, with a client of it, in a bubble of fake time.
type world struct {
	*testing.T
	app     *endpointapp.App
	network *rpc.Memory
	client  *Client
	runner  *tool.Runner
	log     *lockedBuffer

	server *http.Server
	served sync.WaitGroup
	events []tool.Event
	began  atomic.Int64                     // calls that the application has taken
	answer atomic.Pointer[http.HandlerFunc] // in place of the application
}

type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// inBubble runs a test with an application that is up.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		secret, err := webhook.ParseSecret(testSecret)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{
			T: t, app: &endpointapp.App{Secrets: []webhook.Secret{secret}}, network: rpc.NewMemory(), log: &lockedBuffer{},
		}
		log := slog.New(slog.NewTextHandler(w.log, nil))
		w.runner = &tool.Runner{Log: log}
		w.client, err = New(Config{
			URL: "http://app/agents?key=hush", Secrets: []webhook.Secret{secret}, Policy: outbound.Policy{Hosts: []string{"app"}},
			Headers: map[string]string{"Authorization": "Bearer x"},
		}, Peers{Log: log, Jitter: func() float64 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		w.client.http.Transport = &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.network.DialContext(ctx, "app") }, DisableCompression: true,
		}
		w.up()
		test(w)
		w.client.Wait(time.Minute)
		w.client.Close()
		w.down()
	})
}

// up starts the application.
func (w *world) up() {
	w.Helper()
	listener, err := w.network.Listen(w.Context(), "app")
	if err != nil {
		w.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if answer := w.answer.Load(); answer != nil {
			(*answer)(rw, r)
			return
		}
		w.app.ServeHTTP(rw, r)
	})}
	w.server = server
	w.served.Go(func() { _ = server.Serve(listener) }) // ErrServerClosed
}

// down kills the application, with all of its connections.
func (w *world) down() {
	_ = w.server.Close()
	w.served.Wait()
	synctest.Wait()
}

// handle sets the handler of a call, which counts.
func (w *world) handle(name string, h endpointapp.Handler) {
	w.app.Handle(name, func(ctx context.Context, c *endpointapp.Call) (any, error) {
		w.began.Add(1)
		return h(ctx, c)
	})
}

// refund is a call of a tool.
func (w *world) refund(ctx context.Context, t agent.Tool) tool.Outcome {
	t.Name = "refund"
	t = Binding{Client: w.client, Build: "b1"}.Tool(t, []string{"execute"}, nil)
	call := &agent.Call{
		ID: "call_1", Tool: "refund", IdempotencyKey: "key", Tenant: "acme", SessionID: "s-1", RunID: "r-1", AgentType: "support", UserID: "u-17",
		Step: 7, Turn: 3, Input: json.RawMessage(`{"order":"<o-1>"}`),
	}
	return w.runner.Execute(ctx, t, call, tool.Scope{
		State: agent.State{"refunds": json.Number("1")},
		Emit: func(_ context.Context, e tool.Event) error {
			w.events = append(w.events, e)
			return nil
		},
	})
}

func (w *world) wantFailure(o tool.Outcome, synthetic bool, want string) {
	w.Helper()
	if o.Result.Success || o.Result.Synthetic != synthetic || !strings.Contains(o.Result.Error, want) {
		w.Errorf("result = %+v, want a failure with %q, synthetic: %v", o.Result, want, synthetic)
	}
}

func TestAToolAtAnEndpointDoesWhatAToolInGoDoes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var got *endpointapp.Call
		w.handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
			got = c
			c.Event("progress", 1)
			c.Line("event", map[string]any{"name": "progress", "data": nil, "id": "bar", "transient": true})
			c.Line("metadata", map[string]any{"mood": "good"})
			c.Line("ping", map[string]any{})
			c.Line("usage", map[string]any{"kind": "refund", "name": "eur", "value": 12.5})
			c.Line("state", []any{
				map[string]any{"op": "replace", "key": "refunds", "value": 2}, map[string]any{"op": "append", "key": "orders", "value": []any{"o-1"}},
				map[string]any{"op": "replace", "key": "gone", "value": 1}, map[string]any{"op": "delete", "key": "gone"},
			})
			return map[string]any{"ok": true}, nil
		})
		o := w.refund(w.Context(), agent.Tool{Timeout: 30 * time.Second})
		if !o.Result.Success || string(o.Result.Result) != `{"ok":true}` {
			w.Fatalf("result = %+v", o.Result)
		}
		if text := fmt.Sprintf("%s", o.Ops); text != `[{orders replace ["o-1"]} {refunds replace 2}]` {
			w.Errorf("ops = %s", text)
		}
		if len(o.Usage) != 1 || o.Usage[0] != (tool.Usage{Kind: "refund", Name: "eur", Value: 12.5}) {
			w.Errorf("usage = %v", o.Usage)
		}
		var events []string
		for _, e := range w.events {
			events = append(events, fmt.Sprintf("%s %q %v %s", e.Name, e.ID, e.Transient, e.Data))
		}
		if want := []string{`progress "" false 1`, `progress "bar" true null`, `message-metadata "" false {"mood":"good"}`}; !slices.Equal(events, want) {
			w.Errorf("events = %q", events)
		}
		if got.Type != "tool" || got.Name != "refund" || got.Agent != "support" || got.Build != "b1" || string(got.Input) != `{"order":"<o-1>"}` {
			w.Errorf("request = %+v", got.Request)
		}
		c := got.Context
		if c.Tenant != "acme" || c.User.ID != "u-17" || c.Session.ID != "s-1" || c.Run.ID != "r-1" || c.Run.Turn != 3 || c.Step != 7 || c.Call.ID != "call_1" ||
			c.Call.IdempotencyKey != "key" || c.Call.Attempt != 1 || !c.Deadline.Equal(time.Now().Add(30*time.Second)) {
			w.Errorf("context = %+v", c)
		}
		if text := fmt.Sprint(got.Body["state"]); text != "map[refunds:1]" {
			w.Errorf("state = %s", text)
		}
		h := got.HTTP.Header
		if h.Get("Authorization") != "Bearer x" || h.Get("Accept-Encoding") != "" || h.Get("Content-Type") != "application/json" || h.Get("User-Agent") != "holdfast" {
			w.Errorf("headers = %v", h)
		}
	})
}

func TestTheFailureOfATool(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
			c.Set("refunds", 2)
			return nil, &endpointapp.Error{Message: "the bank said 402", PublicMessage: "No refund today.", Code: "NO"}
		})
		o := w.refund(w.Context(), agent.Tool{})
		w.wantFailure(o, false, "the bank said 402")
		if o.Result.PublicError != "No refund today." || o.Ops != nil {
			w.Errorf("outcome = %+v", o)
		}
	})
}

// Each row is an answer, and what becomes of a call that must not run twice.
func TestUnusableAnswers(t *testing.T) {
	t.Parallel()
	huge := `{"result":"` + strings.Repeat("x", MaxLine) + "\"}\n"
	for name, test := range map[string]struct {
		answer func(ctx context.Context, c *endpointapp.Call)
		want   string
		known  bool // the application has not executed it, or the fault of the host ended it
		took   time.Duration
	}{
		"ends at once":                {answer: func(_ context.Context, _ *endpointapp.Call) {}},
		"ends behind an event":        {answer: func(_ context.Context, c *endpointapp.Call) { c.Event("a", 1) }},
		"ends within the last line":   {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(`{"result": 1}`) }},
		"no JSON":                     {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw("<html>\n{\"result\":1}\n") }},
		"an empty line":               {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw("\n{\"result\":1}\n") }},
		"two members":                 {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(`{"ping":{},"result":1}` + "\n") }},
		"no member":                   {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw("{}\n") }},
		"a list":                      {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw("[1]\n") }},
		"an unknown member":           {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("log", "x") }},
		"another case":                {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(`{"Result":1}` + "\n") }},
		"a line of a method":          {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("send", 1) }},
		"an event that is none":       {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("event", "x") }},
		"an error that is none":       {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("error", "x") }},
		"a huge line":                 {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(huge) }},
		"endless lines":               {answer: func(ctx context.Context, c *endpointapp.Call) { endless(ctx, c, `{"ping":{}}`+"\n", 0) }},
		"an endless line":             {answer: func(ctx context.Context, c *endpointapp.Call) { endless(ctx, c, strings.Repeat("x", 4096), 0) }},
		"a trickle":                   {answer: func(ctx context.Context, c *endpointapp.Call) { endless(ctx, c, "x", time.Second) }, took: MaxSilence},
		"silence":                     {answer: func(ctx context.Context, c *endpointapp.Call) { c.Event("a", 1); <-ctx.Done() }, took: MaxSilence},
		"pings until the end of time": {answer: func(ctx context.Context, c *endpointapp.Call) { endless(ctx, c, `{"ping":{}}`+"\n", 30*time.Second) }, took: 5 * time.Minute, want: "did not end within 5m0s"},
		"no headers":                  {answer: func(ctx context.Context, _ *endpointapp.Call) { <-ctx.Done() }, took: 5 * time.Minute, want: "did not end within 5m0s"},
		"another content type": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Writer.Header().Set("Content-Type", "text/html")
			c.Line("result", 1)
		}},
		"compressed": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Writer.Header().Set("Content-Encoding", "gzip")
			c.Line("result", 1)
		}},
		"a redirect": {answer: func(_ context.Context, c *endpointapp.Call) {
			http.Redirect(c.Writer, c.HTTP, "http://elsewhere/", http.StatusTemporaryRedirect)
		}, known: true, want: "redirects are not followed"},
		"a refusal": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Writer.WriteHeader(http.StatusNotFound)
			c.Raw(`{"error":{"code":"TOOL_UNKNOWN","message":"no tool refund here"}}`)
		}, known: true, want: "HTTP status 404 (TOOL_UNKNOWN): no tool refund here"},
		"a refusal without a body": {answer: func(_ context.Context, c *endpointapp.Call) { c.Writer.WriteHeader(http.StatusForbidden) }, known: true, want: "HTTP status 403"},
		"a crash with a body": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Writer.WriteHeader(500)
			c.Raw(`{"error":{"message":"before it began"}}`)
		}, known: true, want: "before it began"},
		"a proxy without a backend": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Writer.WriteHeader(http.StatusBadGateway)
			c.Raw("<html>")
		}},
		"an invalid event":          {answer: func(_ context.Context, c *endpointapp.Call) { c.Event("", 1); c.Line("result", 1) }, known: true, want: "EVENT_INVALID"},
		"an event of the runtime":   {answer: func(_ context.Context, c *endpointapp.Call) { c.Event("subagent", 1) }, known: true, want: "EVENT_INVALID"},
		"an event with an empty id": {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(`{"event":{"name":"a","id":""}}` + "\n") }, known: true, want: "EVENT_INVALID"},
		"a huge event":              {answer: func(_ context.Context, c *endpointapp.Call) { c.Event("a", strings.Repeat("x", 1<<20)) }, known: true, want: "EVENT_TOO_LARGE"},
		"invalid metadata":          {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("metadata", map[string]any{"usage": 1}) }, known: true, want: "EVENT_INVALID"},
		"a write without a key":     {answer: func(_ context.Context, c *endpointapp.Call) { c.Set("", 1) }, known: true, want: "STATE_INVALID"},
		"a write of another kind": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Raw(`{"state":[{"op":"merge","key":"a","value":1}]}` + "\n")
		}, known: true, want: "replace, append or delete"},
		"a write without a value": {answer: func(_ context.Context, c *endpointapp.Call) { c.Raw(`{"state":[{"op":"replace","key":"a"}]}` + "\n") }, known: true, want: "has no value"},
		"an append of no list": {answer: func(_ context.Context, c *endpointapp.Call) {
			c.Raw(`{"state":[{"op":"append","key":"a","value":1}]}` + "\n")
		}, known: true, want: "must be a list"},
		"a write that is too large":  {answer: func(_ context.Context, c *endpointapp.Call) { c.Set("a", strings.Repeat("x", 2_000_000)) }, known: true, want: "STATE_SIZE_EXCEEDED"},
		"a result that is too large": {answer: func(_ context.Context, c *endpointapp.Call) { c.Line("result", strings.Repeat("x", 1<<20)) }, want: "result_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.handle("tool/refund", func(ctx context.Context, c *endpointapp.Call) (any, error) {
					test.answer(ctx, c)
					return nil, endpointapp.ErrNoEnd
				})
				begin := time.Now()
				o := w.refund(w.Context(), agent.Tool{Timeout: 5 * time.Minute})
				if test.want == "" {
					test.want = loop.OutcomeUnknown
				}
				w.wantFailure(o, !test.known, test.want)
				if took := time.Since(begin); took != test.took {
					w.Errorf("it took %v, want %v", took, test.took)
				}
				if n := w.began.Load(); n != 1 {
					w.Errorf("the application was called %d times", n)
				}
			})
		})
	}
}

// endless sends a text again and again.
func endless(ctx context.Context, c *endpointapp.Call, text string, pause time.Duration) {
	for ctx.Err() == nil {
		c.Raw(text)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func TestWhatFollowsAResultIsIgnored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.handle("tool/refund", func(ctx context.Context, c *endpointapp.Call) (any, error) {
			c.Line("result", 1)
			c.Raw("{\"error\":{\"message\":\"no\"}}\n")
			endless(ctx, c, strings.Repeat("x", 1000), 0)
			return nil, endpointapp.ErrNoEnd
		})
		begin := time.Now()
		for range 2 {
			if o := w.refund(w.Context(), agent.Tool{}); !o.Result.Success || string(o.Result.Result) != "1" {
				w.Errorf("result = %+v", o.Result)
			}
		}
		if took := time.Since(begin); took > 0 {
			w.Errorf("the results came after %v", took)
		}
	})
}

func TestACallThatWasNotSentWaitsForItsEndpoint(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) { return c.Context.Call.Attempt, nil })
		w.down()
		ended := make(chan tool.Outcome, 1)
		begin := time.Now()
		go func() { ended <- w.refund(w.Context(), agent.Tool{Timeout: 2 * time.Second}) }() // a tool that must not run twice
		time.Sleep(time.Hour)                                                                //nolint:forbidigo // of the bubble
		w.up()
		o := <-ended
		if !o.Result.Success || w.began.Load() != 1 {
			w.Errorf("result = %+v after %d calls", o.Result, w.began.Load())
		}
		if late := time.Since(begin) - time.Hour; late > maxDelay {
			w.Errorf("it came %v after the application", late)
		}
		if n := strings.Count(w.log.String(), "a call waits for its endpoint"); n != 1 {
			w.Errorf("it was logged %d times: %s", n, w.log)
		}
		if strings.Contains(w.log.String(), "hush") {
			w.Errorf("the log has the query: %s", w.log)
		}
	})
}

func TestABusyEndpointIsAskedAgainWhenItWants(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		inBubble(t, func(w *world) {
			w.handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
				if c.Context.Call.Attempt < 3 {
					c.Writer.Header().Set("Retry-After", "20")
					c.Writer.WriteHeader(status)
					return nil, endpointapp.ErrNoEnd
				}
				return "done", nil
			})
			begin := time.Now()
			o := w.refund(w.Context(), agent.Tool{Timeout: time.Second})
			if took := time.Since(begin); !o.Result.Success || took != 40*time.Second {
				w.Errorf("%d: result = %+v after %v", status, o.Result, took)
			}
		})
	}
}

func TestACutCallIsRepeatedIfItIsSafe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tool agent.Tool
		cuts int
		want int // calls
		ok   bool
	}{
		"safe":              {tool: agent.Tool{Retry: agent.RetrySafe}, cuts: 2, want: 3, ok: true},
		"read-only":         {tool: agent.Tool{ReadOnly: true}, cuts: 2, want: 3, ok: true},
		"neither":           {cuts: 2, want: 1},
		"cut until the end": {tool: agent.Tool{Retry: agent.RetrySafe}, cuts: 100, want: 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				keys := map[string]bool{}
				w.handle("tool/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
					keys[c.Context.Call.IdempotencyKey] = true
					if n := c.Context.Call.Attempt; int64(n) != w.began.Load() {
						w.Errorf("attempt %d is the request %d", n, w.began.Load())
					}
					if c.State["refunds"] != 1.0 {
						w.Errorf("a repeated call sees %v", c.State)
					}
					c.Line("state", []any{map[string]any{"op": "append", "key": "log", "value": []any{c.Context.Call.Attempt}}})
					if c.Context.Call.Attempt <= test.cuts {
						panic(http.ErrAbortHandler)
					}
					return "done", nil
				})
				o := w.refund(w.Context(), test.tool)
				if n := int(w.began.Load()); n != test.want || len(keys) != 1 || o.Result.Success != test.ok {
					w.Errorf("%d calls with %d keys, %+v", n, len(keys), o.Result)
				}
				if text := fmt.Sprintf("%s", o.Ops); test.ok && text != "[{log replace [3]}]" {
					w.Errorf("ops = %s, want those of the last attempt", text)
				}
				if !test.ok {
					w.wantFailure(o, true, loop.OutcomeUnknown)
				}
			})
		})
	}
}

func TestAStoppedCallClosesItsConnection(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		stopped := make(chan time.Time, 1)
		w.handle("tool/refund", func(ctx context.Context, c *endpointapp.Call) (any, error) {
			c.Event("a", 1)
			<-ctx.Done()
			stopped <- time.Now()
			return nil, endpointapp.ErrNoEnd
		})
		ctx, stop := context.WithTimeout(w.Context(), 10*time.Second)
		defer stop()
		begin := time.Now()
		o := w.refund(ctx, agent.Tool{Retry: agent.RetrySafe})
		if !o.Canceled || w.began.Load() != 1 {
			w.Errorf("outcome = %+v after %d calls", o, w.began.Load())
		}
		if took := (<-stopped).Sub(begin); took != 10*time.Second {
			w.Errorf("the application has learned it after %v", took)
		}
	})
}

func TestCallsAboveTheLimitWaitBeforeTheirTimeBegins(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.client.slots = make(chan struct{}, 2)
		var now, most atomic.Int64
		w.handle("tool/refund", func(_ context.Context, _ *endpointapp.Call) (any, error) {
			for n := now.Add(1); n > most.Load(); {
				most.Store(n)
			}
			time.Sleep(9 * time.Second) //nolint:forbidigo // of the bubble
			now.Add(-1)
			return "done", nil
		})
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if o := w.refund(w.Context(), agent.Tool{Timeout: 10 * time.Second}); !o.Result.Success {
					w.Errorf("result = %+v", o.Result)
				}
			})
		}
		calls.Wait()
		if n := most.Load(); n != 2 {
			w.Errorf("%d calls at once, want 2", n)
		}
	})
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var dialed atomic.Int64
		w.client.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialed.Add(1)
			return w.network.DialContext(ctx, "app")
		}}
		w.handle("tool/refund", func(_ context.Context, _ *endpointapp.Call) (any, error) { return 1, nil })
		for range 5 {
			if o := w.refund(w.Context(), agent.Tool{}); !o.Result.Success {
				w.Errorf("result = %+v", o.Result)
			}
			w.client.Wait(time.Minute)
		}
		if n := dialed.Load(); n != 1 {
			w.Errorf("%d connections, want 1", n)
		}
	})
}

func TestConfigurationsAreChecked(t *testing.T) {
	t.Parallel()
	secret, err := webhook.ParseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	policy := outbound.Policy{Hosts: []string{"app", "localhost", "127.0.0.1"}}
	for text, c := range map[string]Config{
		"":                                    {URL: "https://app/x?y=1", Secrets: []webhook.Secret{secret}},
		"none":                                {URL: "http://localhost:1/x"},
		"none of an address":                  {URL: "http://127.0.0.1:1/x"},
		"url: it must begin with":             {URL: "ftp://app", Secrets: []webhook.Secret{secret}},
		"url: it must begin with https":       {URL: "app:80", Secrets: []webhook.Secret{secret}},
		"must not hold credentials":           {URL: "https://a:b@app", Secrets: []webhook.Secret{secret}},
		"must not have a fragment":            {URL: "https://app#x", Secrets: []webhook.Secret{secret}},
		"not on the list":                     {URL: "https://other", Secrets: []webhook.Secret{secret}},
		"secrets: an endpoint on another":     {URL: "https://app"},
		"headers.traceparent: the header is":  {URL: "https://app", Secrets: []webhook.Secret{secret}, Headers: map[string]string{"traceparent": "x"}},
		"headers.webhook-id: the header is":   {URL: "https://app", Secrets: []webhook.Secret{secret}, Headers: map[string]string{"webhook-id": "x"}},
		"headers.X: a header has a name":      {URL: "https://app", Secrets: []webhook.Secret{secret}, Headers: map[string]string{"X": "a\nb"}},
		"headers.X Y: a header has a name of": {URL: "https://app", Secrets: []webhook.Secret{secret}, Headers: map[string]string{"X Y": "a"}},
	} {
		c.Policy = policy
		_, err := New(c, Peers{})
		valid := text == "" || strings.HasPrefix(text, "none")
		if (err == nil) != valid || !valid && (fault.ReasonOf(err) != "ENDPOINT_INVALID" || !strings.Contains(err.Error(), text)) {
			t.Errorf("New(%+v) = %v, want %q", c, err, text)
		}
	}
}

func TestADescriptionIsAskedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.app.Describe(`{"endpoint":1,"agents":[]}`)
		first, err := w.client.Describe(w.Context(), nil)
		if err != nil || string(first.Data) != `{"endpoint":1,"agents":[]}` || first.Tag == "" {
			w.Fatalf("Describe = %+v, %v", first, err)
		}
		if again, err := w.client.Describe(w.Context(), first); err != nil || again != first {
			w.Errorf("an unchanged description: %+v, %v", again, err)
		}
		w.app.Describe(strings.Repeat(" ", MaxDescription+1))
		if _, err := w.client.Describe(w.Context(), first); fault.ReasonOf(err) != "ENDPOINT_REFUSES" || !strings.Contains(err.Error(), "more than 1048576 bytes") {
			w.Errorf("a large description: %v", err)
		}
		w.app.Secrets = nil
		if _, err := w.client.Describe(w.Context(), first); fault.ReasonOf(err) != "ENDPOINT_REFUSES" || !strings.Contains(err.Error(), "HTTP status 401 (SECRET_MISSING)") {
			w.Errorf("a refused request: %v", err)
		}
		w.down()
		if _, err := w.client.Describe(w.Context(), first); fault.ReasonOf(err) != "ENDPOINT_UNREACHABLE" || strings.Contains(err.Error(), "hush") {
			w.Errorf("an endpoint that is down: %v", err)
		}
		w.up()
		end := make(chan struct{})
		defer close(end)
		for what, answer := range map[string]http.HandlerFunc{
			"must be application/json":    func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) },
			"redirects are not followed":  func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/x", http.StatusFound) },
			"has not answered within 10s": func(http.ResponseWriter, *http.Request) { <-end },
			"HTTP status 304":             func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNotModified) },
			"cannot be reached: it has not": func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				rw.(http.Flusher).Flush()
				<-end
			},
		} {
			w.answer.Store(&answer)
			if _, err := w.client.Describe(w.Context(), nil); err == nil || !strings.Contains(err.Error(), what) {
				w.Errorf("Describe = %v, want %q", err, what)
			}
		}
	})
}

var errOops = errors.New("oops")

func TestCallbacksOfAnAgent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var a agent.Agent
		Binding{Client: w.client, Build: "b1"}.Agent(&a, []string{"prompt", "stopWhen", "compact", "guard.onOutput", "guard.onReply"}, nil)
		view := agent.RunView{Tenant: "acme", SessionID: "s-1", RunID: "r-1", AgentType: "support", Turn: 2, Step: 3, State: agent.State{"name": "Ann"}}
		message := agent.Message{ID: "m1", Role: agent.RoleAssistant, Parts: []agent.Part{
			agent.Text{Text: "hi"}, agent.Reasoning{Text: "hm", ProviderData: json.RawMessage(`"secret"`)},
			agent.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{"a":1}`)},
			agent.ToolResult{CallID: "c1", Name: "look", Success: true, Result: json.RawMessage(`2`)},
			agent.File{MediaType: "image/png", URL: "data:,x", Filename: "x.png"},
		}}
		const shown = `{"id":"m1","metadata":{},"parts":[{"text":"hi","type":"text"},{"text":"hm","type":"reasoning"},` +
			`{"arguments":{"a":1},"callId":"c1","name":"look","type":"tool-call"},{"callId":"c1","name":"look","result":2,"success":true,"type":"tool-result"},` +
			`{"filename":"x.png","mediaType":"image/png","type":"file","url":"data:,x"}],"role":"assistant"}`
		members := func(c *endpointapp.Call, names ...string) string {
			picked := map[string]any{}
			for _, name := range names {
				picked[name] = c.Body[name]
			}
			text, err := json.Marshal(picked)
			if err != nil {
				w.Error(err)
			}
			return string(text)
		}
		check := func(got, want string) {
			w.Helper()
			if got != want {
				w.Errorf("got\n%s, want\n%s", got, want)
			}
		}
		answer := any("You help Ann.")
		w.handle("prompt", func(_ context.Context, c *endpointapp.Call) (any, error) {
			check(members(c, "type", "agent", "build", "state"), `{"agent":"support","build":"b1","state":{"name":"Ann"},"type":"prompt"}`)
			if c.Context.Run.Turn != 2 || c.Context.Step != 3 || c.Context.Call != nil || c.Context.User != nil {
				w.Errorf("context = %+v", c.Context)
			}
			return answer, nil
		})
		if text, err := a.Prompt(w.Context(), &view); text != "You help Ann." || err != nil {
			w.Errorf("Prompt = %q, %v", text, err)
		}
		answer = 1
		if _, err := a.Prompt(w.Context(), &view); err == nil || !strings.Contains(err.Error(), "the result of prompt must be a string, and is \"1\"") {
			w.Errorf("Prompt = %v", err)
		}
		w.handle("stopWhen", func(_ context.Context, c *endpointapp.Call) (any, error) {
			check(members(c, "steps", "reply", "results"), `{"reply":`+shown+`,"results":[{"callId":"c2","error":"no","name":"x","success":false}],"steps":4}`)
			return true, nil
		})
		progress := &agent.Progress{RunView: view, Steps: 4, Reply: message, Results: []agent.ToolResult{{CallID: "c2", Name: "x", Error: "no"}}}
		if stop, err := a.StopWhen(w.Context(), progress); !stop || err != nil {
			w.Errorf("StopWhen = %v, %v", stop, err)
		}
		w.handle("compact", func(_ context.Context, c *endpointapp.Call) (any, error) {
			check(members(c, "messages"), `{"messages":[`+shown+`]}`)
			return "short", nil
		})
		if text, err := a.Context.Compact(w.Context(), &view, []agent.Message{message}); text != "short" || err != nil {
			w.Errorf("Compact = %q, %v", text, err)
		}
		for result, want := range map[string]agent.Verdict{
			"null": {}, `{"revise":"more"}`: {Revise: "more"}, `{"fail":"no"}`: {Fail: "no"}, `{"replace":[1]}`: {Replace: json.RawMessage("[1]")},
		} {
			w.handle("guard/onReply", func(_ context.Context, c *endpointapp.Call) (any, error) {
				check(members(c, "steps", "output", "reply"), `{"output":"hi","reply":`+shown+`,"steps":5}`)
				return json.RawMessage(result), nil
			})
			end := agent.Ending{RunView: view, Steps: 5, Output: json.RawMessage(`"hi"`), Reply: message}
			if v, err := a.Guard.OnReply(w.Context(), end); fmt.Sprint(v) != fmt.Sprint(want) || err != nil {
				w.Errorf("%s: verdict = %+v, %v", result, v, err)
			}
		}
		for _, result := range []string{"1", `{"revise":""}`, `{"revise":1}`, `{"accept":true}`, `{"revise":"a","fail":"b"}`, `true`} {
			w.handle("guard/onOutput", func(context.Context, *endpointapp.Call) (any, error) { return json.RawMessage(result), nil })
			if v, err := a.Guard.OnOutput(w.Context(), agent.Ending{RunView: view}); !errors.Is(err, errVerdict) {
				w.Errorf("%s: verdict = %+v, %v", result, v, err)
			}
		}
	})
}

func TestAnApprovalByRule(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		gated := Binding{Client: w.client}.Tool(agent.Tool{Name: "refund"}, []string{"approval"}, nil)
		var answer any = true
		w.handle("approval/refund", func(_ context.Context, c *endpointapp.Call) (any, error) {
			if string(c.Input) != `{"amount":5}` || c.Context.Call.ID != "c1" {
				w.Errorf("request = %+v", c.Request)
			}
			if answer == nil {
				return nil, errOops
			}
			return answer, nil
		})
		call := &agent.Call{ID: "c1", Tool: "refund", AgentType: "support", Input: json.RawMessage(`{"amount":5}`)}
		for value, want := range map[any]bool{true: true, false: false, nil: true, "no": true} {
			answer = value
			if got := gated.NeedsApproval(w.Context(), call); got != want {
				w.Errorf("answer %v: needs approval = %v, want %v", value, got, want)
			}
		}
		w.down()
		if _, err := gated.ApproveWhen(w.Context(), call); !errors.Is(err, catalog.ErrUnreachable) {
			w.Errorf("an endpoint that is down: %v", err)
		}
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var a agent.Agent
		names := []string{"beforeRun", "onStart", "onResume", "beforeModel", "afterModel", "beforeTool", "afterTool", "beforeSubAgent", "afterSubAgent", "onStateChange", "onMessage", "afterRun"}
		var callbacks []string
		got := map[string]map[string]any{}
		fail := false
		for _, name := range names {
			callbacks = append(callbacks, "hooks."+name)
			w.handle("hook/"+name, func(_ context.Context, c *endpointapp.Call) (any, error) {
				got[name] = c.Body
				c.Set("last", name)
				c.Event("seen", name)
				if fail {
					return nil, &endpointapp.Error{Message: "internal", PublicMessage: "Not now."}
				}
				return nil, nil
			})
		}
		Binding{Client: w.client}.Agent(&a, callbacks, nil)
		host := tool.NewHost(agent.State{}, nil, 0, nil)
		c := &agent.HookCall{Tenant: "acme", SessionID: "s-1", RunID: "r-1", AgentType: "support", ParentSessionID: "s-0", Turn: 1, Step: 2, Host: host}
		ctx, h := w.Context(), a.Hooks
		model := agent.ModelCall{Model: "openai/x", Attempt: 2, System: "sys", Messages: []agent.Message{{ID: "m", Role: agent.RoleUser}}}
		call := agent.ToolCall{ID: "c1", Name: "look", Arguments: json.RawMessage(`{}`)}
		if err := h.BeforeRun(ctx, c); err != nil {
			w.Error(err)
		}
		h.OnStart(ctx, c)
		h.OnResume(ctx, c)
		h.BeforeModel(ctx, c, model)
		h.AfterModel(ctx, c, model, agent.Message{}, errOops)
		h.BeforeTool(ctx, c, call)
		h.AfterTool(ctx, c, call, agent.ToolResult{CallID: "c1", Name: "look", Success: true, Result: json.RawMessage("1")})
		task := agent.SubAgentCall{ToolCall: call, AgentType: "worker", SessionID: "s-2"}
		h.BeforeSubAgent(ctx, c, task)
		h.AfterSubAgent(ctx, c, task, agent.ToolResult{CallID: "c1", Name: "look", Error: "no"})
		h.OnStateChange(ctx, c, []agent.Op{{Key: "k", Kind: agent.OpDelete}})
		h.OnMessage(ctx, c, agent.Message{ID: "m2", Role: agent.RoleTool})
		h.AfterRun(ctx, c, agent.RunEnd{Status: "completed", Output: json.RawMessage(`"hi"`), Steps: 2, Duration: 1500 * time.Millisecond})
		for name, want := range map[string]string{
			"beforeRun": `{}`, "onStart": `{}`, "onResume": `{}`,
			"beforeModel":    `{"attempt":2,"messages":[{"id":"m","metadata":{},"parts":[],"role":"user"}],"model":"openai/x","system":"sys","tools":[]}`,
			"afterModel":     `{"attempt":2,"error":"oops","model":"openai/x","reply":{"id":"","metadata":{},"parts":[],"role":""}}`,
			"beforeTool":     `{"toolCall":{"arguments":{},"callId":"c1","name":"look"}}`,
			"afterTool":      `{"toolCall":{"arguments":{},"callId":"c1","name":"look"},"toolResult":{"callId":"c1","name":"look","result":1,"success":true}}`,
			"beforeSubAgent": `{"subAgent":{"agentType":"worker","sessionId":"s-2"},"toolCall":{"arguments":{},"callId":"c1","name":"look"}}`,
			"afterSubAgent": `{"subAgent":{"agentType":"worker","sessionId":"s-2"},"toolCall":{"arguments":{},"callId":"c1","name":"look"},` +
				`"toolResult":{"callId":"c1","error":"no","name":"look","success":false}}`,
			"onStateChange": `{"ops":[{"key":"k","op":"delete"}]}`,
			"onMessage":     `{"message":{"id":"m2","metadata":{},"parts":[],"role":"tool"}}`,
			"afterRun":      `{"code":"","durationMs":1500,"error":"","output":"hi","status":"completed","steps":2}`,
		} {
			body := got[name]
			for _, member := range []string{"type", "agent", "name", "context", "state"} {
				delete(body, member)
			}
			if text, err := json.Marshal(body); err != nil || string(text) != want {
				w.Errorf("%s: %s, %v, want %s", name, text, err, want)
			}
		}
		if state := host.State(); state["last"] != "afterRun" {
			w.Errorf("state = %v", state)
		}
		fail = true
		h.OnStart(ctx, c)
		if state := host.State(); state["last"] != "afterRun" || !strings.Contains(w.log.String(), "a hook of an endpoint has failed") {
			w.Errorf("after a failed hook the state is %v; log: %s", state, w.log)
		}
		if err := h.BeforeRun(ctx, c); err == nil || err.Error() != "internal" || agent.PublicText(err) != "Not now." {
			w.Errorf("BeforeRun = %v", err)
		}
	})
}

// methodHost is the stored state of a session.
type methodHost struct {
	state agent.State
	sent  []string
}

func (h *methodHost) State(context.Context) (agent.State, error) { return h.state.Clone() }

func (h *methodHost) Update(_ context.Context, change func(agent.State) error) error {
	draft, err := h.state.Clone()
	if err != nil {
		return err
	}
	if err := change(draft); err != nil {
		return err
	}
	h.state = draft
	return nil
}

func (h *methodHost) Send(_ context.Context, value any) error {
	h.sent = append(h.sent, fmt.Sprintf("%s", value))
	return nil
}

func TestAMethod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var a agent.Agent
		Binding{Client: w.client}.Agent(&a, nil, []string{"reset"})
		host := &methodHost{state: agent.State{"n": json.Number("1")}}
		call := &agent.MethodCall{Tenant: "acme", SessionID: "s-1", AgentType: "support", UserID: "u", Args: []json.RawMessage{json.RawMessage("5")}, Host: host}
		var end func(c *endpointapp.Call) (any, error)
		w.handle("method/reset", func(_ context.Context, c *endpointapp.Call) (any, error) {
			if fmt.Sprint(c.Body["args"]) != "[5]" || c.Context.Run != nil || c.Context.User.ID != "u" {
				w.Errorf("request = %+v", c.Body)
			}
			c.Line("send", "half")
			c.Set("n", 0)
			return end(c)
		})
		end = func(*endpointapp.Call) (any, error) { return "done", nil }
		result, err := a.Methods[0].Call(w.Context(), call)
		if err != nil || string(result.(json.RawMessage)) != `"done"` || fmt.Sprint(host.sent, host.state) != `["half"] map[n:0]` {
			w.Errorf("Call = %s, %v; %v, %v", result, err, host.sent, host.state)
		}
		for want, failing := range map[string]func(*endpointapp.Call) (any, error){
			"METHOD_FAILED Not now.": func(*endpointapp.Call) (any, error) {
				return nil, &endpointapp.Error{Message: "internal", PublicMessage: "Not now."}
			},
			"METHOD_FAILED told": func(*endpointapp.Call) (any, error) { return nil, &endpointapp.Error{Message: "told", Code: "X"} },
			"INTERNAL internal":  func(*endpointapp.Call) (any, error) { return nil, &endpointapp.Error{Message: "internal"} },
			"METHOD_FAILED The method has not ended, and it is not known whether it took effect.": func(*endpointapp.Call) (any, error) { panic(http.ErrAbortHandler) },
		} {
			end = failing
			begun := w.began.Load()
			_, err := a.Methods[0].Call(w.Context(), call)
			got := "INTERNAL " + fmt.Sprint(err)
			if f, ok := fault.From(err); ok {
				got = f.Reason + " " + f.Detail
			}
			if got != want || w.began.Load() != begun+1 {
				w.Errorf("Call = %q after %d calls, want %q", got, w.began.Load()-begun, want)
			}
		}
		w.down()
		begin := time.Now()
		if _, err := a.Methods[0].Call(w.Context(), call); fault.ReasonOf(err) != "ENDPOINT_UNREACHABLE" || time.Since(begin) != methodLimit {
			w.Errorf("Call = %v after %v", err, time.Since(begin))
		}
	})
}
