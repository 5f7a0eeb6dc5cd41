// Package tool runs one call of a tool: with a time limit, with panics caught,
// and with a result that the rest of the system can carry.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Runner runs calls. Safe for concurrent use.
type Runner struct {
	Timeout time.Duration // where the tool names none
	Log     *slog.Logger

	running sync.WaitGroup
}

// Run executes the call and gives its result, at most maxBytes of JSON; every
// failure is a result for the model, too. It returns soon after the time limit or the end of ctx, also when
// the tool does not; what such a tool still does is waited for in Wait. After the
// end of ctx the result means nothing.
func (r *Runner) Run(ctx context.Context, t agent.Tool, call agent.Call, maxBytes int) agent.ToolResult {
	timeout := t.Timeout
	if timeout <= 0 {
		timeout = r.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	results := make(chan agent.ToolResult, 1) // room for the one result, so that a late tool can still end
	r.running.Go(func() { results <- r.execute(ctx, t, call, maxBytes) })
	select {
	case result := <-results:
		if !result.Success && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return timedOut(t, call, timeout)
		}
		return result
	case <-ctx.Done():
		return timedOut(t, call, timeout)
	}
}

// Wait waits for the tools that have not ended with their context, and reports
// whether they have within the limit.
func (r *Runner) Wait(limit time.Duration) bool {
	ended := make(chan struct{})
	go func() { // left behind only when a tool never ends
		r.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}

func (r *Runner) execute(ctx context.Context, t agent.Tool, call agent.Call, maxBytes int) (result agent.ToolResult) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.ErrorContext(ctx, "tool panicked", "tool", t.Name, "call", call.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = failed(t, call, "the tool has crashed")
		}
	}()
	value, err := t.Execute(ctx, call)
	if err != nil {
		return failed(t, call, clip(err.Error(), maxBytes))
	}
	data, err := json.Marshal(value)
	if err != nil {
		return failed(t, call, clip("the tool's result cannot be written as JSON: "+err.Error(), maxBytes))
	}
	if len(data) > maxBytes {
		return failed(t, call, fmt.Sprintf("the tool's result has %d bytes, and at most %d can be kept; ask for less", len(data), maxBytes))
	}
	return agent.ToolResult{CallID: call.ID, Name: t.Name, Result: data, Success: true}
}

// clip keeps the text of an error within the limit of results.
func clip(text string, maxBytes int) string {
	if text == "" {
		return "the tool failed without saying why"
	}
	return text[:min(len(text), maxBytes)]
}

func failed(t agent.Tool, call agent.Call, reason string) agent.ToolResult {
	return agent.ToolResult{CallID: call.ID, Name: t.Name, Error: reason}
}

func timedOut(t agent.Tool, call agent.Call, timeout time.Duration) agent.ToolResult {
	result := failed(t, call, fmt.Sprintf("the tool did not end within %v; it is not known whether it took effect", timeout))
	result.Synthetic = true
	return result
}
