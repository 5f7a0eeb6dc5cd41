package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// counterMethods are the methods of the agent demo. left receives a value when the context of hang ends.
func counterMethods(left chan<- struct{}) []agent.Method {
	return []agent.Method{
		{Name: "add", Call: func(_ context.Context, c *agent.MethodCall) (any, error) {
			var a, b int
			return map[string]any{"sum": &a, "session": c.SessionID}, errors.Join(c.Arg(0, &a), c.Arg(1, &b), func() error { a += b; return nil }())
		}},
		{Name: "increment", Call: func(ctx context.Context, c *agent.MethodCall) (any, error) {
			count := 0
			err := c.Update(ctx, func(draft agent.State) error {
				count = 1
				if n, ok := draft["count"].(interface{ Int64() (int64, error) }); ok {
					was, _ := n.Int64()
					count = int(was) + 1
				}
				draft["count"] = count
				return nil
			})
			return count, err
		}},
		{Name: "countdown", Call: func(ctx context.Context, c *agent.MethodCall) (any, error) {
			for _, n := range []int{3, 2, 1} {
				if err := c.Send(ctx, n); err != nil {
					return nil, err
				}
			}
			return "go", nil
		}},
		{Name: "refuse", Call: func(context.Context, *agent.MethodCall) (any, error) {
			return nil, fault.New(fault.Invalid, "NO_SUCH_SEAT", "Seat 12 does not exist.")
		}},
		{Name: "fail", Call: func(context.Context, *agent.MethodCall) (any, error) {
			return nil, errors.New("password=secret")
		}},
		{Name: "panic", Call: func(context.Context, *agent.MethodCall) (any, error) { panic("secret") }},
		{Name: "nothing", Call: func(context.Context, *agent.MethodCall) (any, error) { return nil, nil }},
		{Name: "large", Call: func(context.Context, *agent.MethodCall) (any, error) { return strings.Repeat("x", 2<<20), nil }},
		{Name: "hang", Call: func(ctx context.Context, c *agent.MethodCall) (any, error) {
			if err := c.Send(ctx, "hangs"); err != nil {
				return nil, err
			}
			<-ctx.Done()
			left <- struct{}{}
			return nil, ctx.Err()
		}},
	}
}

// openWithMethods opens a gateway that reaches an executor with the agent demo, and one without.
func openWithMethods(t *testing.T, more ...func(*gateway.Config)) (h *fixture, left <-chan struct{}) {
	t.Helper()
	world := gatewaytest.New(t)
	ended := make(chan struct{}, 1)
	serveExecutor(t, world, "stranger", agent.Agent{Name: "stranger", Model: "anthropic/none"})
	serveExecutor(t, world, "executor", agent.Agent{Name: "demo", Model: "anthropic/none", Methods: counterMethods(ended), Tools: []agent.Tool{
		agent.NewTool("lookup", "looks up", func(context.Context, *agent.Call, struct{}) (string, error) { return "", nil }),
	}})
	serveChecker(t, world)
	return openOver(t, listen(t), world, func(c *gateway.Config) {
		c.Executors = []string{"nobody", "stranger", "executor", checker}
		for _, f := range more {
			f(c)
		}
	}), ended
}

// serveExecutor serves the methods of an agent. It claims no runs.
func serveExecutor(t *testing.T, world *gatewaytest.World, address string, a agent.Agent) {
	t.Helper()
	registry := executor.NewRegistry()
	if err := registry.Register(a); err != nil {
		t.Fatal(err)
	}
	serveRegistry(t, world, address, registry)
}

// lookupKey finds the key of the models of these executors.
func lookupKey(name string) (string, bool) {
	return map[string]string{"ANTHROPIC_API_KEY": "a-key"}[name], name == "ANTHROPIC_API_KEY"
}

// serveRegistry serves an executor with a registry. It claims no runs.
func serveRegistry(t testing.TB, world *gatewaytest.World, address string, registry *executor.Registry) {
	t.Helper()
	var c executor.Config
	environ := []string{"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + gatewaytest.StateAddress, "HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + gatewaytest.StreamAddress}
	if err := config.Load(&c, environ); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	service, err := executor.New(t.Context(), c, executor.Peers{
		Registry: registry, Network: world.Network, Log: log, LookupEnv: lookupKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	service.Register(server)
	listener, err := world.Network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(ctx, server, listener, 0) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, service.Close()); err != nil {
			t.Error(err)
		}
	})
}

