// Package process runs the tasks of one process and ends them together.
//
//	ctx ends ──────┐
//	a task fails ──┴──▶ the tasks' context ends ──┬── all have returned ──▶ Run returns
//	                                              └── the grace is over ──▶ Run returns and names the running tasks
//
// A task ends when its function returns. If it returns nil, the other tasks continue. A goroutine cannot be
// ended from outside, so after the grace Run abandons tasks that ignore their context; its caller should end the
// process.
package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Task is a part of the process. It runs until its context ends.
type Task struct {
	Name string // for error texts
	Run  func(context.Context) error
}

// Run runs all tasks and returns when they have ended. An error from a task ends the context of all others. When
// ctx ends or a task fails, the others have the grace to return; a grace of 0 does not wait.
//
// Run returns nil if every task returned nil or the error of its ended context. Otherwise it joins, in the order
// of their occurrence, the named errors of failed tasks and an error that names the tasks still running after
// the grace. A panic in a task ends the process.
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
			defer timer.Stop() // runs once, because stopping is nil afterwards
			late = timer.C
		case <-late:
			g.abandon(grace)
		}
	}
	return errors.Join(g.errs...)
}

// group holds the tasks of one Run. Except for ends, only Run's goroutine uses it.
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
		ends:    make(chan end, len(tasks)), // for all tasks, so an abandoned task can still end
	}
	for i, task := range tasks {
		g.running[i] = true
		go func() { g.ends <- end{i, task.Run(ctx)} }()
	}
	return g
}

// collect records the end of a task and reports whether it was without an error.
func (g *group) collect(ctx context.Context, e end) bool {
	g.running[e.task] = false
	g.left--
	if e.err == nil || ctx.Err() != nil && errors.Is(e.err, ctx.Err()) {
		return true
	}
	g.errs = append(g.errs, fmt.Errorf("%s: %w", g.tasks[e.task].Name, e.err))
	return false
}

// abandon gives up on the running tasks.
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
