package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
	"github.com/holdfast-run/holdfast/services/executor/internal/taskgroup"
)

// maxAbandoned is the most abandoned calls of one function or model that may still run. With so many, the
// function or model is not called.
const maxAbandoned = 32

// abandonedAfter is how long code may continue after its context before it counts as abandoned. modelGrace is
// how long the runner waits for a model after its context.
const (
	abandonedAfter = time.Second
	modelGrace     = 3 * time.Second
)

// eventsAhead is how many events a model may be ahead of the runner. With a few, several events at once cost no
// switch between their goroutines.
const eventsAhead = 4

// errTooLong ends the context of code after its time limit.
var errTooLong = errors.New("it did not end in time")

// crashError is the error of code after a panic, without a return, or without a call.
type crashError struct{ why string }

func (e crashError) Error() string { return e.why }

// errDidNotReturn is the error of code after the end of its goroutine.
var errDidNotReturn = crashError{"it did not return"}

// isCrash reports whether the error comes from the sandbox and not from the code itself.
func isCrash(err error) bool {
	_, ok := errors.AsType[crashError](err)
	return ok || errors.Is(err, errTooLong)
}

// sandbox runs the code of agents, except tools, with time limits and without panics. Safe for concurrent use.
type sandbox struct {
	log       *slog.Logger
	running   taskgroup.Group
	abandoned abandonedCalls
}

// callFunction calls a function of an agent; what names it. It returns soon after the limit or the end of ctx,
// with the cause, also if the function returns an error because of it. It abandons code that has not returned by then, and
// does not call a function with too many abandoned calls.
func callFunction[A any](ctx context.Context, s *sandbox, what string, limit time.Duration,
	f func(ctx context.Context) (A, error),
) (A, error) {
	var none A
	if err := s.abandoned.refuse(what); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	var answer A
	var err error = errDidNotReturn
	ended := make(chan struct{})
	s.running.Go(func() {
		defer close(ended)
		err = s.contain(ctx, what, func() (err error) {
			answer, err = f(ctx)
			return err
		})
	})
	select {
	case <-ended:
		if err != nil && ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		return answer, err
	case <-ctx.Done():
		s.abandon(ctx, what, ended)
		return none, context.Cause(ctx)
	}
}

// callReachable is callFunction for a function that may be in an application. It calls it again, until ctx ends, while the
// application cannot be reached.
func callReachable[A any](ctx context.Context, s *sandbox, what string, limit time.Duration, f func(ctx context.Context) (A, error),
) (answer A, err error) {
	var wait retry.Backoff
	for waited := false; ; waited = true {
		answer, err = callFunction(ctx, s, what, limit, f)
		if !errors.Is(err, catalog.ErrUnreachable) {
			return answer, err
		}
		if !waited {
			s.log.WarnContext(ctx, "a run waits for the application of its agent", "code", what, "error", err)
		}
		if err := wait.Sleep(ctx); err != nil {
			return answer, err
		}
	}
}

// contain turns panics into errors. It does not return if f ends its goroutine.
func (s *sandbox) contain(ctx context.Context, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "code of an agent panicked", "code", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = crashError{fmt.Sprintf("it panicked: %v", p)}
		}
	}()
	return f()
}

// abandon counts code beyond the end of its context, until the code ends.
func (s *sandbox) abandon(ctx context.Context, what string, ended <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	s.running.Go(func() {
		timer := time.NewTimer(abandonedAfter)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		n := s.abandoned.add(what, 1)
		s.log.WarnContext(ctx, "code of an agent continues after its context has ended", "code", what, "abandoned", n)
		<-ended
		s.abandoned.add(what, -1)
	})
}

// modelEvent is an event of a reply, or its failure.
type modelEvent struct {
	event model.Event
	err   error
}

// liveReply is a reply in progress.
type liveReply struct {
	events chan modelEvent // closed after the last one
	ended  chan struct{}   // closed when the model has returned
	err    error           // valid once events is closed
}

// startReply calls a model. The caller closes stop when it receives no more events.
func (s *sandbox) startReply(ctx context.Context, what string, engine model.Model, request model.Request, stop <-chan struct{}) *liveReply {
	reply := &liveReply{events: make(chan modelEvent, eventsAhead), ended: make(chan struct{}), err: errDidNotReturn}
	s.running.Go(func() {
		defer close(reply.events)
		defer close(reply.ended)
		reply.err = s.contain(ctx, what, func() error {
			for event, err := range engine.Generate(ctx, request) {
				select {
				case reply.events <- modelEvent{event, err}:
				case <-stop:
					return nil
				}
			}
			return nil
		})
	})
	return reply
}

// receiveReply calls a model and passes the events of its reply to each, until each returns an error. It
// abandons a model beyond the end of ctx or that error.
func (s *sandbox) receiveReply(ctx context.Context, what string, engine model.Model, request model.Request,
	each func(model.Event, error) error,
) error {
	if err := s.abandoned.refuse(what); err != nil {
		return modelFailure{&model.Error{Code: model.CodeUnavailable, Retryable: true, Message: err.Error()}}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	reply := s.startReply(ctx, what, engine, request, stop)
	for done, late := ctx.Done(), (<-chan time.Time)(nil); ; {
		select {
		case next, more := <-reply.events:
			if !more {
				return reply.err
			}
			if err := each(next.event, next.err); err != nil {
				s.abandon(ctx, what, reply.ended)
				return err
			}
		case <-done:
			timer := time.NewTimer(modelGrace)
			defer timer.Stop()
			done, late = nil, timer.C
		case <-late:
			s.abandon(ctx, what, reply.ended)
			return errTooLong
		}
	}
}

// abandonedCalls counts the running abandoned calls by the name of their code. The zero value has none. Safe for
// concurrent use.
type abandonedCalls struct {
	mu     sync.Mutex
	counts map[string]int
}

// add adds n to the count of the code, and returns the sum.
func (a *abandonedCalls) add(what string, n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	a.counts[what] += n
	total := a.counts[what]
	if total == 0 {
		delete(a.counts, what)
	}
	return total
}

// refuse returns an error for code with too many abandoned calls.
func (a *abandonedCalls) refuse(what string) error {
	if n := a.add(what, 0); n >= maxAbandoned {
		return crashError{fmt.Sprintf("it is not called: %d earlier calls of it have not ended although their time is up", n)}
	}
	return nil
}
