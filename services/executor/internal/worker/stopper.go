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

// isStop reports whether a stop, and nothing else, has cut an effect: ctx, the context of the
// run, has not ended.
func isStop(ctx context.Context, err error) bool {
	_, ok := errors.AsType[Stopped](err)
	return ok && ctx.Err() == nil
}

// cutByStop reports whether the context has ended because of a stop.
func cutByStop(ctx context.Context) bool {
	_, ok := errors.AsType[Stopped](context.Cause(ctx))
	return ok
}

// stopper passes stops to the runner of a run: requests to end it early. A stop cuts what is under
// way. Safe for concurrent use.
type stopper struct {
	mu     sync.Mutex
	stop   loop.Stop               // the strongest so far; without a kind there is none
	isNew  bool                    // the planner does not know it yet
	cancel context.CancelCauseFunc // of what is under way; nil where nothing is
}

// ranks orders stops: a stop that does not rank above the former one changes nothing.
var ranks = map[loop.StopKind]int{loop.StopInterrupt: 1, loop.StopDeadline: 2, loop.StopAbort: 3}

// request asks for the end of the run, and cuts what is under way.
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

// cuttable gives a context that a stop ends, with the cause Stopped. A context that begins while
// another one has not ended is inside of that, and has to end first. Where the planner does not
// know a stop yet, the context has ended already.
func (h *stopper) cuttable(ctx context.Context) (cuttable context.Context, end func()) {
	cuttable, cancel := context.WithCancelCause(ctx)
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
	return cuttable, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !ended {
			h.cancel, ended = outer, true
			cancel(nil)
		}
	}
}

// withGrace gives a context that ends stopPatience after a stop, with the cause Stopped. It is
// used in place of a context of within.
func (h *stopper) withGrace(ctx context.Context) (bounded context.Context, end func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	cuttable, endCuttable := h.cuttable(ctx)
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

func (h *stopper) kind() loop.StopKind {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop.Kind
}

// takeNew gives the stop that the planner does not know yet, once.
func (h *stopper) takeNew() (loop.Stop, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news := h.isNew
	h.isNew = false
	return h.stop, news
}

// requested reports whether the run is to end early.
func (h *stopper) requested() bool { return h.kind() != "" }

// toStop converts a requested stop; false where none is requested, or one of an unknown kind.
func toStop(s *statev1.Stop) (loop.Stop, bool) {
	kind, ok := stopKinds[s.GetKind()]
	return loop.Stop{Kind: kind, Reason: s.GetReason()}, ok
}

var stopKinds = map[statev1.StopKind]loop.StopKind{
	statev1.StopKind_STOP_KIND_INTERRUPT: loop.StopInterrupt,
	statev1.StopKind_STOP_KIND_ABORT:     loop.StopAbort,
}

// stopAt requests a stop at the deadline, until cancel is called. The zero time means never.
func (h *stopper) stopAt(deadline, now time.Time) (cancel func()) {
	if deadline.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(deadline.Sub(now), func() { h.request(loop.Stop{Kind: loop.StopDeadline}) })
	return func() { timer.Stop() }
}

// patience is how long the end of the run waits for the stream tier: the limit, or less where
// the run is to end early.
func (h *stopper) patience(limit time.Duration) time.Duration {
	if h.requested() {
		return min(stopPatience, limit)
	}
	return limit
}
