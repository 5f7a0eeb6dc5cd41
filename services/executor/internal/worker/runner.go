package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// errDraining ends a runner between two steps when the executor stops.
var errDraining = errors.New("stopped between two steps")

// Bounds of the delay before another claim after the state service has refused the end of a run.
const (
	minRefusedDelay = 5 * time.Second
	maxRefusedDelay = 10 * time.Minute
)

// runner executes one claim: it performs the planner's effects, one at a time. One goroutine owns it. The
// goroutines of tool calls use tools, never the runner.
type runner struct {
	config   Config
	peers    Peers
	sandbox  *sandbox        // the worker's
	files    *fileLoader     // the worker's
	govern   *governor       // the worker's
	runTool  *tool.Runner    // the worker's
	draining <-chan struct{} // closed when the executor stops
	meters   *meters         // the worker's
	log      *slog.Logger

	claim   *statev1.Claim
	claimed claimedRun
	planner *loop.Planner
	step    int32 // last committed step of the session
	// stepBegan is the time of the claim, or of the last commit since then.
	stepBegan time.Time
	branched  bool // see conversation.branched

	stopper  *stopper
	view     *view
	recorder *recorder
	usage    *account
	writes   *stateWrites
	// Of the run's agent: see useAgent.
	code  *agentCode
	hooks *hookRunner
	tools *toolCaller
}

func newRunner(w *Worker, claim *statev1.Claim, h *stopper, stop <-chan struct{}) *runner {
	claimed := newClaimedRun(claim)
	if at := claim.GetClaimedAt(); at > 0 {
		claimed.lead = w.peers.Now().Sub(time.UnixMilli(at))
	}
	log := w.peers.Log.With("session", claimed.ref.GetSessionId(), "run", claimed.ref.GetRunId(), "epoch", claim.GetEpoch())
	usage := newAccount(claim.GetUsed(), log)
	r := &runner{
		config: w.config, peers: w.peers, sandbox: w.sandbox, files: w.files, govern: w.govern, runTool: w.tools, draining: stop, meters: w.meters, log: log,
		claim: claim, claimed: claimed, step: claimed.session.GetStepCount(), stepBegan: w.peers.Now(),
		stopper: h, view: newView(claim, w.config, w.peers, log), usage: usage, writes: &stateWrites{},
		recorder: &recorder{
			work: w.peers.Work, ref: claimed.ref, timeout: w.config.CallTimeout, now: func() time.Time { return claimed.stateTime(w.peers.Now()) }, log: log, usage: usage, openStep: openStep(claim),
			subAgents: newSubAgentCalls(claim), deadline: claimed.run.GetDeadlineAt(),
		},
	}
	r.useAgent(catalog.Agent{})
	if stop, ok := toStop(claimed.run.GetStop()); ok {
		r.stopper.request(stop)
	}
	return r
}

// useAgent makes the parts of the run's agent. Before the agent is known they have the zero Agent,
// without hooks.
func (r *runner) useAgent(a catalog.Agent) {
	below := &companions{
		claimed: r.claimed, agent: a.Agent, maxDepth: r.maxDepth(a.Agent), runs: r.peers.Runs, sessions: r.peers.Sessions,
		timeout: r.config.CallTimeout, now: r.peers.Now,
	}
	a.Tools = slices.Concat(a.Tools, below.tools())
	r.code = &agentCode{
		claimed: r.claimed, agent: a, sandbox: r.sandbox, files: r.files, govern: r.govern, draining: r.draining, tracer: r.peers.Tracer, log: r.log, passed: r.peers.Passed, meters: r.meters, now: r.peers.Now,
		modelTimeout: r.config.ModelTimeout, guardTimeout: r.config.GuardTimeout, hookTimeout: r.config.HookTimeout,
	}
	r.hooks = &hookRunner{
		claimed: r.claimed, hooks: a.Hooks, sandbox: r.sandbox, timeout: r.config.HookTimeout, stateBytes: r.config.MaxStateBytes,
		stateSchema: r.runTool.StateSchema(a.StateSchema), now: r.peers.Now, log: r.log, emitter: r.view.emitter, state: r.writes, usage: r.usage,
	}
	r.tools = &toolCaller{
		claimed: r.claimed, tools: r.runTool, hooks: r.hooks, recorder: r.recorder, view: r.view, tracer: r.peers.Tracer,
		now: r.peers.Now, log: r.log, passed: r.peers.Passed, meters: r.meters,
		parallel: r.config.ParallelCalls, resultBytes: r.config.MaxResultBytes, stateBytes: r.config.MaxStateBytes,
	}
}

