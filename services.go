package holdfast

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
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

// services are the four services of a runtime, on one network.
type services struct {
	network  rpc.Network
	state    *state.Service
	stream   *stream.Service
	executor *executor.Service
	gateway  *gateway.Service
}

// open opens the services and starts nothing. Those that it has opened are closed on release, clients before servers.
func (r *Runtime) open(ctx context.Context) (err error) {
	if err := r.configureCallbacks(); err != nil {
		return err
	}
	r.network = rpc.NewProcess()
	if r.state, err = state.New(ctx, r.settings.State, state.Peers{Log: r.log, Meter: otel.Meter("holdfast.state")}); err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	r.onRelease(r.state.Close)
	if r.stream, err = stream.New(ctx, r.settings.Stream, stream.Peers{Log: r.log, Meter: otel.Meter("holdfast.stream")}); err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	r.onRelease(r.stream.Close)
	r.executor, err = executor.New(ctx, r.settings.Executor, executor.Peers{
		Network: r.network, Log: r.log, Meter: otel.Meter("holdfast.executor"), Registry: r.agents, Hooks: r.options.Hooks,
		LookupEnv: config.Lookup(r.options.Env),
	})
	if err != nil {
		return fmt.Errorf("open executor: %w", withEnvHint(r.options, err))
	}
	r.onRelease(r.executor.Close)
	r.gateway, err = gateway.New(ctx, r.settings.Gateway, gateway.Peers{
		Network: r.network, Security: r.settings.Expose.Internal, Log: r.log, Meter: otel.Meter("holdfast.gateway"),
		Authenticate: r.options.Authenticate, BeforeEntry: r.options.BeforeEntry, AfterEntry: r.options.AfterEntry, Routes: r.options.Routes,
	})
	if err != nil {
		return fmt.Errorf("open gateway: %w", err)
	}
	r.onRelease(r.gateway.Close)
	return nil
}

// withEnvHint explains the error of a model without an API key: the package does not read the environment of the process.
func withEnvHint(o Options, err error) error {
	f, ok := fault.From(err)
	if !ok || f.Reason != "MODEL_INVALID" || o.Env != nil || !strings.Contains(f.Detail, "environment variable") {
		return err
	}
	return fault.New(f.Kind, f.Reason, "%s (Options.Env has no variables: os.Environ() are those of the process)", f.Detail)
}

// endGrace is how long a server may take after its grace period to end remaining calls.
const endGrace = 6 * time.Second

// run runs the services until ctx ends. It calls up once when the system accepts requests and serves all its agents.
// Gateway and executor end first, so that a step in flight can still be committed.
func (r *Runtime) run(ctx context.Context, up func() error) error {
	callers := []process.Task{
		r.serve("executor", executorAddress, r.executor),
		{Name: "executor work", Run: r.executor.Run},
		{Name: "gateway work", Run: r.gateway.Run},
		{Name: "gateway clients", Run: func(ctx context.Context) error { return r.gateway.ServeWithin(ctx, r.settings.Grace) }},
		{Name: "start", Run: func(ctx context.Context) error {
			if err := r.awaitReady(ctx); err != nil {
				return err
			}
			return up()
		}},
	}
	if r.listener != nil {
		callers = append(callers, process.Task{Name: "gateway", Run: func(ctx context.Context) error {
			return r.gateway.Serve(ctx, r.listener, r.settings.Grace)
		}})
	}
	return process.RunInOrder(ctx, r.settings.Grace+endGrace,
		append(r.serveExposed(),
			r.serve("state", stateAddress, r.state),
			r.serve("stream", streamAddress, r.stream),
			process.Task{Name: "state work", Run: r.state.Run},
			process.Task{Name: "stream work", Run: r.stream.Run},
		),
		callers,
	)
}

// awaitPause is the pause between two checks.
const awaitPause = 10 * time.Millisecond

// awaitReady returns once the gateway is ready and the executor serves all agents, so that a first message is answered.
// The agents alone would not do: the store knows those of former starts. Without agents, as while an endpoint is down, the
// gateway is not ready, and nobody waits for it.
func (r *Runtime) awaitReady(ctx context.Context) error {
	conn, err := rpc.Dial(r.network, stateAddress, rpc.ClientConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	sessions := statev1.NewSessionServiceClient(conn)
	for {
		answer, err := sessions.ListAgents(ctx, &statev1.ListAgentsRequest{})
		if err == nil && r.serves(answer) && (len(r.agents.Types()) == 0 || len(r.gateway.NotReady(ctx)) == 0) {
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
func (r *Runtime) serves(listed *statev1.ListAgentsResponse) bool {
	for _, name := range r.agents.Types() {
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
func (r *Runtime) serve(name, address string, service registrar) process.Task {
	return process.Task{Name: name, Run: func(ctx context.Context) error {
		listener, err := r.network.Listen(ctx, address)
		if err != nil {
			return err
		}
		return r.serveOn(name, listener, rpc.Security{}, service).Run(ctx)
	}}
}

// serveOn returns the task that serves a service on a listener.
func (r *Runtime) serveOn(name string, listener net.Listener, security rpc.Security, service registrar) process.Task {
	return process.Task{Name: name, Run: func(ctx context.Context) error {
		server, err := rpc.NewServer(rpc.ServerConfig{Security: security, Log: r.log, Untraced: []string{
			statev1.WorkService_Heartbeat_FullMethodName, streamv2.StreamService_Append_FullMethodName,
		}})
		if err != nil {
			return err
		}
		service.Register(server)
		return rpc.Serve(ctx, server, listener, r.settings.Grace)
	}}
}
