package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// house is the services around an executor, on a network of their own. It is
// made for a synctest bubble.
type house struct {
	t       testing.TB
	network *rpc.Memory
	state   *fakeState
	stream  *fakeStream
	agents  map[string]worker.Agent
	tracer  trace.Tracer
	config  worker.Config
	workers int
	catalog worker.Catalog // nil: the agents
	passed  func(ctx context.Context, e *executor, p worker.Point)
}

func newHouse(t testing.TB, agents ...worker.Agent) *house {
	t.Helper()
	h := &house{
		t: t, network: rpc.NewMemory(), state: newFakeState(), agents: map[string]worker.Agent{},
		tracer: noop.NewTracerProvider().Tracer(""),
		config: worker.Config{
			Slots: 4, HeartbeatInterval: 500 * time.Millisecond, HeldInterval: 15 * time.Second, CallTimeout: 5 * time.Second,
			ModelTimeout: 10 * time.Minute, ToolTimeout: time.Minute, ParallelCalls: 8, MaxResultBytes: 1 << 20,
			MaxDeltaBytes: 256 << 10, MaxQueuedBytes: 1 << 20, StreamPatience: 10 * time.Second, DrainGrace: 5 * time.Second,
		},
	}
	h.stream = &fakeStream{state: h.state}
	for _, a := range agents {
		h.agents[a.Name] = a
	}
	h.serve("state", func(s grpc.ServiceRegistrar) {
		statev1.RegisterWorkServiceServer(s, h.state)
		statev1.RegisterSessionServiceServer(s, h.state)
	})
	h.serve("stream", func(s grpc.ServiceRegistrar) { streamv2.RegisterStreamServiceServer(s, h.stream) })
	return h
}

func (h *house) serve(address string, register func(grpc.ServiceRegistrar)) {
	h.t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		h.t.Fatal(err)
	}
	register(server)
	listener, err := h.network.Listen(h.t.Context(), address)
	if err != nil {
		h.t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	h.t.Cleanup(server.Stop)
}

// executor is a worker with its line to the services.
type executor struct {
	id     string
	worker *worker.Worker
	line   *line
	stop   context.CancelFunc // asks it to stop
	ended  chan struct{}      // closed when it has
}

