// Package executor is the service that calls models and tools. No other service does.
//
// It claims runs from the state service, streams what happens through the stream
// service and commits each step. It stores nothing: an executor may die between
// any two instructions, and another one takes its runs over (see internal/worker).
package executor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
	"github.com/holdfast-run/holdfast/services/executor/internal/deliverer"
	"github.com/holdfast-run/holdfast/services/executor/internal/method"
	"github.com/holdfast-run/holdfast/services/executor/internal/registry"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// tracerName names the instrumentation of the executor's own spans.
const tracerName = "github.com/holdfast-run/holdfast/services/executor"

type (
	// Registry holds the agents that an executor serves: Register, RegisterFactory, Load, Use and
	// Model add to it. It may change while the executor runs.
	Registry = registry.Registry
	// RegistryPeers is what Registry.Load works with.
	RegistryPeers = registry.Peers
	// RegistryOperation is a tool that comes from an OpenAPI document.
	RegistryOperation = registry.Operation
	// RegistryChange is what a later reading of the agents of a Registry has changed.
	RegistryChange = registry.Change
	// Factory makes the agent of one run. It is called each time an executor claims the run, and
	// may be called by many goroutines at once. Its error or panic fails the run.
	Factory = registry.Factory
	// For identifies the run for which a factory makes an agent.
	For = registry.For
	// Agents is a set of agents in YAML.
	Agents = registry.Agents
	// AgentsConfig names the YAML files of agents, and limits what agents in YAML may use.
	AgentsConfig = registry.AgentsConfig
)

// NewRegistry returns a registry without agents.
func NewRegistry() *Registry { return registry.New() }

// ParseAgents reads agents in YAML (see docs/agents-yaml.md). Relative
// paths in the YAML are relative to dir. lookupEnv finds the environment variables of
// AgentsConfig, and those that the YAML names and may name; nil finds none. A registry or an
// executor that is given the set closes it.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name, agents.yaml, and the line in it. Invalid (CONFIG_INVALID, HOSTS_INVALID).
func ParseAgents(data []byte, dir string, lookupEnv func(string) (string, bool)) (*Agents, error) {
	return registry.ParseAgents(data, dir, lookupEnv)
}

// AgentsSchema returns the JSON Schema of an agents file, for editors.
func AgentsSchema() []byte { return slices.Clone(agents.Schema) }

// Peers is what an executor works with.
type Peers struct {
	// Registry holds the agents that the executor serves, which may change while it runs. The
	// registry uses Agents. One of the two is required.
	Registry *Registry
	Agents   *Agents
	// Hooks of the host are called after those of each agent.
	Hooks agent.Hooks
	// LookupEnv finds the API keys of providers that agents registered in Go name; nil finds none.
	LookupEnv func(string) (string, bool)
	Network   rpc.Network      // nil is rpc.TCP
	Security  rpc.Security     // towards the state and stream services
	Log       *slog.Logger     // nil is slog.Default
	Meter     metric.Meter     // nil measures nothing
	Now       func() time.Time // nil is time.Now
	NewID     func() string    // nil returns random ids
	// Passed is called when a run passes a fault point, for tests that end the process there; it
	// may be nil.
	Passed func(ctx context.Context, point string)
}

// Service is an executor.
type Service struct {
	registry   *Registry
	agents     *registry.Catalog
	log        *slog.Logger
	worker     *worker.Worker
	methods    *method.Caller
	deliveries *deliverer.Deliverer
	delivers   bool
	state      *grpc.ClientConn
	stream     *grpc.ClientConn
}

// ProcessConfig configures the executor's own process.
type ProcessConfig struct {
	Config
	Listen string `env:"HOLDFAST_EXECUTOR_LISTEN" envDefault:"127.0.0.1:7413" doc:"address to serve on"`
	AgentsConfig
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for everything to end at shutdown"`
	Internal  rpc.Security  `envPrefix:"HOLDFAST_INTERNAL_"`
	Telemetry telemetry.Config
}

// New prepares connections to the other services and starts nothing. The connections are made
// when they are first used.
//
// Invalid (CONFIG_INVALID, AGENTS_MISSING, MODEL_INVALID), Conflict (AGENT_EXISTS), and the
// faults of rpc.Dial. On failure it closes the Agents, unless there is a Registry, which the
// caller closes.
func New(_ context.Context, c Config, p Peers) (*Service, error) {
	s, err := open(c, p)
	if err != nil && p.Registry == nil && p.Agents != nil {
		registry.Discard(p.Agents)
	}
	return s, err
}

func open(c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p.Registry == nil && (p.Agents == nil || len(p.Agents.Definitions()) == 0) {
		return nil, fault.New(fault.Invalid, "AGENTS_MISSING", "the executor has no agents; give it a registry, or agents in YAML")
	}
	p = p.withDefaults()
	if p.Agents != nil {
		if err := p.Registry.Use(p.Agents); err != nil {
			return nil, err
		}
	}
	agents, err := registry.NewCatalog(p.Registry, p.Hooks, p.LookupEnv)
	if err != nil {
		return nil, err
	}
	state, stream, err := dial(c, p)
	if err != nil {
		return nil, err
	}
	var passed func(context.Context, worker.Point)
	if p.Passed != nil {
		passed = func(ctx context.Context, point worker.Point) { p.Passed(ctx, string(point)) }
	}
	id := p.NewID()
	w := worker.New(c.worker(), worker.Peers{
		ExecutorID: id,
		Work:       statev1.NewWorkServiceClient(state),
		Sessions:   statev1.NewSessionServiceClient(state),
		Runs:       statev1.NewRunServiceClient(state),
		Files:      statev1.NewFileServiceClient(state),
		Governors:  statev1.NewGovernorServiceClient(state),
		Stream:     streamv2.NewStreamServiceClient(stream),
		Agents:     agents,
		Log:        p.Log.With("executor", executorName(id)),
		Tracer:     otel.Tracer(tracerName),
		Now:        p.Now,
		NewID:      func() string { return strings.ToLower(p.NewID()) },
		Jitter:     mathrand.Float64,
		Passed:     passed,
	})
	if err := w.Measure(p.Meter); err != nil {
		return nil, errors.Join(err, state.Close(), stream.Close())
	}
	deliveries := deliverer.New(c.deliverer(), deliverer.Peers{
		ExecutorID: id, Outbox: statev1.NewOutboxServiceClient(state), Log: p.Log, Now: p.Now, Passed: p.Passed,
	})
	methods := method.New(agents, statev1.NewSessionServiceClient(state), c.MethodCalls, c.MaxResultBytes, p.Log)
	return &Service{
		registry: p.Registry, agents: agents, log: p.Log, worker: w, deliveries: deliveries, delivers: c.Deliveries > 0, methods: methods,
		state: state, stream: stream,
	}, nil
}

