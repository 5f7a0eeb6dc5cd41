package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// stopPatience is how long a run that was asked to stop waits for the stream tier.
const stopPatience = time.Second

// Stopped is the cause with which the contexts of models and tools end when their run
// is to end early; a timeout has another one.
type Stopped struct{ Kind loop.StopKind }

func (e Stopped) Error() string { return fmt.Sprintf("the run is stopped: %s", e.Kind) }

// isStop reports whether an effect was cut by a stop, and by nothing else: the context
// of the run, ctx, goes on.
func isStop(ctx context.Context, err error) bool {
	_, ok := errors.AsType[Stopped](err)
	return ok && ctx.Err() == nil
}

// cutByStop reports whether the context has ended because of a stop.
func cutByStop(ctx context.Context) bool {
	_, ok := errors.AsType[Stopped](context.Cause(ctx))
	return ok
}

// halt is where a runner hears that its run is to end early. Safe for concurrent use.
type halt struct {
	mu   sync.Mutex
	stop loop.Stop               // the strongest so far; without a kind there is none
	news bool                    // the planner does not know it yet
	cut  context.CancelCauseFunc // of what is under way; nil where nothing is
}

// ranks orders stops: one that is not above the former changes nothing.
var ranks = map[loop.StopKind]int{loop.StopInterrupt: 1, loop.StopDeadline: 2, loop.StopAbort: 3}

// request asks for the end of the run, and cuts what is under way.
func (h *halt) request(s loop.Stop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ranks[s.Kind] <= ranks[h.stop.Kind] {
		return
	}
	h.stop, h.news = s, true
	if h.cut != nil {
		h.cut(Stopped{s.Kind})
	}
}

// within gives a context that a stop ends, with the cause Stopped. One that begins while
// another one has not ended is inside of it, and has to end first. It has ended already where
// the planner has to be told of a stop first.
func (h *halt) within(ctx context.Context) (cuttable context.Context, end func()) {
	cuttable, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	outer := h.cut
	h.cut = func(cause error) {
		cancel(cause)
		if outer != nil {
			outer(cause)
		}
	}
	if h.news {
		cancel(Stopped{h.stop.Kind})
	}
	return cuttable, sync.OnceFunc(func() {
		h.mu.Lock()
		h.cut = outer
		h.mu.Unlock()
		cancel(nil)
	})
}

// outlasting gives a context that ends stopPatience after a stop, with the cause Stopped.
// Meanwhile it takes the place of the one of within.
func (h *halt) outlasting(ctx context.Context) (bounded context.Context, end func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	cuttable, endCuttable := h.within(ctx)
	expire := func() {
		timer := time.AfterFunc(stopPatience, func() { cancel(Stopped{h.kind()}) })
		context.AfterFunc(bounded, func() { timer.Stop() })
	}
	unwatch := func() bool { return true }
	if h.requested() {
		expire()
	} else {
		unwatch = context.AfterFunc(cuttable, expire)
	}
	return bounded, func() {
		unwatch()
		endCuttable()
		cancel(nil)
	}
}

func (h *halt) kind() loop.StopKind {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop.Kind
}

// take gives the stop that the planner is to be told of, once.
func (h *halt) take() (loop.Stop, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.news
	h.news = false
	return h.stop, news
}

// requested reports whether the run is to end early.
func (h *halt) requested() bool { return h.kind() != "" }

// toStop is the stop that somebody has asked for; false where nobody has, or for
// something that this executor does not know.
func toStop(s *statev1.Stop) (loop.Stop, bool) {
	kind, ok := stopKinds[s.GetKind()]
	return loop.Stop{Kind: kind, Reason: s.GetReason()}, ok
}

var stopKinds = map[statev1.StopKind]loop.StopKind{
	statev1.StopKind_STOP_KIND_INTERRUPT: loop.StopInterrupt,
	statev1.StopKind_STOP_KIND_ABORT:     loop.StopAbort,
}

// patience is how long the end of the run waits for the stream tier.
func (r *runner) patience() time.Duration {
	if r.halt.requested() {
		return min(stopPatience, r.worker.config.StreamPatience)
	}
	return r.worker.config.StreamPatience
}

// stopRun lets the run end early where the worker holds it.
func (w *Worker) stopRun(runID string, stop *statev1.Stop) {
	s, ok := toStop(stop)
	if !ok {
		return
	}
	w.mu.Lock()
	h := w.held[runID]
	w.mu.Unlock()
	if h != nil {
		h.halt.request(s)
	}
}

// timed lets the run end at its deadline, until end is called.
func (r *runner) timed() (end func()) {
	deadline := r.deadline()
	if deadline.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(deadline.Sub(r.worker.peers.Now()), func() { r.halt.request(loop.Stop{Kind: loop.StopDeadline}) })
	return func() { timer.Stop() }
}

// deadline is when the run has to be over: the earlier of its own and its agent's.
// Zero for never.
func (r *runner) deadline() time.Time {
	var deadline time.Time
	if at := r.started.GetDeadlineAt(); at > 0 {
		deadline = time.UnixMilli(at)
	}
	if limit := r.agent.RunTimeout; limit > 0 {
		begin := r.worker.peers.Now()
		if at := r.started.GetStartedAt(); at > 0 {
			begin = time.UnixMilli(at)
		}
		if end := begin.Add(limit); deadline.IsZero() || end.Before(deadline) {
			deadline = end
		}
	}
	return deadline
}

// noticeStop tells the planner of a stop that it does not know, and reports whether there was
// one. reply is what has come of the model call that was cut, if any.
func (r *runner) noticeStop(ctx context.Context, reply *loop.Reply) bool {
	stop, ok := r.halt.take()
	if !ok {
		return false
	}
	r.log.InfoContext(ctx, "the run ends early", "kind", stop.Kind, "reason", stop.Reason)
	r.worker.passed(ctx, PointStopSeen)
	r.planner.Stopped(stop, reply)
	return true
}
