package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// stdio returns the configuration of this binary as a server in a mode.
func stdio(t *testing.T, mode string) (mcptool.Config, mcptool.Peers) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := mcptool.Config{Name: "test", Command: []string{program}, Env: map[string]string{serverVariable: mode, "TOKEN": "${SECRET}!"}}
	return c, mcptool.Peers{
		Allowed: mcptool.Allowed{Commands: []string{program}},
		Lookup: func(name string) (string, error) {
			if name != "SECRET" {
				return "", errors.New("is not set")
			}
			return "s3cret", nil
		},
		Own: func(name string) (string, bool) {
			value, ok := map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/nowhere"}[name]
			return value, ok
		},
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

func open(t *testing.T, c mcptool.Config, p mcptool.Peers) *mcptool.Server {
	t.Helper()
	s, err := mcptool.Open(t.Context(), c, p)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// problem opens a server, and returns the reason why it cannot be reached, with the output of its child.
func problem(t *testing.T, c mcptool.Config, p mcptool.Peers) string {
	t.Helper()
	s := open(t, c, p)
	for _, one := range s.Problems() {
		if one.Tool == "" && s.Tools() == nil {
			return one.Text + one.Output
		}
	}
	t.Errorf("problems = %v, tools = %v, want that the server cannot be reached", s.Problems(), s.Tools())
	return ""
}

func tool(t *testing.T, s *mcptool.Server, name string) agent.Tool {
	t.Helper()
	for _, one := range s.Tools() {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("there is no tool %s", name)
	return agent.Tool{}
}

// call returns the result as JSON, or the error's text after "error: ".
func call(ctx context.Context, t *testing.T, s *mcptool.Server, name, input string) string {
	t.Helper()
	value, err := tool(t, s, name).Execute(ctx, &agent.Call{IdempotencyKey: "key 1", Input: json.RawMessage(input)})
	if err != nil {
		return "error: " + err.Error()
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// patience bounds every wait of a test.
const patience = 90 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		wait, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		<-wait.Done()
		cancel()
	}
}

func TestAServerLearnsTheContextOfACallOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	from := &agent.Call{
		ID: "c", IdempotencyKey: "k", Tenant: "acme", SessionID: "s", RunID: "r", UserID: "u", Metadata: map[string]string{"plan": "gold"},
		Turn: 1, Step: 2, Input: json.RawMessage(`{"_meta":{"holdfast.run/context":{"tenant":"other"}},"holdfast.run/context":"x"}`),
	}
	for told, want := range map[bool]string{
		false: "null",
		true: `{"call":{"id":"c","idempotencyKey":"k"},"run":{"id":"r","turn":1},` +
			`"session":{"id":"s","metadata":{"plan":"gold"},"parentId":null,"tags":[]},"step":2,"tenant":"acme","user":{"id":"u"}}`,
	} {
		c, p := stdio(t, "serve")
		c.Context = told
		value, err := tool(t, open(t, c, p), "echo_context").Execute(t.Context(), from)
		if err != nil || value != want {
			t.Errorf("with context: %t, the server was told %v, %v, want %s", told, value, err, want)
		}
	}
}

func TestToolsOfAChildProcessAreCalled(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := open(t, c, p)
	for _, test := range []struct{ tool, input, want string }{
		{"add", `{"a":2,"b":3}`, `{"sum":5}`},
		{"echo_key", `{}`, `"key 1"`},
		{"fail", `{}`, "error: no such city"},
		{"ask", `{}`, `"refused: true true"`},
	} {
		if got := call(t.Context(), t, s, test.tool, test.input); got != test.want {
			t.Errorf("%s = %s, want %s", test.tool, got, test.want)
		}
	}
	if got := call(t.Context(), t, s, "broken", `{}`); !strings.Contains(got, `"test"`) || !strings.Contains(got, "a protocol error") {
		t.Errorf("broken = %s, want an error that names the server", got)
	}
}

func TestSmallDataIsGivenAndLargeDataIsOnlyMeasured(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	got := call(t.Context(), t, open(t, c, p), "mixed", `{}`)
	for _, want := range []string{`"text":"a picture"`, `"data":"cG5n"`, `"bytes":100000`} {
		if !strings.Contains(got, want) {
			t.Errorf("mixed = %.300s, want %s in it", got, want)
		}
	}
}

func TestAChildGetsOnlyTheEnvironmentThatIsGiven(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	var got string
	if err := json.Unmarshal([]byte(call(t.Context(), t, open(t, c, p), "environment", `{}`)), &got); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(got, "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", serverVariable, "":
		case "HOME":
			if value != "/nowhere" {
				t.Errorf("HOME = %s, want /nowhere", value)
			}
		case "TOKEN":
			if value != "s3cret!" {
				t.Errorf("TOKEN = %s, want s3cret!", value)
			}
		default:
			t.Errorf("the child has %s", line)
		}
	}
}

func TestToolsAreChosenNamedAndGatedByTheConfiguration(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	c.Include, c.Exclude = []string{"add", "pid", "die"}, []string{"die"}
	c.Prefix, c.Approve, c.TrustHints, c.Timeout = "mcp_", []string{"pid"}, true, time.Minute
	tools := open(t, c, p).Tools()
	if len(tools) != 2 || tools[0].Name != "mcp_add" || tools[1].Name != "mcp_pid" {
		t.Fatalf("tools = %v, want mcp_add, mcp_pid", tools)
	}
	if !tools[0].Dynamic || !tools[1].Dynamic {
		t.Error("the tools are not dynamic: no program knows them before")
	}
	if tools[0].Approval || !tools[1].Approval || tools[0].Timeout != time.Minute {
		t.Errorf("approval = %v, %v, timeout = %v, want false, true, 1m", tools[0].Approval, tools[1].Approval, tools[0].Timeout)
	}
	if !tools[0].ReadOnly || tools[0].Retry != agent.RetrySafe || tools[1].ReadOnly || tools[1].Retry != agent.RetryNever {
		t.Errorf("read-only = %v, %v, retry = %s, %s; want what the hint says, and never without one",
			tools[0].ReadOnly, tools[1].ReadOnly, tools[0].Retry, tools[1].Retry)
	}
	if err := (agent.Agent{Name: "a", Model: "p/m", Tools: tools}).Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
	c.TrustHints, c.ReadOnly = false, []string{"pid"}
	tools = open(t, c, p).Tools()
	if tools[0].Repeatable() || !tools[1].ReadOnly || !tools[1].Repeatable() {
		t.Errorf("tools = %+v, want that of the list read-only: the hint is not trusted", tools)
	}
}

func TestAServerThatDoesNotWorkIsNamedWhenItIsOpened(t *testing.T) {
	t.Parallel()
	serving, p := stdio(t, "serve")
	with := func(change func(*mcptool.Config)) mcptool.Config {
		c := serving
		change(&c)
		return c
	}
	dead, _ := stdio(t, "dead")
	wordy, _ := stdio(t, "wordy")
	mute, _ := stdio(t, "mute")
	mute.ConnectTimeout = 300 * time.Millisecond
	flood, _ := stdio(t, "flood")
	lines, _ := stdio(t, "lines")
	for name, test := range map[string]struct {
		config mcptool.Config
		text   string
	}{
		"dead":             {dead, `the MCP server "test" is not available: `},
		"dead, with words": {dead, `nothing works`},
		"dead, with many":  {wordy, "word \nthe last word"},
		"mute":             {mute, "in time"},
		"flood":            {flood, "a message of more than 16777216 bytes"},
		"lines":            {lines, "a line that is not JSON"},
		"unknown approval": {with(func(c *mcptool.Config) { c.Approve = []string{"ad"} }), `no tool "ad", which the configuration excludes or approves; it has`},
		"unknown exclude":  {with(func(c *mcptool.Config) { c.Exclude = []string{"ad"} }), `no tool "ad"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := problem(t, test.config, p); !strings.Contains(got, test.text) || len(got) > 4<<10 {
				t.Errorf("problem = %s, want %s", got, test.text)
			}
		})
	}
	for name, test := range map[string]struct {
		config mcptool.Config
		text   string
	}{
		"not allowed":    {with(func(c *mcptool.Config) { c.Command = []string{"rm"} }), "allowed commands"},
		"relative path":  {with(func(c *mcptool.Config) { c.Command = []string{"./rm"} }), "absolute path"},
		"both":           {with(func(c *mcptool.Config) { c.URL = "https://x.example" }), "not both"},
		"neither":        {mcptool.Config{Name: "x"}, "needs a command"},
		"host":           {mcptool.Config{Name: "x", URL: "https://x.example"}, "allowed hosts"},
		"unknown secret": {with(func(c *mcptool.Config) { c.Env = map[string]string{"X": "${NOPE}"} }), "NOPE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mcptool.Open(t.Context(), test.config, p)
			if fault.KindOf(err) != fault.Invalid || err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("Open = %v, want invalid with %s", err, test.text)
			}
		})
	}
}

func TestAToolThatCannotBeUsedIsNamedAndTheOthersWork(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	c.Prefix = strings.Repeat("x", 60)
	c.Include = []string{"add", "pid", "echo/key", "absent"}
	s := open(t, c, p)
	var got []string
	for _, one := range s.Problems() {
		got = append(got, one.Tool+": "+one.Text)
	}
	want := []string{"absent: the server has no such tool", fmt.Sprintf("echo/key: the name %q has more than 64 characters", c.Prefix+"echo_key")}
	if tools := s.Tools(); len(tools) != 2 || !slices.Equal(got, want) {
		t.Errorf("tools = %v, problems = %q, want two and %q", tools, got, want)
	}
}

func TestACallEndsWithItsContextAndTheServerLearnsOfIt(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	dir := t.TempDir()
	called, cancelled := filepath.Join(dir, "called"), filepath.Join(dir, "cancelled")
	c.Env["CALLED_FILE"], c.Env["CANCELLED_FILE"] = called, cancelled
	s := open(t, c, p)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan string, 1) // buffered for its single result
	go func() { ended <- call(ctx, t, s, "hang", `{}`) }()
	eventually(t, "the server is called", func() bool { _, err := os.Stat(called); return err == nil })
	cancel()
	if got := <-ended; !strings.Contains(got, "context canceled") {
		t.Errorf("hang = %s, want the end of its context", got)
	}
	eventually(t, "the server learns of it", func() bool { _, err := os.Stat(cancelled); return err == nil })
	if got := call(t.Context(), t, s, "add", `{"a":1,"b":1}`); got != `{"sum":2}` {
		t.Errorf("add = %s, want 2: the session goes on", got)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
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

func TestADeadServerFailsTheCallAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	var ahead atomic.Int64 // offset of the clock
	p.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	var log lockedBuffer
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := open(t, c, p)
	before := call(t.Context(), t, s, "pid", `{}`)
	if got := call(t.Context(), t, s, "die", `{}`); !strings.HasPrefix(got, "error: ") || strings.Contains(got, "last words") {
		t.Fatalf("die = %s, want an error without the standard error of the server", got)
	}
	eventually(t, "the log has the server's standard error", func() bool {
		return strings.Contains(log.String(), "MCP session has ended") && strings.Contains(log.String(), "last words")
	})
	ahead.Store(int64(time.Minute)) // the pause has ended
	var after string
	eventually(t, "the server is started again", func() bool {
		after = call(t.Context(), t, s, "pid", `{}`)
		return !strings.HasPrefix(after, "error: ")
	})
	if after == before {
		t.Errorf("pid = %s, want another one", after)
	}
	eventually(t, "no zombie is left", func() bool { return !exists(t, before) })
}

// exists reports whether a process exists, also as a zombie.
func exists(t *testing.T, pid string) bool {
	t.Helper()
	number, err := strconv.Atoi(strings.Trim(pid, `"`))
	if err != nil {
		t.Fatal(err)
	}
	return !errors.Is(syscall.Kill(number, 0), syscall.ESRCH)
}

func TestCloseEndsTheChildHoweverItBehaves(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"serve", "stubborn", "parent"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c, p := stdio(t, mode)
			s := open(t, c, p)
			pid := call(t.Context(), t, s, "pid", `{}`)
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if exists(t, pid) {
				t.Errorf("process %s is there behind Close", pid)
			}
			if mode == "parent" {
				group, err := strconv.Atoi(strings.Trim(pid, `"`))
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "what the child has started has ended", func() bool {
					return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
				})
			}
			if got := call(t.Context(), t, s, "pid", `{}`); !strings.Contains(got, "it was closed") {
				t.Errorf("pid = %s, want that the server was closed", got)
			}
		})
	}
}

