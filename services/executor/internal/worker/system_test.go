package worker_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
	"github.com/holdfast-run/holdfast/services/state"
)

// tenant owns all sessions of the tests.
const tenant = "acme"

// silentAfter is how long an executor may send no heartbeat before it loses its runs.
const silentAfter = 2500 * time.Millisecond

// system is the state and the stream service with stores in memory, and executors with unreliable connections to
// them. The fields of the first group are set before the first call. Except in benchmarks, it needs a synctest
// bubble.
type system struct {
	t       testing.TB
	environ []string // of the services
	config  worker.Config
	lead    time.Duration // how far the executors' clocks are ahead
	agents  map[string]catalog.Agent
	catalog catalog.Catalog // nil: that of agents
	tracer  trace.Tracer
	http    *http.Client
	logTo   io.Writer // the log; nil: the output of the test
	passed  func(ctx context.Context, e *executor, p worker.Point)
	faults  faults

	network  *rpc.Process
	ready    func() // starts the services, once
	stateAPI *grpc.ClientConn
	traffic  traffic
	logs     logs

	mu        sync.Mutex
	known     map[string]bool   // announced agent types
	begun     map[string]string // first custom states, by session
	executors int
	meter     metric.Meter               // of the executors; nil measures nothing
	replace   bool                       // the first executor has died and has no successor
	runs      map[string]int             // executions of tools, by call id
	keys      map[string]map[string]bool // idempotency keys of these executions, by call id
}

func newSystem(t testing.TB, agents ...catalog.Agent) *system {
	t.Helper()
	p := &system{
		t: t, network: rpc.NewProcess(), agents: map[string]catalog.Agent{}, tracer: noop.NewTracerProvider().Tracer(""),
		known: map[string]bool{}, begun: map[string]string{}, runs: map[string]int{}, keys: map[string]map[string]bool{},
		config: worker.Config{
			Slots: 4, HeartbeatInterval: 500 * time.Millisecond, HeldInterval: 15 * time.Second, CallTimeout: 5 * time.Second,
			ModelTimeout: 10 * time.Minute, ToolTimeout: time.Minute, ParallelCalls: 8, MaxResultBytes: 1 << 20,
			MaxDeltaBytes: 256 << 10, MaxQueuedBytes: 1 << 20, StreamPatience: 10 * time.Second, DrainGrace: 1,
		},
	}
	p.traffic.changed = make(chan struct{})
	p.ready = sync.OnceFunc(p.startServices)
	for _, a := range agents {
		p.agents[a.Name] = a
	}
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *system) startServices() {
	var c state.Config
	must(p.t, config.Load(&c, append([]string{
		"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_SILENT_AFTER=" + silentAfter.String(),
		// Both are for several replicas.
		"HOLDFAST_STATE_CLAIM_POLL=1s", "HOLDFAST_STATE_STOP_POLL=1m",
	}, p.environ...)))
	service, err := state.New(p.context(), c, state.Peers{Log: p.log()})
	must(p.t, err)
	p.stateAPI = p.serve("state", service)
	p.logs.current = p.newLog(1)
}

// service is the state or the stream service.
type service interface {
	Register(r grpc.ServiceRegistrar)
	Run(ctx context.Context) error
	Close() error
}

// serve runs a service until the test ends, and connects to it.
func (p *system) serve(address string, s service) *grpc.ClientConn {
	server, err := rpc.NewServer(rpc.ServerConfig{Log: p.log()})
	must(p.t, err)
	s.Register(server)
	listener, err := p.network.Listen(p.context(), address)
	must(p.t, err)
	conn, err := rpc.Dial(p.network, address, rpc.ClientConfig{})
	must(p.t, err)
	ctx, stop := context.WithCancel(p.context())
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = rpc.Serve(ctx, server, listener, time.Second) })
	tasks.Go(func() { _ = s.Run(ctx) })
	p.t.Cleanup(func() {
		stop()
		tasks.Wait()
		_, _ = conn.Close(), s.Close()
	})
	return conn
}

// context does not end before the executors, which stop in the cleanup of the test.
func (p *system) context() context.Context { return context.WithoutCancel(p.t.Context()) }

