package executor_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/state"
)

const oneAgent = `
models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}
agents:
  - {name: demo, description: Answers., model: scripted/demo, tools: [wait]}
`

func defaults(t *testing.T) executor.Config {
	t.Helper()
	var c executor.Config
	if err := config.Load(&c, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func parsed(t *testing.T) *executor.Agents {
	t.Helper()
	agents, err := executor.ParseAgents([]byte(oneAgent), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return agents
}

// stateService serves a state service, and returns a function that lists the agents it knows.
func stateService(t *testing.T, network rpc.Network, address string) (known func() []*statev1.Agent) {
	t.Helper()
	var c state.Config
	if err := config.Load(&c, []string{"HOLDFAST_STATE_STORE=memory"}); err != nil {
		t.Fatal(err)
	}
	service, err := state.New(t.Context(), c, state.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	conn, err := rpc.Dial(network, address, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, conn.Close(), service.Close()); err != nil {
			t.Error(err)
		}
	})
	serve(t, network, address, service.Register)
	return func() []*statev1.Agent {
		t.Helper()
		answer, err := statev1.NewSessionServiceClient(conn).ListAgents(t.Context(), &statev1.ListAgentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetAgents()
	}
}

func serve(t *testing.T, network rpc.Network, address string, register func(grpc.ServiceRegistrar)) {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	register(server)
	listener, err := network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

func TestAnExecutorAnnouncesItsAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := rpc.NewMemory()
		c := defaults(t)
		known := stateService(t, network, c.StateAddress)
		service, err := executor.New(t.Context(), c, executor.Peers{Agents: parsed(t), Network: network, NewID: func() string { return "executor 1" }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service.Run(ctx) }()

		synctest.Wait()
		if agents := known(); len(agents) != 1 || agents[0].GetAgentType() != "demo" || agents[0].GetDescription() != "Answers." {
			t.Errorf("the state service knows %v, want the agent", agents)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if err := service.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}

func TestAnExecutorThatCouldDoNothingIsRefused(t *testing.T) {
	t.Parallel()
	broken := defaults(t)
	broken.Slots = 0
	if _, err := executor.New(t.Context(), broken, executor.Peers{Agents: parsed(t)}); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("New without slots = %v, want CONFIG_INVALID", err)
	}
	for calls, refused := range map[int]bool{0: true, 1: false, 1024: false, 1025: true} { // of one reply
		c := defaults(t)
		c.MaxCalls = calls
		service, err := executor.New(t.Context(), c, executor.Peers{Agents: parsed(t)})
		if (fault.ReasonOf(err) == "CONFIG_INVALID") != refused {
			t.Errorf("New with %d calls of a reply = %v, want it refused: %v", calls, err, refused)
		}
		if err == nil {
			_ = service.Close() // it has not run
		}
	}
	if _, err := executor.New(t.Context(), defaults(t), executor.Peers{}); fault.ReasonOf(err) != "AGENTS_MISSING" {
		t.Errorf("New without agents = %v, want AGENTS_MISSING", err)
	}
}

func TestTheVariablesOfTheProcessAreDeclaredWithTheirPurpose(t *testing.T) {
	t.Parallel()
	var c executor.ProcessConfig
	if err := config.Load(&c, []string{"HOLDFAST_EXECUTOR_AGENTS=agents.yaml", "HOLDFAST_EXECUTOR_SLOTS=3", "HOLDFAST_INTERNAL_TOKEN=x"}); err != nil {
		t.Fatal(err)
	}
	if c.Slots != 3 || c.Listen != "127.0.0.1:7413" || c.Internal.Token != "x" || c.AgentsFiles != "agents.yaml" {
		t.Errorf("config = %+v", c)
	}
	for _, v := range config.Variables(c) {
		if v.Doc == "" {
			t.Errorf("%s says not what it is for", v.Name)
		}
	}
}

func TestAnExecutorThatCannotBeMadeEndsTheServersOfItsAgents(t *testing.T) {
	t.Parallel()
	broken := defaults(t)
	broken.Slots = 0
	for name, c := range map[string]executor.Config{"no slots": broken, "no certificate": defaults(t)} {
		var open sync.Map // the ids of the open sessions
		tools := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			server := mcp.NewServer(&mcp.Implementation{Name: "words", Version: "1"}, nil)
			mcp.AddTool(server, &mcp.Tool{Name: "shout"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return nil, nil, nil
			})
			return server
		}, nil)
		served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch id := r.Header.Get("Mcp-Session-Id"); {
			case r.Method == http.MethodDelete:
				open.Delete(id)
			case id != "":
				open.Store(id, true)
			}
			tools.ServeHTTP(w, r)
		}))
		t.Cleanup(served.Close)
		text := "models: {scripted: {script: 'models: {demo: {rules: [{reply: hi}]}}'}}\nmcpServers: {words: {url: \"" + served.URL + "\"}}\nagents: [{name: a, model: scripted/demo, tools: [{mcp: words}]}]\n"
		set, err := executor.ParseAgents([]byte(text), "", func(name string) (string, bool) { return "127.0.0.1", name == "HOLDFAST_EXECUTOR_TOOL_HOSTS" })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(set.Close)
		if n := size(&open); n != 1 {
			t.Fatalf("%s: %d sessions are open, want 1", name, n)
		}
		if _, err := executor.New(t.Context(), c, executor.Peers{Agents: set, Security: rpc.Security{CertFile: "/no such file"}}); err == nil {
			t.Fatalf("%s: the executor is made", name)
		}
		if n := size(&open); n != 0 {
			t.Errorf("%s: %d sessions are still open", name, n)
		}
	}
}

func size(m *sync.Map) (n int) {
	for range m.Range {
		n++
	}
	return n
}