func TestCloseCutsACallInFlight(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	s := open(t, c, p)
	ended := make(chan string, 1)
	go func() { ended <- call(t.Context(), t, s, "hang", `{}`) }()
	call(t.Context(), t, s, "pid", `{}`) // the previous call was sent, or is sent after Close
	_ = s.Close()
	select {
	case got := <-ended:
		if !strings.HasPrefix(got, "error: ") {
			t.Errorf("hang = %s, want an error", got)
		}
	case <-time.After(patience):
		t.Error("the call goes on behind Close")
	}
}

func TestToolsThatChangeAreListedAgain(t *testing.T) {
	t.Parallel()
	c, p := stdio(t, "serve")
	c.Exclude = []string{"die"}
	s := open(t, c, p)
	changed := s.Changed()
	call(t.Context(), t, s, "grow", `{}`)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("Changed was not signalled")
	}
	if got := call(t.Context(), t, s, "grown", `{}`); got != `"new"` {
		t.Errorf("grown = %s, want new", got)
	}
}

// overHTTP serves MCP over streamable HTTP on loopback.
func overHTTP(t *testing.T, seen func(*http.Request)) (mcptool.Config, mcptool.Peers) {
	t.Helper()
	server := newServer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{u.Host}}
	return mcptool.Config{Name: "web", URL: web.URL, Headers: map[string]string{"Authorization": "Bearer ${SECRET}"}}, p
}

