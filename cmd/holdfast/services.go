package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// services holds the four services on one network.
type services struct {
	network  rpc.Network
	log      *slog.Logger
	agents   *executor.Registry
	state    *state.Service
	stream   *stream.Service
	executor *executor.Service
	gateway  *gateway.Service
}

// open opens the services and starts nothing. If one fails, it closes the others.
func open(
	ctx context.Context, c devConfig, agents *executor.Registry, network rpc.Network, log *slog.Logger, hooks agent.Hooks,
) (_ *services, err error) {
	h := &services{network: network, log: log, agents: agents}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.state, err = state.New(ctx, c.State, state.Peers{Log: log, Meter: otel.Meter("holdfast.state")}); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if h.stream, err = stream.New(ctx, c.Stream, stream.Peers{Log: log, Meter: otel.Meter("holdfast.stream")}); err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	h.executor, err = executor.New(ctx, c.Executor, executor.Peers{
		Network: network, Log: log, Meter: otel.Meter("holdfast.executor"), Registry: agents, Hooks: hooks,
	})
	if err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	h.gateway, err = gateway.New(ctx, c.Gateway, gateway.Peers{
		Network: network, Security: c.Expose.Internal, Log: log, Meter: otel.Meter("holdfast.gateway"),
	})
	if err != nil {
		return nil, fmt.Errorf("open gateway: %w", err)
	}
	return h, nil
}

// close closes the open services, clients before servers.
func (h *services) close() error {
	var errs []error
	if h.gateway != nil {
		errs = append(errs, h.gateway.Close())
	}
	if h.executor != nil {
		errs = append(errs, h.executor.Close())
	}
	if h.stream != nil {
		errs = append(errs, h.stream.Close())
	}
	if h.state != nil {
		errs = append(errs, h.state.Close())
	}
	return errors.Join(errs...)
}

// endGrace is how long a server may take after its grace period to end remaining calls.
const endGrace = 6 * time.Second

// run runs the services until ctx ends. It calls up once when the system accepts requests and serves all its agents.
// Gateway and executor end first, so that a step in flight can still be committed.
func (h *services) run(ctx context.Context, c devConfig, public net.Listener, joining exposed, up func() error) error {
	return runInOrder(ctx, c.Grace+endGrace,
		append(joining.tasks(h, c),
			h.serve("state", stateAddress, h.state, c),
			h.serve("stream", streamAddress, h.stream, c),
			process.Task{Name: "state work", Run: h.state.Run},
			process.Task{Name: "stream work", Run: h.stream.Run},
		),
		[]process.Task{
			h.serve("executor", executorAddress, h.executor, c),
			{Name: "executor work", Run: h.executor.Run},
			{Name: "gateway work", Run: h.gateway.Run},
			{Name: "gateway", Run: func(ctx context.Context) error {
				return h.gateway.Serve(ctx, public, c.Grace)
			}},
			{Name: "welcome", Run: func(ctx context.Context) error {
				if err := h.awaitReady(ctx); err != nil {
					return err
				}
				return up()
			}},
		},
	)
}

// awaitPause is the pause between two checks.
const awaitPause = 10 * time.Millisecond

// awaitReady returns once the gateway is ready and the executor serves all agents, so that a first message is answered.
// The agents alone would not do: the store knows those of former starts.
func (h *services) awaitReady(ctx context.Context) error {
	conn, err := rpc.Dial(h.network, stateAddress, rpc.ClientConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	sessions := statev1.NewSessionServiceClient(conn)
	for {
		answer, err := sessions.ListAgents(ctx, &statev1.ListAgentsRequest{})
		if err == nil && h.serves(answer) && len(h.gateway.NotReady(ctx)) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, fault.Unavailable) {
			return fmt.Errorf("wait for the agents: %w", err)
		}
		select {
		case <-time.After(awaitPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serves reports whether executors serve all agents of this process.
func (h *services) serves(listed *statev1.ListAgentsResponse) bool {
	for _, name := range h.agents.Types() {
		known := slices.ContainsFunc(listed.GetAgents(), func(a *statev1.Agent) bool { return a.GetAgentType() == name })
		if !known || slices.Contains(listed.GetUnservedAgentTypes(), name) {
			return false
		}
	}
	return true
}

// registrar is a service with gRPC handlers.
type registrar interface {
	Register(grpc.ServiceRegistrar)
}

// serve returns the task that serves a service on the network of this process.
func (h *services) serve(name, address string, service registrar, c devConfig) process.Task {
	return process.Task{Name: name, Run: func(ctx context.Context) error {
		listener, err := h.network.Listen(ctx, address)
		if err != nil {
			return err
		}
		return h.serveOn(name, listener, rpc.Security{}, service, c).Run(ctx)
	}}
}

// serveOn returns the task that serves a service on a listener.
func (h *services) serveOn(name string, listener net.Listener, security rpc.Security, service registrar, c devConfig) process.Task {
	return process.Task{Name: name, Run: func(ctx context.Context) error {
		server, err := rpc.NewServer(rpc.ServerConfig{Security: security, Log: h.log, Untraced: []string{
			statev1.WorkService_Heartbeat_FullMethodName, streamv2.StreamService_Append_FullMethodName,
		}})
		if err != nil {
			return err
		}
		service.Register(server)
		return rpc.Serve(ctx, server, listener, c.Grace)
	}}
}
