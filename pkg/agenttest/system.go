package agenttest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// The addresses of the services on the in-memory network.
const (
	stateAddress  = "state"
	streamAddress = "stream"
)

// stopGrace is how long calls may take to end when the system stops, on its own clock.
const stopGrace = time.Minute

// System is a whole runtime: state, stream, gateway and an executor, all in memory.
type System struct {
	// T is the test of the scenario.
	T *testing.T
	// Client is a client of the gateway, for everything that Chat does not do.
	Client *client.Client

	config  Config
	agents  []agent.Agent
	http    *http.Client // of the gateway
	network *rpc.Memory
	log     *slog.Logger
	close   func()
	ended   sync.WaitGroup

	mu      sync.Mutex
	members []*member
	passed  []string // the points that the executors have passed
	crash   int      // the point to crash at, counted from 1; 0 for none
	chats   int
}

// open starts the system with one executor.
func open(t *testing.T, c Config, agents []agent.Agent, crash int) *System {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	s := &System{T: t, config: c, agents: agents, network: rpc.NewMemory(), log: log, crash: crash}
	var services struct {
		State   state.Config
		Stream  stream.Config
		Gateway gateway.Config
	}
	s.must(config.Load(&services, []string{
		"HOLDFAST_STATE_STORE=memory", "HOLDFAST_CALLBACK_KEYS=" + callbackKeys, "HOLDFAST_STREAM_BUS=memory",
		"HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true",
		// Frequent ticks would only slow down days on a fake clock.
		"HOLDFAST_STATE_SILENT_AFTER=1h", "HOLDFAST_STATE_SWEEP_EVERY=1m", "HOLDFAST_STATE_CLAIM_POLL=1m",
		"HOLDFAST_STATE_STOP_POLL=10m", "HOLDFAST_STATE_EXPIRE_EVERY=1h", "HOLDFAST_STREAM_CHECK=10m",
		"HOLDFAST_GATEWAY_STATE_ADDRESS=" + stateAddress, "HOLDFAST_GATEWAY_STREAM_ADDRESS=" + streamAddress,
	}))
	base, stopBase := context.WithCancel(t.Context())
	front, stopFront := context.WithCancel(t.Context())
	keeper, err := state.New(base, services.State, state.Peers{Log: log})
	s.must(err)
	live, err := stream.New(base, services.Stream, stream.Peers{Log: log})
	s.must(err)
	public, err := gateway.New(base, services.Gateway, gateway.Peers{Network: s.network, Log: log})
	s.must(err)
	transport, err := public.Transport(gateway.Caller{Scopes: []string{"admin"}})
	s.must(err)
	s.run(base, "state", s.serve(stateAddress, keeper), keeper.Run)
	s.run(base, "stream", s.serve(streamAddress, live), live.Run)
	s.run(front, "gateway", public.Run, func(ctx context.Context) error { return public.ServeWithin(ctx, time.Second) })
	s.http = &http.Client{Transport: transport}
	s.Client = client.New(client.Config{URL: gatewayURL, HTTP: s.http})
	s.close = func() {
		s.stopMembers()
		transport.CloseIdleConnections()
		stopFront()
		s.must(public.Close())
		stopBase()
		s.ended.Wait()
		s.must(errors.Join(live.Close(), keeper.Close()))
	}
	s.join()
	s.awaitAgents()
	return s
}

// gatewayURL is the gateway's address for the client, and in the URLs of callbacks. callbackKeys sign those.
const (
	gatewayURL   = "http://127.0.0.1"
	callbackKeys = "the secret of callbacks within one test"
)

// awaitPause is the time between two polls for the agents, on the fake clock.
const awaitPause = time.Second

// awaitAgents waits until all agents are announced.
func (s *System) awaitAgents() {
	s.T.Helper()
	for {
		announced, err := s.Client.Agents(s.T.Context())
		s.must(err)
		if len(announced.GetAgents()) == len(s.agents) {
			return
		}
		s.Advance(awaitPause)
	}
}

// Advance lets time pass: deadlines, timeouts and waits of that length come due. It takes no real time.
func (s *System) Advance(d time.Duration) { time.Sleep(d) }

// Crash ends the executor at once, as if its machine were gone, and starts another one.
func (s *System) Crash() {
	s.mu.Lock()
	last := s.members[len(s.members)-1]
	s.mu.Unlock()
	last.vanish()
	s.join()
}

// points returns the points that the executors have passed.
func (s *System) points() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.passed)
}

func (s *System) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatalf("got %v, want no error", err)
	}
}

// run runs the tasks of a service until ctx ends.
func (s *System) run(ctx context.Context, name string, tasks ...func(context.Context) error) {
	list := make([]process.Task, len(tasks))
	for i, run := range tasks {
		list[i] = process.Task{Name: name, Run: run}
	}
	s.ended.Go(func() {
		if err := process.Run(ctx, stopGrace, list...); err != nil && !errors.Is(err, context.Canceled) {
			s.T.Errorf("%s ended with %v", name, err)
		}
	})
}

// serve returns the task that serves a service on the network.
func (s *System) serve(address string, service interface{ Register(grpc.ServiceRegistrar) }) func(context.Context) error {
	return func(ctx context.Context) error {
		server, err := rpc.NewServer(rpc.ServerConfig{Log: s.log})
		if err != nil {
			return err
		}
		service.Register(server)
		listener, err := s.network.Listen(ctx, address)
		if err != nil {
			return err
		}
		return rpc.Serve(ctx, server, listener, time.Second)
	}
}