// log writes to the output of the test, or to the system's own writer.
func (p *system) log() *slog.Logger {
	to := p.logTo
	if to == nil {
		to = output(p.t)
	}
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func output(t testing.TB) io.Writer { return t.Output() }

// executor is a worker with its connection to the services.
type executor struct {
	id         string
	worker     *worker.Worker
	connection *connection
	stop       context.CancelFunc // shuts it down
	ended      chan struct{}      // closed when it has ended
}

// open starts an executor, which stops at the end of the test.
func (p *system) open(decide ...func(call int, method string) verdict) *executor {
	p.t.Helper()
	p.ready()
	p.mu.Lock()
	p.executors++
	e := &executor{id: fmt.Sprintf("executor %d", p.executors), ended: make(chan struct{}), connection: &connection{system: p}}
	p.mu.Unlock()
	if len(decide) > 0 {
		e.connection.decide = decide[0]
	}
	agents := p.catalog
	if agents == nil {
		agents = catalog.Static(slices.Collect(maps.Values(p.agents)))
	}
	conn := faultyConn{e.connection}
	e.worker = worker.New(p.config, worker.Peers{
		ExecutorID: e.id,
		Work:       statev1.NewWorkServiceClient(conn),
		Sessions:   statev1.NewSessionServiceClient(conn),
		Runs:       statev1.NewRunServiceClient(conn),
		Files:      statev1.NewFileServiceClient(conn),
		Governors:  statev1.NewGovernorServiceClient(conn),
		Stream:     streamv2.NewStreamServiceClient(conn),
		Agents:     agents,
		HTTP:       p.http,
		Log:        p.log(),
		Tracer:     p.tracer,
		Now:        func() time.Time { return time.Now().Add(p.lead) },
		NewID:      func() string { return strings.ToLower(rand.Text()) },
		Jitter:     func() float64 { return 0 },
		Passed: func(ctx context.Context, point worker.Point) {
			if p.passed != nil {
				p.passed(ctx, e, point)
			}
		},
	})
	must(p.t, e.worker.Measure(p.meter))
	ctx, stop := context.WithCancel(p.t.Context())
	e.stop = stop
	go func() {
		defer close(e.ended)
		if err := e.worker.Run(ctx); err != nil {
			p.t.Errorf("Run = %v", err)
		}
	}()
	p.t.Cleanup(func() {
		stop()
		<-e.ended
	})
	return e
}

// tool returns a tool that counts its executions and calls do, if set. In a dead process it does nothing.
func (p *system) tool(name string, retry agent.Retry, do func(ctx context.Context, c *agent.Call) (any, error)) agent.Tool {
	return agent.Tool{Name: name, InputSchema: anyObject, Retry: retry, Execute: func(ctx context.Context, c *agent.Call) (any, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.mu.Lock()
		p.runs[c.ID]++
		if p.keys[c.ID] == nil {
			p.keys[c.ID] = map[string]bool{}
		}
		p.keys[c.ID][c.IdempotencyKey] = true
		p.mu.Unlock()
		if do != nil {
			return do(ctx, c)
		}
		return "done " + c.ID, nil
	}}
}

// executions returns how often tools ran, by call id.
func (p *system) executions() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.runs)
}

// until waits for the condition. It replaces the first executor after its death.
func (p *system) until(what string, condition func() bool) {
	p.t.Helper()
	deadline := time.After(time.Hour)
	for {
		changed := p.traffic.next()
		p.mu.Lock()
		replace := p.replace
		p.replace = false
		p.mu.Unlock()
		if replace {
			p.open()
		}
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // the state service may act by itself
		case <-deadline:
			for id := range p.logs.sessionIDs() {
				p.t.Logf("runs of %s: %v", id, p.runsOf(id))
			}
			p.t.Fatalf("waited an hour in vain until %s", what)
		}
	}
}

// end waits until the run has ended, with all immediate consequences.
func (p *system) end(runID string) *statev1.Run {
	p.t.Helper()
	var run *statev1.Run
	p.until(runID+" has ended", func() bool {
		run = p.run(runID)
		return !live(run)
	})
	synctest.Wait()
	return run
}
