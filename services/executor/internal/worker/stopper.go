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

// stopPatience is how long a stopped run waits for the stream tier.
const stopPatience = time.Second

// Stopped is the cause of the contexts of models and tools of a stopped run. A timeout has another cause.
type Stopped struct{ Kind loop.StopKind }

func (e Stopped) Error() string { return fmt.Sprintf("the run is stopped: %s", e.Kind) }

// isStop reports whether a stop has interrupted an effect. If ctx, the context of the run, has ended, it has not.
func isStop(ctx context.Context, err error) bool {
	_, ok := errors.AsType[Stopped](err)
	return ok && ctx.Err() == nil
}

// canceledByStop reports whether a stop has ended the context.
func canceledByStop(ctx context.Context) bool {
	_, ok := errors.AsType[Stopped](context.Cause(ctx))
	return ok
}

// stopper passes stops (requests to end the run early) to the runner. A stop interrupts the effect in
// progress. Safe for concurrent use.
type stopper struct {
	mu     sync.Mutex
	stop   loop.Stop               // the strongest; no kind for none
	isNew  bool                    // not passed on to the planner
	cancel context.CancelCauseFunc // interrupts the effect in progress; nil without one
}

// ranks orders stops. Only a stop of a higher rank replaces the current one.
var ranks = map[loop.StopKind]int{loop.StopInterrupt: 1, loop.StopDeadline: 2, loop.StopAgentGone: 2, loop.StopAbort: 3}

// request stops the run and interrupts the effect in progress.
func (h *stopper) request(s loop.Stop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ranks[s.Kind] <= ranks[h.stop.Kind] {
		return
	}
	h.stop, h.isNew = s, true
	if h.cancel != nil {
		h.cancel(Stopped{s.Kind})
	}
}

// interruptible returns a context for an effect. A stop ends it with the cause Stopped. A stop not yet passed on to the
// planner has ended it already. Such contexts may be nested: the inner one must end first.
func (h *stopper) interruptible(ctx context.Context) (interruptible context.Context, end func()) {
	interruptible, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	outer := h.cancel
	h.cancel = func(cause error) {
		cancel(cause)
		if outer != nil {
			outer(cause)
		}
	}
	if h.isNew {
		cancel(Stopped{h.stop.Kind})
	}
	ended := false
	return interruptible, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !ended {
			h.cancel, ended = outer, true
			cancel(nil)
		}
	}
}

// withGrace returns a context that ends stopPatience after a stop, with the cause Stopped. It replaces a context
// of interruptible.
func (h *stopper) withGrace(ctx context.Context) (bounded context.Context, end func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	interruptible, endInterruptible := h.interruptible(ctx)
	expire := func() {
		timer := time.AfterFunc(stopPatience, func() { cancel(Stopped{h.kind()}) })
		context.AfterFunc(bounded, func() { timer.Stop() })
	}
	unwatch := func() bool { return true }
	if h.requested() {
		expire()
	} else {
		unwatch = context.AfterFunc(interruptible, expire)
	}
	return bounded, func() {
		unwatch()
		endInterruptible()
		cancel(nil)
	}
}

func (h *stopper) kind() loop.StopKind {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop.Kind
}

// hasNew reports whether there is a stop not yet passed on to the planner.
func (h *stopper) hasNew() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isNew
}

// takeNew returns a stop not yet passed on to the planner, once.
func (h *stopper) takeNew() (loop.Stop, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	isNew := h.isNew
	h.isNew = false
	return h.stop, isNew
}

// requested reports whether there is a stop.
func (h *stopper) requested() bool { return h.kind() != "" }

// toStop converts a stop. It reports false for none and for one of an unknown kind.
func toStop(s *statev1.Stop) (loop.Stop, bool) {
	kind, ok := stopKinds[s.GetKind()]
	return loop.Stop{Kind: kind, Reason: s.GetReason()}, ok
}

var stopKinds = map[statev1.StopKind]loop.StopKind{
	statev1.StopKind_STOP_KIND_INTERRUPT:  loop.StopInterrupt,
	statev1.StopKind_STOP_KIND_ABORT:      loop.StopAbort,
	statev1.StopKind_STOP_KIND_AGENT_GONE: loop.StopAgentGone,
}
