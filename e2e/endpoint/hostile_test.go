package endpoint_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/e2e/harness"
)

// startRaw starts an app of the suite with no library, and returns its URL.
func startRaw(t *testing.T, app *endpointapp.App) (url string) {
	t.Helper()
	app.Unsigned = true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirected" {
			t.Error("the executor has followed a redirect")
		}
		app.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// answering returns a handler that writes the whole answer itself.
func answering(answer func(w http.ResponseWriter, r *http.Request)) endpointapp.Handler {
	return func(_ context.Context, c *endpointapp.Call) (any, error) {
		answer(c.Writer, c.HTTP)
		return nil, endpointapp.ErrNoEnd
	}
}

// giving returns a handler with a result.
func giving(result any) endpointapp.Handler {
	return func(context.Context, *endpointapp.Call) (any, error) { return result, nil }
}

// rawTool describes a tool of the raw app.
func rawTool(name, more string) string {
	return fmt.Sprintf(
		`{"name": %q, "description": "Does something.", "inputSchema": {"type": "object"}, "callbacks": ["execute"]%s}`, name, more,
	)
}

// rawAgent describes an agent with tools.
func rawAgent(name string, tools ...string) string {
	return fmt.Sprintf(`{"name": %q, "model": "suite/model", "tools": [%s]}`, name, strings.Join(tools, ", "))
}

// rawDescription describes agents.
func rawDescription(agents ...string) string {
	return fmt.Sprintf(`{"endpoint": 1, "sdk": "suite/1", "build": "b1", "agents": [%s]}`, strings.Join(agents, ", "))
}

// badAnswer is an answer of a hostile app, and what the model reads of it.
type badAnswer struct {
	name   string
	answer func(w http.ResponseWriter, r *http.Request)
	// want is the transcript of the call behind the name of its tool.
	want string
}

// stream answers 200 with these lines and ends.
func stream(lines ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, line := range lines {
			_, _ = io.WriteString(w, line+"\n") // fails if the executor has gone
		}
	}
}

// endless repeats a text until the executor closes the connection.
func endless(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
}

// status answers with another status than 200.
func status(code int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body) // fails if the executor has gone
	}
}

// unknownText begins the result of a call whose outcome is unknown.
const unknownText = "fails: the process that ran this call was lost, and it is not known whether the call took effect…"

var badAnswers = []badAnswer{
	{name: "nothing", answer: stream(), want: unknownText},
	{name: "no result", answer: stream(`{"event": {"name": "n", "data": 1}}`), want: unknownText},
	{name: "no JSON", answer: stream(`hello`), want: unknownText},
	{name: "a list", answer: stream(`[{"result": 1}]`), want: unknownText},
	{name: "an empty object", answer: stream(`{}`), want: unknownText},
	{name: "two members", answer: stream(`{"result": 1, "event": {}}`), want: unknownText},
	{name: "an unknown member", answer: stream(`{"dance": 1}`, `{"result": 1}`), want: unknownText},
	{name: "a line for methods", answer: stream(`{"send": 1}`, `{"result": 1}`), want: unknownText},
	{name: "an error without a text", answer: stream(`{"error": {}}`), want: "fails: …"},
	{name: "an error that is none", answer: stream(`{"error": 5}`), want: unknownText},
	{name: "an event that is none", answer: stream(`{"event": 5}`, `{"result": 1}`), want: unknownText},
	{name: "writes that are none", answer: stream(`{"state": {"a": 1}}`, `{"result": 1}`), want: unknownText},
	{name: "an unknown write", answer: stream(`{"state": [{"op": "move", "key": "a"}]}`, `{"result": 1}`), want: "fails: STATE_INVALID: …"},
	{name: "a line behind the result", answer: stream(`{"result": 1}`, `{"result": 2}`, `{"error": {"message": "no"}}`), want: ": 1"},
	{name: "pings", answer: stream(`{"ping": {}}`, `{"ping": {}}`, `{"result": 1}`), want: ": 1"},
	{name: "a web page", answer: status(http.StatusOK, "<html></html>", "Content-Type", "text/html"), want: unknownText},
	{name: "another encoding", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		stream(`{"result": 1}`)(w, r)
	}, want: unknownText},
	{name: "a redirect", answer: func(w http.ResponseWriter, r *http.Request) { // to a tool whose requests are counted
		w.Header().Set("Location", "http://"+r.Host+"/redirected")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}, want: "fails: …"},
	{name: "a refusal", answer: status(http.StatusForbidden, `{"error": {"code": "NO", "message": "not you"}}`), want: "fails: …"},
	{name: "a refusal without a text", answer: status(http.StatusNotFound, "nothing here"), want: "fails: …"},
	{name: "a broken app", answer: status(http.StatusInternalServerError, "oops"), want: "fails: …"},
	{name: "a line that is too long", answer: stream(`{"result": "` + strings.Repeat("x", 2<<20) + `"}`), want: unknownText},
	{name: "a line without an end", answer: endless(strings.Repeat("x", 256<<10)), want: unknownText},
	{name: "events without an end", answer: endless(`{"event": {"name": "n", "data": 1, "transient": true}}` + "\n"), want: "fails: …"},
	{name: "pings without an end", answer: func(w http.ResponseWriter, r *http.Request) {
		for endless := stream(`{"ping": {}}`); r.Context().Err() == nil; {
			endless(w, r)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond): // its pace
			}
		}
	}, want: "fails: …"},
	{name: "silence", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: "fails: …"},
	{name: "a connection that ends", answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: unknownText},
	{name: "huge headers", answer: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 4<<20))
		stream(`{"result": 1}`)(w, r)
	}, want: unknownText},
}

