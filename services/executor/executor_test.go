package executor_test

import (
	"context"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
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
	agents, err := executor.ParseAgents([]byte(oneAgent), t.TempDir(), environment())
	if err != nil {
		t.Fatal(err)
	}
	return agents
}

// registry hears announcements and hands out nothing.
type registry struct {
	statev1.UnimplementedWorkServiceServer
	announced chan *statev1.ClaimRunsRequest
}

func (r *registry) ClaimRuns(stream statev1.WorkService_ClaimRunsServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	r.announced <- first
	<-stream.Context().Done()
	return nil
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

func TestAnExecutorAnnouncesItsAgentsAndDescribesItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		network := rpc.NewMemory()
		state := &registry{announced: make(chan *statev1.ClaimRunsRequest, 1)}
		c := defaults(t)
		serve(t, network, c.StateAddress, func(r grpc.ServiceRegistrar) { statev1.RegisterWorkServiceServer(r, state) })
		service, err := executor.New(t.Context(), c, executor.Peers{Agents: parsed(t), Network: network, NewID: func() string { return "executor 1" }})
		if err != nil {
			t.Fatal(err)
		}
		serve(t, network, "executor", service.Register)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service.Run(ctx) }()

		first := <-state.announced
		if first.GetExecutorId() != "executor 1" || first.GetCredits() != 256 || len(first.GetAgents()) != 1 || first.GetAgents()[0].GetAgentType() != "demo" {
			t.Errorf("announcement = %v, want the executor, its agent and 256 credits", first)
		}
		conn, err := rpc.Dial(network, "executor", rpc.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := executorv1.NewExecutorServiceClient(conn).Describe(t.Context(), &executorv1.DescribeRequest{})
		if err != nil || got.GetExecutorId() != "executor 1" || got.GetSlots() != 256 || len(got.GetAgents()) != 1 {
			t.Fatalf("Describe = %v, %v", got, err)
		}
		if a := got.GetAgents()[0]; a.GetModel() != "scripted/demo" || a.GetMaxSteps() != 50 || len(a.GetTools()) != 1 || a.GetTools()[0] != "wait" {
			t.Errorf("agent = %v, want its model, 50 steps and its tool", a)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if err := service.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		_ = conn.Close()
	})
}

func TestAnExecutorThatCouldDoNothingIsRefused(t *testing.T) {
	t.Parallel()
	broken := defaults(t)
	broken.Slots = 0
	if _, err := executor.New(t.Context(), broken, executor.Peers{Agents: parsed(t)}); fault.ReasonOf(err) != "CONFIG_INVALID" {
		t.Errorf("New without slots = %v, want CONFIG_INVALID", err)
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
