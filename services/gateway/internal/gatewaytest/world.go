// Package gatewaytest runs the real state and stream services, in memory, behind the gateway of a
// test. The test is the executor: it plays each run by hand, with Run.
//
// The gateway reaches the services at addresses where a test can count, fail, hold and cut its
// calls: see State and Stream. The executor and the methods of State reach them directly.
package gatewaytest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// The addresses of the services for a gateway.
const (
	StateAddress  = "state"
	StreamAddress = "stream"
)

// CallbackKeys is the state service's secret of callbacks.
const CallbackKeys = "the secret of the callbacks of tests"

// directAddress serves both services without faults.
const directAddress = "direct"

// Patience is how long a test waits for an expected event. It is long because many tests share few
// processors.
const Patience = 90 * time.Second

// World is the services, their network and an executor that announces the agents demo and other.
type World struct {
	Network *rpc.Memory
	State   *State
	Stream  *Stream

	executor *executor
}

// New starts the services. They stop with the test. The executor announces the agents, or else
// demo and other.
func New(t testing.TB, agents ...*statev1.Agent) *World {
	t.Helper()
	if len(agents) == 0 {
		agents = []*statev1.Agent{{AgentType: "demo", Description: "answers"}, {AgentType: "other"}}
	}
	w := &World{Network: rpc.NewMemory(), State: newState(), Stream: newStream()}
	ids := &idSequence{}
	stateService, streamService := services(t, ids)
	stop := start(t,
		stateService.Run, streamService.Run,
		w.server(t, StateAddress, func(r grpc.ServiceRegistrar) {
			stateService.Register(intercepted{r, w.State.intercept, w.State.countFiles, ids})
		}),
		w.server(t, StreamAddress, func(r grpc.ServiceRegistrar) {
			streamService.Register(intercepted{r, nil, w.Stream.intercept, nil})
		}),
		w.server(t, directAddress, func(r grpc.ServiceRegistrar) {
			stateService.Register(intercepted{r, nil, nil, ids})
			streamService.Register(r)
		}),
	)
	direct, err := rpc.Dial(w.Network, directAddress, rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w.executor = newExecutor(direct)
	w.executor.announce(t, agents...)
	w.State.connect(direct, w.executor)
	t.Cleanup(func() {
		w.executor.close()
		err := direct.Close()
		stop()
		if err := errors.Join(err, streamService.Close(), stateService.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// services makes the services, which keep everything in memory.
func services(t testing.TB, ids *idSequence) (*state.Service, *stream.Service) {
	t.Helper()
	var stateConfig state.Config
	var streamConfig stream.Config
	err := errors.Join(
		config.Load(&stateConfig, []string{
			"HOLDFAST_STATE_STORE=memory", "HOLDFAST_CALLBACK_KEYS=" + CallbackKeys,
			"HOLDFAST_STATE_SILENT_AFTER=24h", "HOLDFAST_STATE_BROKEN_AFTER=0s", // the executor sends no heartbeats
			"HOLDFAST_STATE_MAX_WAITING=3",
			// Under fake time, polls run for all of a long pause. A claim that misses its signal waits for a poll.
			"HOLDFAST_STATE_CLAIM_POLL=1s", "HOLDFAST_STATE_STOP_POLL=1m", "HOLDFAST_STATE_SWEEP_EVERY=2s",
		}),
		config.Load(&streamConfig, []string{"HOLDFAST_STREAM_BUS=memory"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	stateService, err := state.New(t.Context(), stateConfig, state.Peers{NewID: ids.next, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	streamService, err := stream.New(t.Context(), streamConfig, stream.Peers{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return stateService, streamService
}

// start runs the tasks until the function it returns is called, which waits for them.
func start(t testing.TB, tasks ...func(context.Context) error) func() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { ended <- task(ctx) }()
	}
	return func() {
		cancel()
		for range tasks {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

// server listens on the address, and returns a task that serves there.
func (w *World) server(t testing.TB, address string, register func(grpc.ServiceRegistrar)) func(context.Context) error {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	register(server)
	listener, err := w.Network.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) error { return rpc.Serve(ctx, server, listener, 0) }
}

// AwaitRun waits until the executor has claimed a run of the session other than former, which is
// nil for the first.
func (w *World) AwaitRun(t testing.TB, tenant, session string, former *Run) *Run {
	t.Helper()
	claim := w.executor.await(t, tenant, session, former)
	return newRun(w, t, tenant, claim)
}
