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

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

// Codes of failures detected by the worker.
const (
	codeRunLost      = "framework_run_lost"
	codeRefused      = "framework_run_refused"
	codeTreeTooLarge = "framework_tree_too_large" // a step would begin too many sub-agents for its tree
)

// resolveTimeout bounds the time of a factory.
const resolveTimeout = time.Minute

// Bounds of the delay before another claim after the state service has refused the end of a run.
const (
	minRefusedDelay = 5 * time.Second
	maxRefusedDelay = 10 * time.Minute
)

var (
	// errDraining ends a runner between two steps when the executor stops.
	errDraining = errors.New("stopped between two steps")
	// errNoAgent means that this executor does not have the run's agent, or no longer.
	errNoAgent = errors.New("this executor does not serve the agent")
)

// runner executes one claim: it performs the planner's effects, one at a time. One goroutine owns it. The
// goroutines of tool calls use tools, never the runner.
type runner struct {
	worker   *Worker
	draining <-chan struct{} // closed when the executor stops
	log      *slog.Logger

	claim    *statev1.Claim
	claimed  claimedRun
	planner  *loop.Planner
	step     int32     // last committed step of the session
	stepTime time.Time // of the claim, or of the last commit since then
	branched bool      // the session is a branch without a step of its own

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

func newRunner(w *Worker, claim *statev1.Claim, s *stopper, draining <-chan struct{}) *runner {
	claimed := newClaimedRun(claim)
	if at := claim.GetClaimedAt(); at > 0 {
		claimed.lead = w.peers.Now().Sub(time.UnixMilli(at))
	}
	log := w.peers.Log.With("session", claimed.ref.GetSessionId(), "run", claimed.ref.GetRunId(), "epoch", claim.GetEpoch())
	usage := newAccount(claim.GetUsed(), log)
	r := &runner{
		worker: w, draining: draining, log: log,
		claim: claim, claimed: claimed, step: claimed.session.GetStepCount(), stepTime: w.peers.Now(),
		stopper: s, view: newView(claim, w.config, w.peers, log), usage: usage, writes: &stateWrites{},
		recorder: &recorder{worker: w, claimed: claimed, log: log, usage: usage, openStep: openStep(claim), subAgents: newSubAgentCalls(claim)},
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
	w := r.worker
	below := &companions{worker: w, claimed: r.claimed, agent: a.Agent, maxDepth: r.maxDepth(a.Agent)}
	a.Tools = slices.Concat(a.Tools, below.tools())
	r.code = &agentCode{worker: w, claimed: r.claimed, agent: a, draining: r.draining, log: r.log}
	r.hooks = &hookRunner{
		worker: w, claimed: r.claimed, hooks: a.Hooks, context: a.StepContext, stateSchema: w.tools.StateSchema(a.StateSchema),
		log: r.log, emitter: r.view.emitter, state: r.writes, usage: r.usage,
	}
	r.tools = &toolCaller{worker: w, claimed: r.claimed, hooks: r.hooks, recorder: r.recorder, view: r.view, log: r.log}
}

// run executes the run until it has ended, was released, or belongs to another executor.
func (r *runner) run(ctx context.Context) {
	ctx = telemetry.WithTraceparent(ctx, r.claimed.run.GetTraceparent(), r.claimed.run.GetTracestate())
	ctx, span := startRunSpan(ctx, r.worker.peers.Tracer, r.claimed, r.worker.config.TraceMetadata)
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
		failure := loop.InternalFailure(err)
		if fault.ReasonOf(err) == "TREE_TOO_LARGE" {
			failure = loop.Failure{Error: "The task needs more agents at once than are allowed.", Detail: err.Error(), Code: codeTreeTooLarge}
		}
		cause := err
		err = withoutPanics(ctx, r.log, func(ctx context.Context) error { return r.fail(ctx, failure) })
		if err != nil { // otherwise the end of the run is logged, with its cause
			r.log.ErrorContext(ctx, "the run cannot continue", "error", cause)
		}
	}
	r.release(ctx, err)
	patience := r.worker.config.StreamPatience
	if r.stopper.requested() {
		patience = min(stopPatience, patience)
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = r.view.publisher.Flush(bounded) // readers get the rest from the state service
}

// execute performs the planner's effects until the run has ended.
func (r *runner) execute(ctx context.Context) error {
	r.passed(ctx, PointClaimed)
	if isClosed(r.draining) {
		return errDraining
	}
	if losses, limit := int(r.claimed.run.GetLosses()), r.worker.config.MaxLosses; losses >= limit {
		return r.fail(ctx, loop.Failure{
			Error: "Something went wrong on our side.",
			Detail: fmt.Sprintf("executors were lost with the run %d times in a row, without a step committed in between; the limit is %d: "+
				"see what it does to its process", losses, limit),
			Code: codeRunLost,
		})
	}
	err := r.resolveAgent(ctx)
	if errors.Is(err, errNoAgent) {
		return r.endWithoutAgent(ctx)
	}
	if err != nil {
		return err
	}
	now := r.claimed.stateTime(r.worker.peers.Now())
	if deadline := r.claimed.deadline(r.code.agent.RunTimeout, now); !deadline.IsZero() {
		timer := time.AfterFunc(deadline.Sub(now), func() { r.stopper.request(loop.Stop{Kind: loop.StopDeadline}) })
		defer timer.Stop()
	}
	if err := r.view.showBegin(ctx, r.step); err != nil {
		return err
	}
	if r.code.agent.Remote != nil {
		return r.executeRemote(ctx)
	}
	start, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	interruptible, end := r.stopper.interruptible(ctx) // the hook may wait for its application
	refusal := r.hooks.beforeRun(interruptible, r.claimed.run.GetStepCount() > 0 || start.Journal != nil)
	end()
	r.planner = loop.New(start)
	if refusal != nil {
		return r.fail(ctx, *refusal)
	}
	if err := r.callEntryHooks(ctx, start.Journal); err != nil {
		return err
	}
	return r.performAll(ctx)
}

// resolveAgent finds the run's agent.
func (r *runner) resolveAgent(ctx context.Context) error {
	run := r.claimed.run
	wanted := catalog.For{
		AgentType: run.GetAgentType(), Tenant: r.claimed.ref.GetTenant(), SessionID: r.claimed.ref.GetSessionId(),
		RunID: run.GetRunId(), UserID: r.claimed.session.GetUserId(),
	}
	found, err := callFunction(ctx, r.worker.sandbox, r.claimed.codeName("the factory"), resolveTimeout,
		func(ctx context.Context) (catalog.Agent, error) {
			if hash := run.GetDefinition(); hash != "" {
				return r.worker.peers.Agents.ResolveStored(ctx, wanted, hash, r.loadDefinition)
			}
			return r.worker.peers.Agents.Resolve(ctx, wanted)
		})
	switch {
	case err == nil:
		found.Hooks = r.hooksFromAbove(found.Hooks)
		r.useAgent(found)
		return nil
	case ctx.Err() != nil:
		return err
	case fault.ReasonOf(err) == "AGENT_NOT_FOUND":
		return errNoAgent
	case isDefinitionGone(err):
		return err
	}
	return fmt.Errorf("make the agent %q: %w", run.GetAgentType(), err)
}

// hooksFromAbove returns the hooks of a run: those of the agents above it that are for their children, the root's first, and then
// its own.
func (r *runner) hooksFromAbove(own agent.Hooks) agent.Hooks {
	above := r.claim.GetAgentsAbove()
	if len(above) == 0 {
		return own
	}
	given := r.worker.peers.Agents.ChildHooks()
	for _, name := range above { // the parent's first
		if hooks, has := given[name]; has {
			own = hooks.Then(own)
		}
	}
	return own
}

// loadDefinition returns the definition of the run's stored agent.
func (r *runner) loadDefinition(ctx context.Context) (definition []byte, err error) {
	request := &statev1.GetDefinitionRequest{Run: r.claimed.ref, Hash: r.claimed.run.GetDefinition()}
	err = retry.Call(ctx, r.worker.config.CallTimeout, func(ctx context.Context) error {
		got, err := r.worker.peers.Work.GetDefinition(ctx, request)
		definition = []byte(got.GetDefinition())
		return err
	})
	return definition, err
}

// isDefinitionGone reports whether the stored agent of a run was changed or deleted after its claim. The next claim has the
// definition of its moment.
func isDefinitionGone(err error) bool { return fault.ReasonOf(err) == "DEFINITION_NOT_FOUND" }

// endWithoutAgent ends a run without its agent, if the run is to stop or its deadline has passed. Otherwise the
// run returns to the queue.
func (r *runner) endWithoutAgent(ctx context.Context) error {
	stop, ends := r.stopper.takeNew()
	now := r.claimed.stateTime(r.worker.peers.Now())
	if at := r.claimed.deadline(0, now); !ends && !at.IsZero() && !now.Before(at) {
		stop = loop.Stop{Kind: loop.StopDeadline}
		ends = true
	}
	if !ends {
		r.log.WarnContext(ctx, "the run's agent is not here; the run returns to the queue", "agent", r.claimed.run.GetAgentType())
		return errNoAgent
	}
	r.log.InfoContext(ctx, "the run ends early, without its agent", "kind", stop.Kind, "reason", stop.Reason)
	return r.giveUp(ctx, stop.Outcome())
}

// callEntryHooks calls the hooks without durable writes: the hooks of the run's begin in its first step, and with a
// journal the hooks after its reply, which it shows again. The journal already has the usage of all these hooks.
func (r *runner) callEntryHooks(ctx context.Context, journal *loop.Journal) error {
	counted := r.usage.mark()
	r.hooks.onBegin(ctx)
	if journal == nil {
		return nil
	}
	step := r.step + 1
	if err := r.view.showPlan(ctx, step, journal.Plan, r.planner); err != nil {
		return err
	}
	r.hooks.onRecovered(ctx, int(step), journal.Plan)
	r.usage.dropSince(counted)
	return nil
}

// passed calls Peers.Passed.
func (r *runner) passed(ctx context.Context, p Point) { r.worker.peers.Passed(ctx, p) }

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
		isLost(err) || isBehind(err) || isAnswerChanged(err) || isDefinitionGone(err)
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
		delay = r.worker.config.AbsentDelay
	case isAnswerChanged(err), isDefinitionGone(err): // the next claim has the current answers, or the current definition
	case cause == nil && isFenced: // if the claim is in force, the log is ahead of the database
		seen = &statev1.LostWork{Epoch: fenced.Epoch, Step: fenced.Step}
	case cause == nil && isBehind(err):
		seen = &statev1.LostWork{Epoch: r.claim.GetEpoch(), Step: r.step + 1}
	case cause != nil, isLost(err), errors.Is(err, publisher.ErrFenced):
		r.log.InfoContext(ctx, "the run belongs to another executor now", "error", err)
		return
	default:
		delay = min(minRefusedDelay<<min(max(r.claimed.run.GetAttempt()-1, 0), 10), maxRefusedDelay)
		r.log.ErrorContext(ctx, "the run could not be ended; it will be claimed again", "error", err, "delay", delay)
	}
	r.passed(ctx, PointReleasing)
	r.recorder.release(ctx, delay, seen)
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
