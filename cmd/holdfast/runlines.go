package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/agent"
)

// runLines prints a line for each run that ends or is suspended. Executors of other processes are not seen.
type runLines struct {
	mu  sync.Mutex
	out io.Writer
}

// The precision of durations in a line.
const (
	runPrecision = 10 * time.Millisecond
	timeOfDay    = "15:04:05"
)

// print is the hook of the executor after a run.
func (l *runLines) print(_ context.Context, h *agent.HookCall, end agent.RunEnd) {
	line := fmt.Sprintf("%s  %s  %s  %s, %d steps, %v", time.Now().Format(timeOfDay), cli.Clean(h.AgentType), cli.Clean(h.SessionID),
		end.Status, end.Steps, end.Duration.Round(runPrecision))
	if end.Code != "" {
		line += ": " + cli.Clean(end.Code)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintln(l.out, line) // a closed terminal must not affect runs
}