// TestAHostileAppIsBounded lets an executor call tools that answer badly, each beside the others. Afterwards the executor still
// serves the same agents.
func TestAHostileAppIsBounded(t *testing.T) {
	t.Parallel()
	app := &endpointapp.App{}
	app.Handle("tool/good", giving("good"))
	tools := []string{rawTool("good", "")}
	requests := make([]atomic.Int64, len(badAnswers))
	for i, bad := range badAnswers {
		name := fmt.Sprint("bad", i)
		tools = append(tools, rawTool(name, `, "timeout": "3s"`))
		app.Handle("tool/"+name, answering(func(w http.ResponseWriter, r *http.Request) {
			requests[i].Add(1)
			bad.answer(w, r)
		}))
	}
	app.Describe(rawDescription(rawAgent("hostile", tools...)))
	w := newWorld(t)
	w.serveEndpoint(t, startRaw(t, app))
	w.served.WaitAgent(t, "hostile")
	t.Run("answers", func(t *testing.T) {
		for i, b := range badAnswers {
			t.Run(b.name, func(t *testing.T) {
				t.Parallel()
				tool := fmt.Sprint("bad", i)
				p := w.begin(t, scenario{name: "hostile " + b.name, agent: "hostile", model: []turn{calls(raw(tool, `{}`)), say("ok")}})
				p.wait()
				got, _, _ := strings.Cut(p.withoutEvents(), "\n")
				want := tool + " " + b.want
				if strings.HasPrefix(b.want, ":") {
					want = tool + b.want
				}
				if !fits(got, want) {
					t.Errorf("got\n%s\nwant\n%s", indent(p.transcript()), indent(want))
				}
				if n := requests[i].Load(); n != 1 {
					t.Errorf("the call was sent %d times, want once", n)
				}
			})
		}
	})
	p := w.begin(t, scenario{name: "after all", agent: "hostile", model: []turn{calls(raw("good", `{}`)), say("ok")}})
	p.wait()
	if got, want := p.transcript(), "good: \"good\"\nsays \"ok\"\ncompleted \"ok\""; got != want {
		t.Errorf("got\n%s\nwant\n%s", indent(got), indent(want))
	}
}