func TestToolsOfAServerOverHTTPAreCalledWithItsHeaders(t *testing.T) {
	t.Parallel()
	var without atomic.Int64
	c, p := overHTTP(t, func(r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			without.Add(1)
		}
	})
	s := open(t, c, p)
	if got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`); got != `{"sum":5}` {
		t.Errorf("add = %s, want 5", got)
	}
	if got := call(t.Context(), t, s, "echo_key", `{}`); got != `"key 1"` {
		t.Errorf("echo_key = %s, want the key", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := call(ctx, t, s, "hang", `{}`); !strings.Contains(got, "deadline exceeded") {
		t.Errorf("hang = %s, want the end of its context", got)
	}
	changed := s.Changed()
	call(t.Context(), t, s, "grow", `{}`)
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("Changed was not signalled")
	}
	if err := s.Close(); err != nil || without.Load() > 0 {
		t.Errorf("Close = %v, %d requests without the header, want none", err, without.Load())
	}
}

// sessionServer is an HTTP server of a protocol version with mandatory sessions. It can restart, and forgets its
// sessions then.
type sessionServer struct {
	handler   atomic.Pointer[mcp.StreamableHTTPHandler]
	sessions  atomic.Int64
	farewells atomic.Int64
	hangs     atomic.Int64 // accepted calls of hang without an answer
	amnesic   atomic.Bool  // the server knows no session when a tool is called
}

func (e *sessionServer) begin() {
	server := newServer()
	e.handler.Store(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

func (e *sessionServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name string `json:"name"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &message) // a request without a body has no method
	switch {
	case message.Method == "server/discover":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, message.ID)
		return
	case message.Method == "initialize":
		e.sessions.Add(1)
	case r.Method == http.MethodDelete:
		e.farewells.Add(1)
		<-r.Context().Done() // never answers
		return
	case message.Method == "tools/call" && e.amnesic.Load():
		w.WriteHeader(http.StatusNotFound)
		return
	case message.Method == "tools/call" && message.Params.Name == "hang":
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush() // the client notices a failure
		e.hangs.Add(1)
		<-r.Context().Done()
		return
	}
	e.handler.Load().ServeHTTP(w, r)
}

