// Package executor is the service that does things: it calls models and tools. It
// is the only door to them.
//
// It claims runs from the state service, streams what happens through the stream
// service and commits each step. It keeps nothing: an executor may die between
// any two instructions, and another one goes on (see internal/worker).
package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/server"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// tracerName names the instrumentation of the executor's own spans.
const tracerName = "github.com/holdfast-run/holdfast/services/executor"

// Peers is what an executor works with.
type Peers struct {
	// Registry is the agents that it serves, which may change while it runs. Agents are
	// used by it. One of the two is required.
	Registry *Registry
	Agents   *Agents
	// Hooks of the host are called behind those of each agent.
	Hooks agent.Hooks
	// LookupEnv finds the API keys of providers that agents of Go name; nil finds none.
	LookupEnv func(string) (string, bool)
	Network   rpc.Network      // nil is rpc.TCP
	Security  rpc.Security     // towards the state and stream services
	Log       *slog.Logger     // nil is slog.Default
	Now       func() time.Time // nil is time.Now
	NewID     func() string    // nil gives random ids
	// Passed is called when a run comes by a fault point, for tests that end the process
	// there; nil is not called.
	Passed func(ctx context.Context, point string)
}

// Service is an executor.
type Service struct {
	registry *Registry
	agents   *catalog
	log      *slog.Logger
	worker   *worker.Worker
	server   *server.Server
	state    *grpc.ClientConn
	stream   *grpc.ClientConn
}

// New opens the connections to the other services, which connect when they are
// used, and starts nothing.
//
// Invalid (CONFIG_INVALID, AGENTS_MISSING, MODEL_INVALID), Conflict (AGENT_EXISTS), and
// what rpc.Dial gives. Then it has closed the Agents, unless there is a Registry, which
// stays the caller's.
func New(_ context.Context, c Config, p Peers) (*Service, error) {
	s, err := open(c, p)
	if err != nil && p.Registry == nil && p.Agents != nil {
		p.Agents.Close()
		p.Agents.wait()
	}
	return s, err
}

func open(c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p.Registry == nil && (p.Agents == nil || len(p.Agents.list) == 0) {
		return nil, fault.New(fault.Invalid, "AGENTS_MISSING", "an executor without agents has nothing to do: give it a registry, or agents in YAML")
	}
	p = p.withDefaults()
	agents, err := p.catalog()
	if err != nil {
		return nil, err
	}
	state, err := rpc.Dial(p.Network, c.StateAddress, rpc.ClientConfig{
		Security: p.Security, Untraced: []string{statev1.WorkService_Heartbeat_FullMethodName},
		Piped: []string{
			statev1.WorkService_RecordPlan_FullMethodName, statev1.WorkService_RecordResult_FullMethodName,
			statev1.WorkService_CommitStep_FullMethodName,
		},
	})
	if err != nil {
		return nil, err
	}
	stream, err := rpc.Dial(p.Network, c.StreamAddress, rpc.ClientConfig{
		Security: p.Security, Untraced: []string{streamv2.StreamService_Append_FullMethodName},
		Piped: []string{streamv2.StreamService_Append_FullMethodName},
	})
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	id := p.NewID()
	w := worker.New(c.worker(), worker.Peers{
		ExecutorID: id,
		Work:       statev1.NewWorkServiceClient(state),
		Sessions:   statev1.NewSessionServiceClient(state),
		Stream:     streamv2.NewStreamServiceClient(stream),
		Agents:     agents,
		Log:        p.Log.With("executor", id),
		Tracer:     otel.Tracer(tracerName),
		Now:        p.Now,
		Jitter:     mathrand.Float64,
		Passed:     p.passed(),
	})
	s := &server.Server{ExecutorID: id, Slots: c.Slots, Agents: agents.definitions, Live: w.LiveRunIDs}
	return &Service{registry: p.Registry, agents: agents, log: p.Log, worker: w, server: s, state: state, stream: stream}, nil
}

func (p Peers) withDefaults() Peers {
	if p.Registry == nil {
		p.Registry = NewRegistry()
	}
	if p.LookupEnv == nil {
		p.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if p.Network == nil {
		p.Network = rpc.TCP()
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.NewID == nil {
		p.NewID = rand.Text
	}
	return p
}

// catalog gives the agents as the worker needs them.
func (p Peers) catalog() (*catalog, error) {
	if p.Agents != nil {
		if err := p.Registry.Use(p.Agents); err != nil {
			return nil, err
		}
	}
	c := &catalog{registry: p.Registry, hooks: p.Hooks, lookupEnv: p.LookupEnv, engines: map[string]model.Model{}}
	return c, c.check()
}

func (p Peers) passed() func(context.Context, worker.Point) {
	if p.Passed == nil {
		return nil
	}
	return func(ctx context.Context, point worker.Point) { p.Passed(ctx, string(point)) }
}

// Register adds the executor's services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	executorv1.RegisterExecutorServiceServer(r, s.server)
}

// Run claims and executes runs until ctx ends, and then finishes or gives back
// what it holds, within the drain grace and four seconds. It may be called once.
//
// Meanwhile it follows the files of the registry's agents.
func (s *Service) Run(ctx context.Context) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { s.registry.watch(watching, s.log) })
	watcher.Go(func() { s.sweep(watching) })
	defer watcher.Wait()
	defer stop()
	return s.worker.Run(ctx)
}

// sweepInterval is how long an MCP server that is gone from the files may outlive the last
// run that has its tools.
const sweepInterval = time.Second

// sweep gives up, from time to time until ctx ends, what runs have held that have ended.
func (s *Service) sweep(ctx context.Context) {
	ticks := time.NewTicker(sweepInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			s.registry.sweep(s.agents, s.worker.LiveRunIDs)
		}
	}
}

// Close closes the connections and the registry. Call it after Run.
func (s *Service) Close() error {
	return errors.Join(s.state.Close(), s.stream.Close(), s.registry.Close())
}
