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
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/server"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// tracerName names the instrumentation of the executor's own spans.
const tracerName = "github.com/holdfast-run/holdfast/services/executor"

// Peers is what an executor works with.
type Peers struct {
	// Agents are those that it serves. Required.
	Agents   *Agents
	Network  rpc.Network      // nil is rpc.TCP
	Security rpc.Security     // towards the state and stream services
	Log      *slog.Logger     // nil is slog.Default
	Now      func() time.Time // nil is time.Now
	NewID    func() string    // nil gives random ids
}

// Service is an executor.
type Service struct {
	worker *worker.Worker
	server *server.Server
	state  *grpc.ClientConn
	stream *grpc.ClientConn
}

// New opens the connections to the other services, which connect when they are
// used, and starts nothing.
//
// Invalid (CONFIG_INVALID, AGENTS_MISSING), and what rpc.Dial gives.
func New(_ context.Context, c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p.Agents == nil || len(p.Agents.list) == 0 {
		return nil, fault.New(fault.Invalid, "AGENTS_MISSING", "an executor without agents has nothing to do")
	}
	p = p.withDefaults()
	state, err := rpc.Dial(p.Network, c.StateAddress, rpc.ClientConfig{Security: p.Security})
	if err != nil {
		return nil, err
	}
	stream, err := rpc.Dial(p.Network, c.StreamAddress, rpc.ClientConfig{Security: p.Security})
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	id := p.NewID()
	byName := make(map[string]worker.Agent, len(p.Agents.list))
	for _, a := range p.Agents.list {
		byName[a.Name] = a
	}
	w := worker.New(c.worker(), worker.Peers{
		ExecutorID: id,
		Work:       statev1.NewWorkServiceClient(state),
		Sessions:   statev1.NewSessionServiceClient(state),
		Stream:     streamv1.NewStreamServiceClient(stream),
		Agents:     byName,
		Log:        p.Log.With("executor", id),
		Tracer:     otel.Tracer(tracerName),
		Now:        p.Now,
		Jitter:     mathrand.Float64,
	})
	s := &server.Server{ExecutorID: id, Slots: c.Slots, Agents: p.Agents.Definitions(), Live: w.LiveRunIDs}
	return &Service{worker: w, server: s, state: state, stream: stream}, nil
}

func (p Peers) withDefaults() Peers {
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

// Register adds the executor's services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	executorv1.RegisterExecutorServiceServer(r, s.server)
}

// Run claims and executes runs until ctx ends, and then finishes or gives back
// what it holds, within the drain grace and four seconds. It may be called once.
func (s *Service) Run(ctx context.Context) error { return s.worker.Run(ctx) }

// Close closes the connections. Call it after Run.
func (s *Service) Close() error { return errors.Join(s.state.Close(), s.stream.Close()) }