// withoutEvents is the transcript without its events.
func (p *talk) withoutEvents() string {
	var list []string
	for line := range strings.Lines(p.transcript()) {
		if !strings.HasPrefix(line, "event ") {
			list = append(list, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(list, "\n")
}

// TestACallThatWasNotExecutedIsRepeated lets an app refuse calls for a moment, for each rule for repetitions.
func TestACallThatWasNotExecutedIsRepeated(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys := map[string]map[string]bool{}
	attempts := map[string][]int{}
	app := &endpointapp.App{}
	app.Describe(rawDescription(rawAgent("busy", rawTool("busy", ""), rawTool("late", ""))))
	handle := func(name string, refusals int, refuse func(http.ResponseWriter, *http.Request)) {
		app.Handle("tool/"+name, func(_ context.Context, c *endpointapp.Call) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			if keys[name] == nil {
				keys[name] = map[string]bool{}
			}
			keys[name][c.Context.Call.IdempotencyKey] = true
			attempts[name] = append(attempts[name], c.Context.Call.Attempt)
			if len(attempts[name]) > refusals {
				return "done", nil
			}
			refuse(c.Writer, c.HTTP)
			return nil, endpointapp.ErrNoEnd
		})
	}
	handle("busy", 2, status(http.StatusServiceUnavailable, `{"error": {"code": "BUSY", "message": "busy"}}`))
	handle("late", 1, status(http.StatusTooManyRequests, "", "Retry-After", "1"))
	w := newWorld(t)
	w.serveEndpoint(t, startRaw(t, app))
	w.served.WaitAgent(t, "busy")
	p := w.begin(t, scenario{name: "busy", agent: "busy", model: []turn{calls(raw("busy", `{}`), raw("late", `{}`)), say("ok")}})
	p.wait()
	if got, want := p.transcript(), "busy: \"done\"\nlate: \"done\"\nsays \"ok\"\ncompleted \"ok\""; got != want {
		t.Errorf("got\n%s\nwant\n%s", indent(got), indent(want))
	}
	mu.Lock()
	defer mu.Unlock()
	if got, want := jsonOf(attempts), `{"busy":[1,2,3],"late":[1,2]}`; got != want {
		t.Errorf("the attempts are %s, want %s", got, want)
	}
	if len(keys["busy"]) != 1 || len(keys["late"]) != 1 {
		t.Errorf("the idempotency keys are %v, want one for each call", keys)
	}
}

// TestABadAgentIsAloneOutOfService describes agents and tools with mistakes beside good ones.
func TestABadAgentIsAloneOutOfService(t *testing.T) {
	t.Parallel()
	bad := []string{
		`{"name": "no-model"}`, `{"name": "bad-model", "model": "gpt-5"}`, `{"name": "bad-field", "model": "suite/model", "sytemPrompt": "x"}`,
		`{"name": "bad-schema", "model": "suite/model", "stateSchema": {"type": "array"}}`,
		`{"name": "bad-callback", "model": "suite/model", "callbacks": ["hooks.beforeLunch"]}`,
		`{"name": "two-prompts", "model": "suite/model", "systemPrompt": "x", "callbacks": ["prompt"]}`,
		`{"name": "with-secrets", "model": "suite/model", "systemPrompt": {"file": "/etc/passwd"}}`,
		`{"model": "suite/model"}`, `5`,
	}
	good := rawAgent(
		"good", rawTool("good", ""), `{"name": "bad name!", "description": "x", "callbacks": ["execute"]}`,
		rawTool("twice", `, "client": true`), `{"use": "no such tool"}`,
	)
	app := &endpointapp.App{}
	app.Describe(rawDescription(append(bad, good)...))
	app.Handle("tool/good", giving("good"))
	w := newWorld(t)
	w.serveEndpoint(t, startRaw(t, app))
	w.served.WaitAgent(t, "good")
	p := w.begin(t, scenario{name: "good", agent: "good", model: []turn{calls(raw("good", `{}`)), say("ok")}})
	p.wait()
	if got, want := p.transcript(), "good: \"good\"\nsays \"ok\"\ncompleted \"ok\""; got != want {
		t.Errorf("got\n%s\nwant\n%s", indent(got), indent(want))
	}
	if asked := w.model.Asked(p.session); len(asked) == 0 {
		t.Error("the model was not called")
	} else if tools := asked[0].Tools; len(tools) != 1 || tools[0].Name != "good" {
		t.Errorf("the model sees the tools %v, want the good one alone", tools)
	}
	agents, err := w.client.Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agents.GetAgents() {
		if a.GetAgentType() != "good" {
			t.Errorf("the agent %q is served", a.GetAgentType())
		}
	}
	for _, name := range []string{"no-model", "bad-model", "bad-field", "bad-schema", "bad-callback", "two-prompts", "with-secrets"} {
		if !strings.Contains(fmt.Sprint(agents), name) {
			t.Errorf("the list of agents does not name the problem of %s: %v", name, agents)
		}
	}
}

// TestAChangedDescriptionAppliesToNewRuns changes the description of a running app, breaks it, and repairs it.
func TestAChangedDescriptionAppliesToNewRuns(t *testing.T) {
	t.Parallel()
	prompted := func(prompt, build string) string {
		return fmt.Sprintf(
			`{"endpoint": 1, "build": %q, "agents": [{"name": "changing", "model": "suite/model", "systemPrompt": %q}]}`, build,
			prompt,
		)
	}
	app := &endpointapp.App{}
	app.Describe(prompted("first", "b1"))
	w := newWorld(t)
	w.serveEndpoint(t, startRaw(t, app))
	w.served.WaitAgent(t, "changing")
	n := 0
	promptOf := func() string {
		n++
		p := w.begin(t, scenario{name: fmt.Sprint("changing ", n), agent: "changing", model: []turn{say("ok")}})
		p.wait()
		return w.model.Asked(p.session)[0].System
	}
	awaitPrompt := func(want string) {
		t.Helper()
		harness.WaitFor(t, patience, "the prompt "+want, func() (bool, string) { got := promptOf(); return got == want, got })
	}
	awaitPrompt("first")
	app.Describe(prompted("the second one", "b2"))
	awaitPrompt("the second one")

	for _, broken := range []string{"no JSON", `{"endpoint": 1}`, `{"endpoint": 2, "agents": []}`, strings.Repeat("x", 2<<20)} {
		app.Describe(broken)
		described := app.Described()
		harness.WaitFor(t, patience, "the executor to read the description", func() (bool, string) {
			return app.Described() > described+1, fmt.Sprint(app.Described())
		})
		if got := promptOf(); got != "the second one" {
			t.Errorf("with the description %.20q, the prompt is %q, want the last good one", broken, got)
		}
	}
	app.Describe(prompted("the third of all", "b3"))
	awaitPrompt("the third of all")

	app.Describe(`{"endpoint": 1, "agents": [` + rawAgent("another") + `]}`)
	w.served.WaitAgent(t, "another")
}