func rpcCall(id, method, args string) string {
	return `{"args":[` + args + `],"id":"` + id + `","method":"` + method + `","type":"rpc"}`
}

func TestAClientCallsTheMethodsOfItsAgent(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	s, _ := h.agentClient(t, "demo/room")
	for _, tc := range []struct{ method, args, want string }{
		{"add", "1,2", `"success":true,"done":true,"result":{"session":"demo:room","sum":3}}`},
		{"add", "", `"success":true,"done":true,"result":{"session":"demo:room","sum":0}}`},
		{"add", `"x"`, `"success":false,"error":"argument 1 has another type"}`},
		{"nothing", "", `"success":true,"done":true,"result":null}`},
		{"missing", "", `"success":false,"error":"Method missing does not exist"}`},
		{"lookup", "", `"success":false,"error":"Method lookup is not callable"}`},
		{"refuse", "", `"success":false,"error":"Seat 12 does not exist."}`},
		{"fail", "", `"success":false,"error":"The method has failed."}`},
		{"panic", "", `"success":false,"error":"The method has failed."}`},
		{"large", "", `"success":false,"error":"a value of a method may have at most 1048576 bytes; this one has 2097154"}`},
	} {
		s.say(rpcCall("c1", tc.method, tc.args))
		s.want(`{"type":"rpc","id":"c1",` + tc.want)
	}
	if h.State.Has("default", "demo:room") {
		t.Error("a call that writes nothing has created the session")
	}
	s.say(`{"type":"rpc"}`, `{"type":"rpc","id":7,"method":"add"}`, `{"type":"rpc","id":"c2","method":"add","args":7}`)
	s.barrier()
}

func TestAClientWithoutASocketCallsTheMethodsOfItsAgent(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	post := func(method, body string) *reply {
		return h.request(t, http.MethodPost, "/agents/demo/room/call/"+method, body)
	}
	for _, tc := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"add", `{"args":[1,2]}`, 200, `{"result":{"session":"demo:room","sum":3}}`},
		{"add", "", 200, `{"result":{"session":"demo:room","sum":0}}`},
		{"nothing", `{}`, 200, `{"result":null}`},
		{"countdown", "", 200, `{"result":"go","values":[3,2,1]}`},
		{"increment", "", 200, `{"result":1}`},
	} {
		r := post(tc.method, tc.body)
		if got := text(t, r); r.StatusCode != tc.status || got != tc.want+"\n" {
			t.Errorf("%s %s: got %d %s, want %d %s", tc.method, tc.body, r.StatusCode, got, tc.status, tc.want)
		}
	}
	if got := h.State.Get("default", "demo:room").GetSession().GetCustomState(); got != `{"count":1}` {
		t.Errorf("the state is %s, want the write of the method", got)
	}
	for _, tc := range []struct {
		method, body string
		status       int
		code         string
	}{
		{"add", `{"args":["x"]}`, 400, "ARGUMENT_INVALID"}, {"add", `{"args":7}`, 400, "BODY_INVALID"}, {"missing", "", 404, "METHOD_NOT_FOUND"},
		{"lookup", "", 403, "METHOD_NOT_CALLABLE"}, {"refuse", "", 400, "NO_SUCH_SEAT"}, {"fail", "", 409, "METHOD_FAILED"},
		{"panic", "", 409, "METHOD_FAILED"}, {"large", "", 413, "RESULT_TOO_LARGE"},
	} {
		wantFault(t, post(tc.method, tc.body), tc.status, tc.code)
	}
	wantFault(t, h.request(t, http.MethodPost, "/agents/nobody/room/call/add", ""), 404, "AGENT_NOT_FOUND")
	short, _ := openWithMethods(t, func(c *gateway.Config) { c.MethodTimeout = time.Second })
	wantFault(t, short.request(t, http.MethodPost, "/agents/demo/room/call/hang", ""), 503, "METHOD_TIMEOUT")
}

// A socket of the instance sees what a method over HTTP has written.
func TestAMethodOverHTTPShowsItsStateToSockets(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	s, _ := h.agentClient(t, "demo/room")
	if r := h.request(t, http.MethodPost, "/agents/demo/room/call/increment", ""); r.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", r.StatusCode, text(t, r))
	}
	s.until(`"count":1`)
}

func TestAMethodSendsValuesBeforeItsResult(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	s, _ := h.agentClient(t, "demo/room")
	s.say(rpcCall("c1", "countdown", ""))
	for _, n := range []string{"3", "2", "1"} {
		s.want(`{"type":"rpc","id":"c1","success":true,"done":false,"result":` + n + `}`)
	}
	s.want(`{"type":"rpc","id":"c1","success":true,"done":true,"result":"go"}`)
}

