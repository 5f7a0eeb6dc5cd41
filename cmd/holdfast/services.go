package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

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
	state    *state.Service
	stream   *stream.Service
	executor *executor.Service
	gateway  *gateway.Service
}

// open opens the services and starts nothing. If one fails, it closes the others.
func open(ctx context.Context, c devConfig, agents *executor.Registry, network rpc.Network, log *slog.Logger) (_ *services, err error) {
	h := &services{network: network, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.state, err = state.New(ctx, c.State, state.Peers{Log: log}); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if h.stream, err = stream.New(ctx, c.Stream, stream.Peers{Log: log}); err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	if h.executor, err = executor.New(ctx, c.Executor, executor.Peers{Network: network, Log: log, Registry: agents}); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	if h.gateway, err = gateway.New(ctx, c.Gateway, gateway.Peers{Network: network, Log: log}); err != nil {
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

// endGrace is how long a server may take after its grace period to cut remaining calls.
const endGrace = 6 * time.Second

// run runs the services until ctx ends. It calls up once when the system accepts requests and knows its agents.
// Gateway and executor end first, so that a step in flight can still be committed.
func (h *services) run(ctx context.Context, c devConfig, public net.Listener, up func() error) error {
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	front, stopFront := context.WithCancel(ctx)
	defer stopFront()

	baseEnded := make(chan error, 1) // for the single result
	go func() {
		defer stopFront()
		baseEnded <- process.Run(base, c.Grace+endGrace,
			h.serve("state", stateAddress, h.state, c),
			h.serve("stream", streamAddress, h.stream, c),
			process.Task{Name: "state work", Run: h.state.Run},
			process.Task{Name: "stream work", Run: h.stream.Run},
		)
	}()
	err := process.Run(front, c.Grace+endGrace,
		h.serve("executor", executorAddress, h.executor, c),
		process.Task{Name: "executor work", Run: h.executor.Run},
		process.Task{Name: "gateway work", Run: h.gateway.Run},
		process.Task{Name: "gateway", Run: func(ctx context.Context) error {
			return h.gateway.Serve(ctx, public, c.Grace)
		}},
		process.Task{Name: "welcome", Run: func(ctx context.Context) error {
			if err := h.awaitAgents(ctx); err != nil {
				return err
			}
			return up()
		}},
	)
	stopBase()
	return errors.Join(err, <-baseEnded)
}

// awaitPause is the pause between two polls for the agents.
const awaitPause = 10 * time.Millisecond

// awaitAgents returns once the executor has announced its agents.
func (h *services) awaitAgents(ctx context.Context) error {
	conn, err := rpc.Dial(h.network, stateAddress, rpc.ClientConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	sessions := statev1.NewSessionServiceClient(conn)
	for {
		answer, err := sessions.ListAgents(ctx, &statev1.ListAgentsRequest{})
		if err == nil && len(answer.GetAgents()) > 0 {
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

// registrar is a service with gRPC handlers.
type registrar interface {
	Register(grpc.ServiceRegistrar)
}

// serve returns the task that serves a service on the network.
func (h *services) serve(name, address string, hall registrar, c devConfig) process.Task {
	return process.Task{Name: name, Run: func(ctx context.Context) error {
		server, err := rpc.NewServer(rpc.ServerConfig{Log: h.log, Untraced: []string{
			statev1.WorkService_Heartbeat_FullMethodName, streamv2.StreamService_Append_FullMethodName,
		}})
		if err != nil {
			return err
		}
		hall.Register(server)
		listener, err := h.network.Listen(ctx, address)
		if err != nil {
			return err
		}
		return rpc.Serve(ctx, server, listener, c.Grace)
	}}
}
