package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxLeft is how many calls of one function or model of an agent may have been left behind,
// running, before it is not called any more.
const maxLeft = 32

// leftAfter is how long code has to end with its context before it counts as left behind,
// modelGrace how long the runner waits for a model to.
const (
	leftAfter  = time.Second
	modelGrace = 3 * time.Second
)

// errTooLong ends the context of code of the user that takes too long.
var errTooLong = errors.New("it did not end in time")

// errCrashed says that code of the user has come to no end of its own.
type errCrashed struct{ why string }

func (e errCrashed) Error() string { return e.why }

// errNoReturn stands where code has ended its goroutine.
var errNoReturn = errCrashed{"it did not return"}

// crashed reports whether an error is not the word of the code that was called.
func crashed(err error) bool {
	_, ok := errors.AsType[errCrashed](err)
	return ok || errors.Is(err, errTooLong)
}

// foreign runs code of the user, what names it: with a time limit, with panics as errors. It
// returns soon after the limit or the end of ctx, with the cause, also when the code does
// not: then that is left behind, and the worker's end waits for it a little. Where too much
// was left behind already the code is not called.
func foreign[A any](ctx context.Context, w *Worker, what string, limit time.Duration, f func(ctx context.Context) (A, error)) (A, error) {
	var none A
	if err := w.left.refuse(what); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	var answer A
	var err error = errNoReturn
	ended := make(chan struct{})
	w.foreign.Go(func() {
		defer close(ended)
		err = w.contain(ctx, what, func() (err error) {
			answer, err = f(ctx)
			return err
		})
	})
	select {
	case <-ended:
		return answer, err
	case <-ctx.Done():
		w.leave(ctx, what, ended)
		return none, context.Cause(ctx)
	}
}

// contain makes errors of panics. It does not return where f ends its goroutine.
func (w *Worker) contain(ctx context.Context, what string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			w.peers.Log.ErrorContext(ctx, "code of an agent panicked", "code", what, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errCrashed{fmt.Sprintf("it panicked: %v", p)}
		}
	}()
	return f()
}

// leave counts code that has not ended with its context, until it does.
func (w *Worker) leave(ctx context.Context, what string, ended <-chan struct{}) {
	ctx = context.WithoutCancel(ctx)
	w.foreign.Go(func() {
		timer := time.NewTimer(leftAfter)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
		}
		n := w.left.add(what, 1)
		w.peers.Log.WarnContext(ctx, "code of an agent goes on after its end", "code", what, "abandoned", n)
		<-ended
		w.left.add(what, -1)
	})
}

// listen gives each the events of a model's reply, and ends with the first error of it. A
// model that goes on when ctx has ended, or each wants no more, is left behind soon.
func (w *Worker) listen(ctx context.Context, what string, engine model.Model, request model.Request, each func(model.Event, error) error) error {
	if err := w.left.refuse(what); err != nil {
		return errModel{&model.Error{Code: model.CodeUnavailable, Retryable: true, Message: err.Error()}}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type spoken struct {
		event model.Event
		err   error
	}
	var end error = errNoReturn
	events, enough, ended := make(chan spoken), make(chan struct{}), make(chan struct{})
	w.foreign.Go(func() {
		defer close(ended)
		end = w.contain(ctx, what, func() error {
			for event, err := range engine.Generate(ctx, request) {
				select {
				case events <- spoken{event, err}:
				case <-enough:
					return nil
				}
			}
			return nil
		})
	})
	defer close(enough)
	for over, late := ctx.Done(), (<-chan time.Time)(nil); ; {
		select {
		case s := <-events:
			if err := each(s.event, s.err); err != nil {
				w.leave(ctx, what, ended)
				return err
			}
		case <-ended:
			return end
		case <-over:
			timer := time.NewTimer(modelGrace)
			defer timer.Stop()
			over, late = nil, timer.C
		case <-late:
			w.leave(ctx, what, ended)
			return errTooLong
		}
	}
}

// left counts what was left behind, by its name. The zero value has nothing. Safe for
// concurrent use.
type left struct {
	mu sync.Mutex
	n  map[string]int
}

// add gives how much it is then.
func (l *left) add(what string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[string]int{}
	}
	l.n[what] += n
	total := l.n[what]
	if total == 0 {
		delete(l.n, what)
	}
	return total
}

// refuse is the error of code that is not to be called any more, nil for other code.
func (l *left) refuse(what string) error {
	if n := l.add(what, 0); n >= maxLeft {
		return errCrashed{fmt.Sprintf("it is not called: %d earlier calls of it have not ended although their time is up", n)}
	}
	return nil
}