// open starts a worker, which the test's end stops.
func (h *house) open(faults ...func(call int, method string) verdict) *executor {
	h.t.Helper()
	h.workers++
	id := fmt.Sprintf("executor %d", h.workers)
	l := &line{}
	if len(faults) > 0 {
		l.decide = faults[0]
	}
	state, stream := h.dial("state"), h.dial("stream")
	e := &executor{id: id, line: l, ended: make(chan struct{})}
	catalog := h.catalog
	if catalog == nil {
		catalog = worker.Static(slices.Collect(maps.Values(h.agents)))
	}
	e.worker = worker.New(h.config, worker.Peers{
		ExecutorID: id,
		Work:       statev1.NewWorkServiceClient(faulty{state, l}),
		Sessions:   statev1.NewSessionServiceClient(faulty{state, l}),
		Stream:     streamv2.NewStreamServiceClient(faulty{stream, l}),
		Agents:     catalog,
		Log:        slog.New(slog.NewTextHandler(testOutput(h.t), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Tracer:     h.tracer,
		Now:        time.Now,
		Jitter:     func() float64 { return 0 },
		Passed: func(ctx context.Context, p worker.Point) {
			if h.passed != nil {
				h.passed(ctx, e, p)
			}
		},
	})
	ctx, stop := context.WithCancel(h.t.Context())
	e.stop = stop
	go func() {
		defer close(e.ended)
		if err := e.worker.Run(ctx); err != nil {
			h.t.Errorf("Run = %v", err)
		}
	}()
	h.t.Cleanup(func() {
		stop()
		<-e.ended
	})
	return e
}

// testOutput shows what executors log when the test fails.
func testOutput(t testing.TB) io.Writer { return t.Output() }

func (h *house) dial(address string) *grpc.ClientConn {
	h.t.Helper()
	conn, err := rpc.Dial(h.network, address, rpc.ClientConfig{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ended waits until the run is over and everything that follows at once has come, and
// gives it.
func (h *house) ended(runID string) *statev1.Run {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Hour)
	defer cancel()
	var run *statev1.Run
	err := h.state.await(ctx, func() bool {
		found := h.state.find(runID)
		run = found.run
		return !found.live()
	})
	if err != nil {
		h.t.Fatalf("run %s does not end: %v", runID, run)
	}
	synctest.Wait()
	return run
}

// verdict is what happens to a call.
type verdict int

const (
	pass verdict = iota
	failBefore
	failAfter
	dieBefore
	dieAfter
)

// line is what calls of one executor pass through: where they are counted and
// fail.
type line struct {
	mu     sync.Mutex
	calls  int
	dead   bool
	onDead func()
	cut    []context.CancelFunc
	decide func(call int, method string) verdict
}

// faulty passes calls on as the line decides.
type faulty struct {
	grpc.ClientConnInterface
	line *line
}

var errLine = fault.New(fault.Unavailable, "UNAVAILABLE", "the line is broken")

func (f faulty) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	v := f.line.next(method)
	if v == failBefore || v == dieBefore {
		f.line.end(v)
		return errLine
	}
	err := f.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	if v == failAfter || v == dieAfter {
		f.line.end(v)
		return errLine
	}
	return err
}

func (f faulty) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	f.line.mu.Lock()
	defer f.line.mu.Unlock()
	if f.line.dead {
		cancel()
		return nil, errLine
	}
	f.line.cut = append(f.line.cut, cancel)
	return f.ClientConnInterface.NewStream(ctx, desc, method, options...)
}

// next counts the call. Heartbeats do not count: they come by the clock.
func (l *line) next(method string) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return failBefore
	}
	if strings.HasSuffix(method, "/Heartbeat") {
		return pass
	}
	l.calls++
	if l.decide == nil {
		return pass
	}
	return l.decide(l.calls, method[strings.LastIndexByte(method, '/')+1:])
}

func (l *line) end(v verdict) {
	if v == dieBefore || v == dieAfter {
		l.kill()
	}
}

// kill cuts everything: the services never hear of this executor again.
func (l *line) kill() {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return
	}
	l.dead = true
	for _, cancel := range l.cut {
		cancel()
	}
	onDead := l.onDead
	l.mu.Unlock()
	if onDead != nil {
		onDead()
	}
}

// mind is a model made of a function.
type mind func(ctx context.Context, r model.Request, say func(model.Event) bool) error

func (m mind) Generate(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		stopped := false
		err := m(ctx, r, func(e model.Event) bool {
			stopped = stopped || !yield(e, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// speak is a reply of texts.
func speak(say func(model.Event) bool, texts ...string) {
	for _, text := range texts {
		if !say(model.TextDelta{Text: text}) {
			return
		}
	}
	say(model.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15})
	say(model.Finish{Reason: model.FinishStop})
}

// request is a reply of calls: name, arguments, name, arguments, …
func request(say func(model.Event) bool, calls ...string) {
	for i := 0; i < len(calls); i += 2 {
		say(model.CallStart{Index: i, ID: fmt.Sprintf("call_%d", i/2), Name: calls[i]})
		say(model.CallDelta{Index: i, Text: calls[i+1]})
		say(model.CallEnd{Index: i, Arguments: json.RawMessage(calls[i+1])})
	}
	say(model.Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15})
	say(model.Finish{Reason: model.FinishToolCalls})
}

// answered reports whether the conversation ends with results of calls.
func answered(r model.Request) bool { return r.Messages[len(r.Messages)-1].Role == agent.RoleTool }

func definition(name string, m model.Model, tools ...agent.Tool) worker.Agent {
	return worker.Agent{Agent: agent.Agent{Name: name, Model: "fake/mind", SystemPrompt: "Be brief.", Tools: tools}, Models: map[string]model.Model{"fake/mind": m}}
}

var anyObject = json.RawMessage(`{"type": "object"}`)