// executorName returns the beginning of an executor's id, for logs. Who knows the whole id can take the
// executor's claims.
func executorName(id string) string { return id[:len(id)/4] }

// dial prepares the connections to the state and the stream service.
func dial(c Config, p Peers) (state, stream *grpc.ClientConn, err error) {
	state, err = rpc.Dial(p.Network, c.StateAddress, rpc.ClientConfig{
		Security: p.Security, Untraced: []string{statev1.WorkService_Heartbeat_FullMethodName},
		Piped: []string{
			statev1.WorkService_RecordPlan_FullMethodName, statev1.WorkService_RecordResult_FullMethodName,
			statev1.WorkService_CommitStep_FullMethodName,
		},
	})
	if err != nil {
		return nil, nil, err
	}
	stream, err = rpc.Dial(p.Network, c.StreamAddress, rpc.ClientConfig{
		Security: p.Security, Untraced: []string{streamv2.StreamService_Append_FullMethodName},
		Piped: []string{streamv2.StreamService_Append_FullMethodName},
	})
	if err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	return state, stream, nil
}

func (c Config) worker() worker.Config {
	return worker.Config{
		Slots:             c.Slots,
		Spare:             (c.Slots*c.SparePercent + 99) / 100,
		HeartbeatInterval: c.HeartbeatInterval,
		HeldInterval:      c.HeldInterval,
		CallTimeout:       c.CallTimeout,
		DrainGrace:        c.DrainGrace,
		ModelTimeout:      c.ModelTimeout,
		ToolTimeout:       c.ToolTimeout,
		ParallelCalls:     c.ParallelCalls,
		MaxCalls:          c.MaxCalls,
		HookTimeout:       c.HookTimeout,
		GuardTimeout:      c.GuardTimeout,
		AbsentDelay:       c.AbsentDelay,
		MaxLosses:         c.MaxLosses,
		MaxDepth:          c.MaxDepth,

		RemotePatience: c.RemotePatience, RemoteStopPatience: c.RemoteStopPatience,

		MaxCallFileBytes: c.MaxCallFileBytes, FileMemory: c.FileMemory, FileCacheBytes: c.FileCacheBytes,

		TraceContent: c.TraceContent, TraceMetadata: c.TraceMetadata,
		MaxResultBytes: c.MaxResultBytes,
		PublicURL:      c.PublicURL,
		MaxStateBytes:  c.MaxStateBytes,
		MaxDeltaBytes:  c.MaxDeltaBytes,
		MaxQueuedBytes: c.MaxQueuedBytes,
		StreamPatience: c.StreamPatience,
	}
}

func (c Config) deliverer() deliverer.Config {
	return deliverer.Config{AtOnce: c.Deliveries, Timeout: c.WebhookTimeout, Grace: c.DrainGrace, Policy: c.webhookHosts()}
}

// webhookHosts are the hosts that webhooks may be on. Those of a list are not limited to https.
func (c Config) webhookHosts() outbound.Policy {
	return outbound.Policy{
		Hosts: c.WebhookHosts, HostsVariable: "HOLDFAST_EXECUTOR_WEBHOOK_HOSTS", Public: len(c.WebhookHosts) == 0,
		Private: c.WebhookPrivateHosts, PrivateVariable: "HOLDFAST_EXECUTOR_WEBHOOK_PRIVATE_HOSTS",
	}
}

func (p Peers) withDefaults() Peers {
	p.Registry = orNew(p.Registry)
	if p.LookupEnv == nil {
		p.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if p.Network == nil {
		p.Network = rpc.TCP()
	}
	p.Log = cmp.Or(p.Log, slog.Default())
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.NewID == nil {
		p.NewID = rand.Text
	}
	return p
}

func orNew(r *Registry) *Registry {
	if r == nil {
		return NewRegistry()
	}
	return r
}

// Register adds the executor's services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	executorv1.RegisterExecutorServiceServer(r, s.methods)
}

// Run claims and executes runs until ctx ends, and then finishes or releases the runs that it
// holds, within the drain grace and four seconds. It may be called once.
//
// Meanwhile it follows the files of the registry's agents.
func (s *Service) Run(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	var follower sync.WaitGroup
	follower.Go(func() { s.agents.Run(following, s.worker.LiveRunIDs, s.log) })
	if s.delivers {
		follower.Go(func() { s.deliveries.Run(ctx) })
	}
	defer follower.Wait()
	defer stop()
	return s.worker.Run(ctx)
}

// Close closes the connections and the registry. Call it after Run.
func (s *Service) Close() error {
	return errors.Join(s.state.Close(), s.stream.Close(), s.registry.Close())
}