// openSessionServer serves e and opens a client server for it.
func openSessionServer(t *testing.T, e *sessionServer) *mcptool.Server {
	t.Helper()
	e.begin()
	web := httptest.NewServer(e)
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	return open(t, mcptool.Config{Name: "web", URL: web.URL}, p)
}

func TestAServerWithSessionsIsGreetedAgainWhenItHasForgotten(t *testing.T) {
	t.Parallel()
	e := &sessionServer{}
	s := openSessionServer(t, e)
	for n := range 2 {
		if got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`); got != `{"sum":5}` {
			t.Errorf("call %d: add = %s, want 5", n, got)
		}
		if got := e.sessions.Load(); got != int64(n+1) {
			t.Errorf("%d sessions, want %d", got, n+1)
		}
		e.begin()
	}
	if got := call(t.Context(), t, s, "echo_key", `{}`); got != `"key 1"` {
		t.Errorf("echo_key = %s, want the key", got)
	}
	begin := time.Now()
	if err := s.Close(); err != nil || time.Since(begin) > 45*time.Second || e.farewells.Load() == 0 {
		t.Errorf("Close = %v after %v with %d good-byes, want an end that waits for no answer", err, time.Since(begin), e.farewells.Load())
	}
}

func TestCallsAtOnceAreAllMadeWhenTheServerHasForgottenTheirSession(t *testing.T) {
	t.Parallel()
	e := &sessionServer{}
	s := openSessionServer(t, e)
	e.begin()
	add := tool(t, s, "add")
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if _, err := add.Execute(t.Context(), &agent.Call{Input: json.RawMessage(`{"a":2,"b":3}`)}); err != nil {
				t.Errorf("add: %v, want no error: the server had refused it", err)
			}
		})
	}
	calls.Wait()
	if got := e.sessions.Load(); got != 2 {
		t.Errorf("%d sessions, want 2: the calls share the second one", got)
	}
}

func TestACallInFlightIsNotRepeatedWhenTheServerForgetsItsSession(t *testing.T) {
	t.Parallel()
	e := &sessionServer{}
	s := openSessionServer(t, e)
	hang := tool(t, s, "hang")
	ends := make(chan error, 1) // buffered for the single end
	go func() {
		_, err := hang.Execute(t.Context(), &agent.Call{})
		ends <- err
	}()
	eventually(t, "the server has taken the call", func() bool { return e.hangs.Load() == 1 })
	e.begin()
	if got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`); got != `{"sum":5}` {
		t.Errorf("add = %s, want 5", got)
	}
	select {
	case err := <-ends:
		if fault.ReasonOf(err) != "MCP_UNAVAILABLE" || !strings.Contains(err.Error(), "it is not known whether the call took effect") {
			t.Errorf("hang = %v, want MCP_UNAVAILABLE with an unknown effect", err)
		}
	case <-time.After(patience):
		t.Error("hang has not ended with its session")
	}
	if got := e.hangs.Load(); got != 1 {
		t.Errorf("the server has taken the call %d times, want once", got)
	}
}

