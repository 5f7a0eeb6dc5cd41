package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

// runLines prints a line for each run that ends or is suspended, and for changes of the agents. Executors of other processes
// are not seen.
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

// printChange prints what has changed in the agents, with the mistakes that they have now.
func (l *runLines) printChange(c executor.RegistryChange) {
	now := time.Now().Format(timeOfDay)
	var text strings.Builder
	for _, names := range []struct {
		what  string
		names []string
	}{{"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		if len(names.names) > 0 {
			fmt.Fprintf(&text, "%s  agents %s: %s\n", now, names.what, cli.Clean(strings.Join(names.names, ", ")))
		}
	}
	for _, problem := range c.Problems {
		fmt.Fprintf(&text, "%s  out of service: %s\n", now, cli.Clean(problem))
	}
	if c.Problems != nil && len(c.Problems) == 0 {
		fmt.Fprintf(&text, "%s  no mistakes in the agents\n", now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.out, text.String()) // a closed terminal must not affect runs
}