func TestAMethodChangesTheStateForEveryClient(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	a, _ := h.agentClient(t, "demo/room")
	b, _ := h.agentClient(t, "demo/room")
	reader, _ := h.agentClient(t, "demo/room?readonly=true")
	reader.say(rpcCall("c0", "increment", ""), rpcCall("c1", "add", "1,2"))
	before, _ := reader.until(`"sum":3`)
	if len(before) == 0 {
		_, frame := reader.until("c0")
		before = append(before, frame)
	}
	if before[0] != `{"type":"rpc","id":"c0","success":false,"error":"Connection is readonly"}` {
		t.Errorf("got %v", before)
	}
	const calls = 5
	for range calls {
		a.say(rpcCall("c1", "increment", ""))
		b.say(rpcCall("c1", "increment", ""))
	}
	for _, s := range []*agentSocket{a, b, reader} {
		s.until(stateFrame(`{"count":10}`))
	}
}

func TestAMethodReachesNoSessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	path, keys := rightsFile(t, map[string]string{"ann": "subject: ann", "bob": "subject: bob"})
	h, _ := openWithMethods(t, func(c *gateway.Config) { c.APIKeys, c.InsecureNoAuth = path, false })
	ann, _ := h.agentClient(t, "demo/room", "Authorization", keys["ann"])
	ann.say(rpcCall("c1", "increment", ""))
	ann.until(`"done":true,"result":1}`)
	bob, _ := h.agentClient(t, "demo/room", "Authorization", keys["bob"])
	bob.say(rpcCall("c1", "increment", ""))
	bob.want(`{"type":"rpc","id":"c1","success":false,"error":"there is no session \"demo:room\""}`)
	ann.say(rpcCall("c2", "increment", ""))
	ann.until(`"done":true,"result":2}`)
}

func TestTheStateOfAMethodComesBeforeItsResult(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t)
	s, _ := h.agentClient(t, "demo/room")
	for n := range 20 {
		s.say(rpcCall("c1", "increment", ""))
		s.want(stateFrame(fmt.Sprintf(`{"count":%d}`, n+1)))
		s.want(fmt.Sprintf(`{"type":"rpc","id":"c1","success":true,"done":true,"result":%d}`, n+1))
	}
}

func TestACallEndsWithItsSocket(t *testing.T) {
	t.Parallel()
	h, left := openWithMethods(t)
	s, _ := h.agentClient(t, "demo/room")
	s.say(rpcCall("c1", "hang", ""))
	s.until(`"hangs"`)
	s.say(rpcCall("c2", "add", "1,2"))
	s.until(`"sum":3`)
	_ = s.CloseNow()
	<-left
}

func TestAMethodThatMayHaveBeenCalledIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	world := gatewaytest.New(t)
	var calls atomic.Int64
	for _, address := range []string{"first", "second"} {
		serveExecutor(t, world, address, agent.Agent{Name: "demo", Model: "anthropic/none", Methods: []agent.Method{
			{Name: "pay", Call: func(context.Context, *agent.MethodCall) (any, error) {
				calls.Add(1)
				return nil, fault.New(fault.Unavailable, "BANK_AWAY", "the bank does not answer")
			}},
		}})
	}
	h := openOver(t, listen(t), world, func(c *gateway.Config) { c.Executors = []string{"first", "second"} })
	s, _ := h.agentClient(t, "demo/room")
	s.say(rpcCall("c1", "pay", ""))
	s.until(`"success":false`)
	if got := calls.Load(); got != 1 {
		t.Errorf("the method was called %d times", got)
	}
}

func TestWithoutExecutorsNoMethodExists(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	s, _ := h.agentClient(t, "demo/room")
	s.say(rpcCall("c1", "add", "1,2"))
	s.want(`{"type":"rpc","id":"c1","success":false,"error":"Method add does not exist"}`)
}

func TestTheCallsInFlightOfASocketAreLimited(t *testing.T) {
	t.Parallel()
	h, _ := openWithMethods(t, func(c *gateway.Config) { c.MaxSocketChats = 1 })
	s, _ := h.agentClient(t, "demo/room")
	s.say(rpcCall("c1", "hang", ""))
	s.until(`"hangs"`)
	s.say(rpcCall("c2", "add", "1,2"))
	s.want(`{"type":"rpc","id":"c2","success":false,"error":"1 calls are in flight on this socket; wait for one of them"}`)
}
