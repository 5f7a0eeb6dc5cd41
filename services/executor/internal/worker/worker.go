package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/remote"
	"github.com/holdfast-run/holdfast/services/executor/internal/taskgroup"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// Config has the limits and intervals of a worker. Only fields with a default may be 0.
type Config struct {
	Slots             int           // runs at once
	Spare             int           // slots beyond these, for tenants without a run in progress
	HeartbeatInterval time.Duration // between two heartbeats
	HeldInterval      time.Duration // between two heartbeats that list the owned runs
	CallTimeout       time.Duration // of one unary call to state or stream
	ModelTimeout      time.Duration // of one model call
	ToolTimeout       time.Duration // of a call of a tool without a timeout
	ParallelCalls     int           // calls of one step at once
	MaxCalls          int           // of one reply; 0 is loop.DefaultMaxCalls
	MaxResultBytes    int           // of one tool result
	PublicURL         string        // of the gateway, for results by callback; empty for none
	MaxDeltaBytes     int           // of one delta in the stream
	MaxQueuedBytes    int           // of pending chunks
	StreamPatience    time.Duration // how long a run waits for the stream tier before it continues without it
	DrainGrace        time.Duration // for the steps in flight at shutdown

	HookTimeout  time.Duration // of one call of a hook; 0 is 10 seconds
	GuardTimeout time.Duration // of one question to an agent's guard; 0 is a minute
	AbsentDelay  time.Duration // before the next claim of a run without its agent here; 0 is 5 seconds
	// MaxLosses is how many executors in a row may be lost with a run before the run fails; 0 is 5.
	MaxLosses int
	// RemotePatience is how long a remote agent may be unreachable; 0 is a minute. RemoteStopPatience is how long a
	// stop of one is repeated; 0 is 10 minutes.
	RemotePatience, RemoteStopPatience time.Duration
	// MaxDepth is the largest depth of a sub-agent in its tree, whose root has depth 0; 0 is 8.
	MaxDepth int
	// MaxCallFileBytes bounds the stored files of one model call, FileMemory those of all model calls at once, and
	// FileCacheBytes the files kept between calls, as data: URLs.
	MaxCallFileBytes, FileMemory, FileCacheBytes int64
	// MaxStateBytes bounds the state writes of one call or hook; 0 is agent.DefaultStateBytes.
	MaxStateBytes int
	// TraceContent are the kinds of contents in spans: ContentPrompts, ContentReplies, ContentTools. TraceMetadata are the keys of
	// a session's metadata in them.
	TraceContent, TraceMetadata []string
}

// The defaults of Config.
const (
	defaultHookTimeout  = 10 * time.Second
	defaultGuardTimeout = time.Minute
	defaultAbsentDelay  = 5 * time.Second
	defaultMaxLosses    = 5
	defaultMaxDepth     = 8

	defaultRemotePatience     = time.Minute
	defaultRemoteStopPatience = 10 * time.Minute
)

func (c Config) withDefaults() Config {
	c.HookTimeout = cmp.Or(c.HookTimeout, defaultHookTimeout)
	c.GuardTimeout = cmp.Or(c.GuardTimeout, defaultGuardTimeout)
	c.AbsentDelay = cmp.Or(c.AbsentDelay, defaultAbsentDelay)
	c.MaxLosses = cmp.Or(c.MaxLosses, defaultMaxLosses)
	c.MaxDepth = cmp.Or(c.MaxDepth, defaultMaxDepth)
	c.RemotePatience = cmp.Or(c.RemotePatience, defaultRemotePatience)
	c.RemoteStopPatience = cmp.Or(c.RemoteStopPatience, defaultRemoteStopPatience)
	return c
}

// Peers are the worker's dependencies. All fields but HTTP and Passed are required.
type Peers struct {
	ExecutorID string // unique to the process
	Work       statev1.WorkServiceClient
	Sessions   statev1.SessionServiceClient
	Runs       statev1.RunServiceClient
	Files      statev1.FileServiceClient
	Governors  statev1.GovernorServiceClient
	Stream     streamv2.StreamServiceClient
	Agents     catalog.Catalog
	HTTP       *http.Client // for remote agents; nil means one that passes on the trace context
	Log        *slog.Logger
	Tracer     trace.Tracer
	Now        func() time.Time
	NewID      func() string  // random, for the sessions of sub-agents
	Jitter     func() float64 // in [0, 1)
	// Passed is called at every point that a run passes: see the package comment. It may be nil.
	Passed func(ctx context.Context, p Point)
}

// Causes of a canceled run.
var (
	errDrained   = errors.New("the executor is stopping")
	errForgotten = errors.New("the state service has given the executor's runs to others")
)

// afterCancel is how long tools and functions of agents may take after the last runner.
const afterCancel = 2 * time.Second

