// Package process runs the tasks of one process together, and ends them
// together.
//
//	ctx ends ──────┐
//	a task fails ──┴──▶ the tasks' context ends ──┬── all have returned ──▶ Run returns
//	                                              └── the grace is over ──▶ Run returns and names who still runs
//
// A task has ended when its function has returned; a task that returns nil is
// done, and the others go on. Nothing can end a goroutine from outside, so
// after the grace Run leaves behind the tasks that ignore their context: its
// caller is expected to end the process.
package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Task is a part of the process that runs until its context ends.
type Task struct {
	Name string // for people: errors name the task
	Run  func(context.Context) error
}

// Run runs all tasks at once and returns when they have ended. A task that
// returns an error ends the context of all others; one that returns nil does
// not. When ctx ends or a task fails, the others have the grace to return; a
// grace of 0 waits for nobody.
//
// Run returns nil when every task ended well, and a task that returns the error
// of its ended context did. Otherwise the error joins, in the order in which they
// happened, the error of each task that failed, with its name, and one that
// names the tasks that did not stop within the grace. A panic in a task ends the
// process.
func Run(ctx context.Context, grace time.Duration, tasks ...Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := start(ctx, tasks)

	stopping := ctx.Done()
	var late <-chan time.Time // nil until ctx ends
	for g.left > 0 {
		select {
		case e := <-g.ends:
			if !g.collect(ctx, e) {
				cancel()
			}
		case <-stopping:
			stopping = nil
			timer := time.NewTimer(grace)
			defer timer.Stop() // runs once: stopping is nil from here on
			late = timer.C
		case <-late:
			g.abandon(grace)
		}
	}
	return errors.Join(g.errs...)
}

// group is the tasks of one Run. Only Run's goroutine touches it, but for ends.
type group struct {
	tasks   []Task
	running []bool
	left    int
	errs    []error
	ends    chan end
}

type end struct {
	task int
	err  error
}

func start(ctx context.Context, tasks []Task) *group {
	g := &group{
		tasks:   tasks,
		running: make([]bool, len(tasks)),
		left:    len(tasks),
		ends:    make(chan end, len(tasks)), // room for all, so that a task that was left behind can still end
	}
	for i, task := range tasks {
		g.running[i] = true
		go func() { g.ends <- end{i, task.Run(ctx)} }()
	}
	return g
}

// collect notes the end of a task and reports whether it ended well.
func (g *group) collect(ctx context.Context, e end) bool {
	g.running[e.task] = false
	g.left--
	if e.err == nil || ctx.Err() != nil && errors.Is(e.err, ctx.Err()) {
		return true
	}
	g.errs = append(g.errs, fmt.Errorf("%s: %w", g.tasks[e.task].Name, e.err))
	return false
}

// abandon gives up on the tasks that still run.
func (g *group) abandon(grace time.Duration) {
	var names []string
	for i, running := range g.running {
		if running {
			names = append(names, g.tasks[i].Name)
		}
	}
	g.left = 0
	g.errs = append(g.errs, fmt.Errorf("not stopped within %v: %s", grace, strings.Join(names, ", ")))
}