// run executes the run until it has ended, was released, or belongs to another executor.
func (r *runner) run(ctx context.Context) {
	ctx = telemetry.WithTraceparent(ctx, r.claimed.run.GetTraceparent(), r.claimed.run.GetTracestate())
	ctx, span := startRunSpan(ctx, r.peers.Tracer, r.claimed)
	defer span.End()

	publishing, endPublishing := context.WithCancel(ctx)
	var publish sync.WaitGroup
	publish.Go(func() { r.view.publisher.Run(publishing) })
	defer publish.Wait()
	defer endPublishing()
	defer func() { r.hooks.wait() }()

	err := withoutPanics(ctx, r.log, r.execute)
	if err != nil && !mustLeave(ctx, err) {
		span.SetStatus(codes.Error, err.Error())
		cause := err
		err = withoutPanics(ctx, r.log, func(ctx context.Context) error { return r.fail(ctx, failureOf(cause)) })
		if err != nil { // otherwise the end of the run is logged, with its cause
			r.log.ErrorContext(ctx, "the run cannot continue", "error", cause)
		}
	}
	r.release(ctx, err)
	bounded, cancel := context.WithTimeout(ctx, r.stopper.patience(r.config.StreamPatience))
	defer cancel()
	_ = r.view.publisher.Flush(bounded) // readers get the rest from the state service
}

// codeTreeTooLarge is the code of a run whose step would begin too many sub-agents for its tree.
const codeTreeTooLarge = "framework_tree_too_large"

// failureOf returns the failure of a run that cannot continue.
func failureOf(err error) loop.Failure {
	if fault.ReasonOf(err) == "TREE_TOO_LARGE" {
		return loop.Failure{Error: "The task needs more agents at once than are allowed.", Detail: err.Error(), Code: codeTreeTooLarge}
	}
	return loop.InternalFailure(err)
}

// withoutPanics turns panics into errors.
func withoutPanics(ctx context.Context, log *slog.Logger, work func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "the run panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return work(ctx)
}

// mustLeave reports whether the run is no longer this runner's, or is to be released.
func mustLeave(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errDraining) || errors.Is(err, errNoAgent) || errors.Is(err, publisher.ErrFenced) ||
		isLost(err) || isBehind(err) || isAnswerChanged(err)
}

// fail ends the run as failed, in any state.
func (r *runner) fail(ctx context.Context, failure loop.Failure) error {
	return r.giveUp(ctx, loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &failure})
}

// release releases the run if it is still this runner's.
func (r *runner) release(ctx context.Context, err error) {
	delay := time.Duration(0)
	var seen *statev1.LostWork
	fenced, isFenced := errors.AsType[*publisher.FencedError](err)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return
	case errors.Is(err, errDraining), errors.Is(cause, errDrained):
	case errors.Is(err, errNoAgent):
		delay = r.config.AbsentDelay
	case isAnswerChanged(err): // the next claim has the current answers
	case cause == nil && isFenced: // if the claim is in force, the log is ahead of the database
		seen = &statev1.LostWork{Epoch: fenced.Epoch, Step: fenced.Step}
	case cause == nil && isBehind(err):
		seen = &statev1.LostWork{Epoch: r.claim.GetEpoch(), Step: r.step + 1}
	case cause != nil, isLost(err), errors.Is(err, publisher.ErrFenced):
		r.log.InfoContext(ctx, "the run belongs to another executor now", "error", err)
		return
	default:
		delay = refusedDelay(r.claimed.run.GetAttempt())
		r.log.ErrorContext(ctx, "the run could not be ended; it will be claimed again", "error", err, "delay", delay)
	}
	r.peers.Passed(ctx, PointReleasing)
	r.recorder.release(ctx, delay, seen)
}

// refusedDelay returns the delay before the next claim after a refused end.
func refusedDelay(claims int32) time.Duration {
	return min(minRefusedDelay<<min(max(claims-1, 0), 10), maxRefusedDelay)
}

// isClosed reports whether the channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