// runnersAfterCancel is how long runners may take after they are canceled. They may have to abandon a model first, and
// release their run.
const runnersAfterCancel = 10 * time.Second

// Worker claims and executes runs.
type Worker struct {
	config Config
	peers  Peers
	tools  *tool.Runner

	runners taskgroup.Group
	sandbox *sandbox // for the code of agents
	files   *fileLoader
	govern  *governor
	freed   chan struct{} // one token when slots have become free
	meters  *meters       // nil measures nothing

	mu        sync.Mutex
	runs      map[string]*ownedRun // by run id
	active    int                  // runners
	free      int                  // free slots without a credit at the state service
	announced time.Time            // of the executor; zero before that
	reopen    func()               // ends the open claim stream
}

// ownedRun is a claim with its runner.
type ownedRun struct {
	runID   string
	cancel  context.CancelCauseFunc
	stopper *stopper
}

// New returns a worker. It starts with Run.
func New(c Config, p Peers) *Worker {
	if p.Passed == nil {
		p.Passed = func(context.Context, Point) {}
	}
	if p.HTTP == nil {
		p.HTTP = remote.NewHTTP()
	}
	return &Worker{
		config:  c.withDefaults(),
		peers:   p,
		tools:   &tool.Runner{Timeout: c.ToolTimeout, Log: p.Log},
		sandbox: &sandbox{log: p.Log},
		files:   newFileLoader(c, p.Files),
		govern:  newGovernor(c, p),
		freed:   make(chan struct{}, 1), // one token is enough: the sender sends all free slots
		runs:    map[string]*ownedRun{},
		reopen:  func() {},
	}
}

// Measure makes the worker measure. Call it before Run.
func (w *Worker) Measure(meter metric.Meter) (err error) {
	w.meters, err = newMeters(meter, func() int { return len(w.LiveRunIDs()) }, w.peers.Agents.Problems, w.config.Slots)
	w.govern.meters = w.meters
	return err
}

// LiveRunIDs returns the ids of the owned runs, sorted.
func (w *Worker) LiveRunIDs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.runs))
	for id := range w.runs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Run claims and executes runs until ctx ends. Then it drains (see the package comment), and returns nil when
// all its goroutines have ended. It abandons and logs code of agents that ignores its context.
func (w *Worker) Run(ctx context.Context) error {
	live, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var beats sync.WaitGroup
	beats.Go(func() { w.sendHeartbeats(live) })
	w.claimRuns(ctx, live)
	w.drain(end)
	beats.Wait()
	limit := time.Now().Add(afterCancel)
	if !w.tools.Wait(afterCancel) || !w.sandbox.running.Wait(time.Until(limit)) {
		w.peers.Log.WarnContext(ctx, "code of an agent has not ended with its context and is abandoned")
	}
	return nil
}

// drain waits for the runners and cancels them after the grace. It abandons runners that still do not end.
func (w *Worker) drain(end context.CancelCauseFunc) {
	defer end(errDrained)
	if w.runners.Wait(w.config.DrainGrace) {
		return
	}
	w.mu.Lock()
	for _, h := range w.runs {
		h.cancel(errDrained)
	}
	w.mu.Unlock()
	if !w.runners.Wait(runnersAfterCancel) {
		w.peers.Log.Error("runs have not ended with their context and are abandoned; other executors take them over", "runs", w.LiveRunIDs())
	}
}

// handle starts the runner of a claim, or passes a stop on. drain waits for the runner.
func (w *Worker) handle(ctx, live context.Context, work *statev1.ClaimRunsResponse) {
	if stop := work.GetStop(); stop != nil {
		w.passStop(stop.GetRunId(), stop.GetStop())
		return
	}
	claim := work.GetExecute()
	if claim == nil {
		w.peers.Log.ErrorContext(ctx, "the state service sent work of an unknown kind")
		return
	}
	live, cancel := context.WithCancelCause(live)
	h := &ownedRun{runID: claim.GetRun().GetRunId(), cancel: cancel, stopper: &stopper{}}
	w.mu.Lock()
	if former := w.runs[h.runID]; former != nil {
		former.cancel(errForgotten) // a newer claim: the former epoch has ended
	}
	w.runs[h.runID] = h
	w.active++
	w.mu.Unlock()
	w.runners.Go(func() {
		defer w.remove(h)
		newRunner(w, claim, h.stopper, ctx.Done()).run(live)
	})
}

// remove removes an ended runner.
func (w *Worker) remove(h *ownedRun) {
	h.cancel(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[h.runID] == h {
		delete(w.runs, h.runID)
	}
	w.active--
	w.free++
	select {
	case w.freed <- struct{}{}:
	default: // a token is there already
	}
}

// cancelForgotten cancels all runs: other executors own them now.
func (w *Worker) cancelForgotten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.runs {
		h.cancel(errForgotten)
	}
	clear(w.runs)
	w.announced = time.Time{}
	w.reopen()
}
