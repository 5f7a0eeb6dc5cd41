package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher"
)

// errStop ends a runner between two steps because the executor stops.
var errStop = errors.New("stopped between two steps")

// releaseTimeout bounds giving a run back, which happens when its context has
// ended already.
const releaseTimeout = 2 * time.Second

// A run whose end the state service refuses waits from the first to the last of these.
const (
	firstRefused = 5 * time.Second
	lastRefused  = 10 * time.Minute
)

// runner executes one claim. One goroutine owns it; the calls of a step
// use only what their comments name.
type runner struct {
	worker  *Worker
	claim   *statev1.Claim
	session *statev1.Session
	started *statev1.Run
	ref     *statev1.RunRef
	stop    <-chan struct{} // closed when the executor stops
	halt    *halt           // says when the run is to end early
	log     *slog.Logger
	planner *loop.Planner
	agent   Agent // of the run; the zero value before it is known
	// The trace and span of the run, which its continuation is told of.
	traceID, spanID string

	publisher *publisher.Publisher
	step      int32  // the last committed step of the session
	previous  string // the run that this one goes on from, as far as it is known
	once      once
	emitted   emitted
	opened    bool       // readers were shown how the run begins
	reply     shownReply // of the step in flight

	usage    *eventv1.Usage        // of the run, from its begin
	pending  []*statev1.UsageEntry // of the step in flight, not in the journal
	writes   writes                // to the custom state
	kept     kept                  // in the journal
	branched bool                  // the session has steps of the one that it was made from, and none of its own
	after    sync.WaitGroup        // of the hook of the run's end
}

func newRunner(w *Worker, claim *statev1.Claim, h *hold, stop <-chan struct{}) *runner {
	session, run := claim.GetSession(), claim.GetRun()
	r := &runner{
		worker: w, claim: claim, session: session, started: run, stop: stop, halt: h.halt,
		ref: &statev1.RunRef{
			Tenant: session.GetTenant(), SessionId: session.GetSessionId(), RunId: run.GetRunId(), Epoch: claim.GetEpoch(),
		},
		log:  w.peers.Log.With("session", session.GetSessionId(), "run", run.GetRunId(), "epoch", claim.GetEpoch()),
		step: session.GetStepCount(), previous: previousRun(claim),
	}
	r.used(claim.GetUsed())
	if stop, ok := toStop(run.GetStop()); ok {
		r.halt.request(stop)
	}
	r.publisher = newPublisher(w, claim, r)
	return r
}

// run works until the run has ended or is somebody else's.
func (r *runner) run(ctx context.Context) {
	ctx = telemetry.WithTraceparent(ctx, r.started.GetTraceparent(), r.started.GetTracestate())
	ctx, span := r.worker.peers.Tracer.Start(ctx, "holdfast.run", trace.WithAttributes(
		attribute.String("session.id", r.session.GetSessionId()),
		attribute.String("run.id", r.started.GetRunId()),
		attribute.String("agent.type", r.started.GetAgentType()),
		attribute.Int("turn", int(r.started.GetTurn())),
		attribute.Int("attempt", int(r.started.GetAttempt())),
	))
	defer span.End()
	if at := span.SpanContext(); at.IsValid() {
		r.traceID, r.spanID = at.TraceID().String(), at.SpanID().String()
	}

	publishing, endPublishing := context.WithCancel(ctx)
	var publish sync.WaitGroup
	publish.Go(func() { r.publisher.Run(publishing) })
	defer publish.Wait()
	defer endPublishing()
	defer r.after.Wait()

	err := r.guard(ctx, r.execute)
	if err != nil && !r.over(ctx, err) {
		span.SetStatus(codes.Error, err.Error())
		err = r.abandon(ctx, err)
	}
	r.leave(ctx, err)
	r.flush(ctx)
}

// guard makes errors of panics.
func (r *runner) guard(ctx context.Context, work func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(ctx, "the run panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return work(ctx)
}

// over reports whether the error says that the run is not this runner's any more,
// or not now.
func (r *runner) over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errStop) || errors.Is(err, errAbsent) || errors.Is(err, publisher.ErrFenced) ||
		lost(err) || answersChanged(err)
}

// lost reports whether the state service says that somebody else owns the run, or
// that there is nothing to own.
func lost(err error) bool {
	switch fault.ReasonOf(err) {
	case "EPOCH_STALE", "RUN_FINISHED", "SESSION_NOT_FOUND", "RUN_NOT_FOUND":
		return true
	}
	return false
}

// answersChanged reports whether a step has used an answer in whose place another one
// has come meanwhile.
func answersChanged(err error) bool { return fault.ReasonOf(err) == "ANSWER_CHANGED" }

// abandon ends a run that cannot go on as failed, so that no session stays active
// for ever.
func (r *runner) abandon(ctx context.Context, cause error) error {
	r.log.ErrorContext(ctx, "the run cannot go on", "error", cause)
	return r.guard(ctx, func(ctx context.Context) error { return r.fail(ctx, loop.InternalFailure(cause)) })
}

// fail ends the run as failed, whatever it is at.
func (r *runner) fail(ctx context.Context, failure loop.Failure) error {
	return r.quit(ctx, loop.Outcome{Status: loop.StatusFailed, FinishReason: model.FinishError, Failure: &failure})
}

// leave gives the run back where it is still this runner's.
func (r *runner) leave(ctx context.Context, err error) {
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(err, errStop), errors.Is(cause, errDrained):
		r.release(ctx, 0)
	case errors.Is(err, errAbsent):
		r.release(ctx, r.worker.config.AbsentDelay)
	case answersChanged(err):
		r.release(ctx, 0) // the next claim has the answers as they are
	case cause != nil, lost(err), errors.Is(err, publisher.ErrFenced):
		r.log.InfoContext(ctx, "the run is somebody else's now", "error", err)
	default:
		delay := refusedDelay(r.started.GetAttempt())
		r.log.ErrorContext(ctx, "the run could not be ended; it will be claimed again", "error", err, "delay", delay)
		r.release(ctx, delay)
	}
}

// refusedDelay is how long a run waits that could not even be ended, after so many claims.
func refusedDelay(claims int32) time.Duration {
	return min(firstRefused<<min(max(claims-1, 0), 10), lastRefused)
}

// release gives the run back, to be claimed again after the delay.
func (r *runner) release(ctx context.Context, delay time.Duration) {
	r.worker.passed(ctx, PointReleasing)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := r.withUsage(ctx, r.unplanned(ctx), func(usage []*statev1.UsageEntry) error {
		_, err := persist(ctx, r.worker.config.CallTimeout, func(ctx context.Context) (*statev1.ReleaseRunResponse, error) {
			return r.worker.peers.Work.ReleaseRun(ctx, &statev1.ReleaseRunRequest{Run: r.ref, DelayMs: delay.Milliseconds(), Usage: usage})
		})
		return err
	})
	if err != nil && !lost(err) {
		r.log.WarnContext(ctx, "the run could not be given back; it will be claimed again when the executor is missed", "error", err)
	}
}

// code names code of the run's agent.
func (r *runner) code(name string) string { return r.started.GetAgentType() + "/" + name }

// stopping reports whether the executor stops.
func (r *runner) stopping() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// call makes a call to the state service until its fate is known.
func call[A any](ctx context.Context, r *runner, f func(ctx context.Context) (A, error)) (A, error) {
	return persist(ctx, r.worker.config.CallTimeout, f)
}