func TestAServerThatRefusesEverySessionIsGivenUp(t *testing.T) {
	t.Parallel()
	e := &sessionServer{}
	e.amnesic.Store(true)
	s := openSessionServer(t, e)
	got := call(t.Context(), t, s, "add", `{"a":2,"b":3}`)
	if !strings.HasPrefix(got, "error: MCP_UNAVAILABLE") || !strings.Contains(got, "the call was not made") {
		t.Errorf("add = %s, want MCP_UNAVAILABLE and that the call was not made", got)
	}
	if got := e.sessions.Load(); got != 3 {
		t.Errorf("%d sessions, want 3", got)
	}
}

func TestAServerOverHTTPThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise it would not notice a disconnected client
		<-r.Context().Done()
	}))
	t.Cleanup(web.Close)
	t.Cleanup(web.CloseClientConnections)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	if got := problem(t, mcptool.Config{Name: "web", URL: web.URL, ConnectTimeout: 200 * time.Millisecond}, p); !strings.Contains(got, "in time") {
		t.Errorf("problem = %s, want that it did not answer in time", got)
	}
}

func TestAServerThatRedirectsIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	t.Cleanup(target.Close)
	web := httptest.NewServer(http.RedirectHandler(target.URL, http.StatusTemporaryRedirect))
	t.Cleanup(web.Close)
	_, p := stdio(t, "")
	p.Allowed.Hosts = outbound.Policy{Hosts: []string{"127.0.0.1"}}
	if got := problem(t, mcptool.Config{Name: "web", URL: web.URL}, p); got == "" || followed.Load() {
		t.Errorf("problem = %s, followed = %v, want one, false", got, followed.Load())
	}
}
