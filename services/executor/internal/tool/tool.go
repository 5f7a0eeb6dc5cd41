package tool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/crowd"
)

// Limits that hold where a runner or a scope names none.
const (
	defaultTimeout     = time.Minute
	defaultResultBytes = 1 << 20
	defaultAbandoned   = 32
)

// afterEnd is how long a tool has to return when its context has ended. One that
// does has ended: what it says counts.
const afterEnd = 100 * time.Millisecond

// maxErrorBytes bounds the text of an error.
const maxErrorBytes = 8 << 10

// Runner runs calls. Safe for concurrent use.
type Runner struct {
	Timeout time.Duration // where the tool names none; 0 means a minute
	Log     *slog.Logger
	// MaxAbandoned is how many calls of one tool may have been left behind, running,
	// before new ones are refused; 0 means 32.
	MaxAbandoned int

	calls     crowd.Crowd // with those left behind
	mu        sync.Mutex
	abandoned map[string]int // by tool
	schemas   schemas
}

// Scope is what a call may work with.
type Scope struct {
	// State is the custom state as of the step's begin. Nobody changes it any more.
	State agent.State
	// ResultBytes bounds the result, as JSON; 0 means a mebibyte.
	ResultBytes int
	// StateBytes bounds what the call changes of the state, as JSON; 0 means
	// agent.DefaultStateBytes.
	StateBytes int
	// Emit tells readers of the stream something, while the call runs: see agent.Host.
	// Nil drops it.
	Emit Emit
}

// Outcome is how a call ended.
type Outcome struct {
	// Result is for the model. Its error texts are valid UTF-8 and have no zero character.
	Result agent.ToolResult
	// Ops are those of a successful call. Usage is what was counted, however the call
	// ended.
	Ops   []agent.Op
	Usage []Usage
	// Begun says that the tool was entered.
	Begun bool
	// Cut says that the context of the caller ended before the tool had an end of its own:
	// Result means nothing, and there are no Ops.
	Cut bool
}

// Execute runs the call, and gives its end within the tool's time limit, also when
// the tool does not return. Every failure is a result for the model:
//
//   - an error of the tool, a panic, a result that is no JSON, does not fit the
//     output schema or is too large: a failed result
//   - the time limit: a synthetic failed result that says that nobody knows whether
//     the tool took effect
//   - too many calls of the tool were left behind: a synthetic failed result; the
//     tool was not entered
//
// When ctx ends, the call is Cut, unless the tool returns a value within a
// moment. The call's Host takes nothing any more when Execute has returned. What a tool
// still does then is waited for in Wait.
func (r *Runner) Execute(ctx context.Context, t agent.Tool, call *agent.Call, scope Scope) Outcome {
	key := call.AgentType + "/" + t.Name
	if n := r.left(key); n >= cmp.Or(r.MaxAbandoned, defaultAbandoned) {
		result := failed(t, call, fmt.Sprintf("the tool is not run: %d earlier calls of it have not ended although their time is up", n))
		result.Synthetic = true
		return Outcome{Result: result}
	}
	timeout := cmp.Or(max(t.Timeout, 0), r.Timeout, defaultTimeout)
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	host := NewHost(scope.State, scope.StateBytes, scope.Emit)
	scope.ResultBytes = cmp.Or(scope.ResultBytes, defaultResultBytes)
	one := *call
	one.Tool, one.Host = t.Name, host
	ends := make(chan agent.ToolResult, 1) // room for the one end, so that a late tool can still end
	r.calls.Go(func() { r.enterTool(inner, t, &one, scope.ResultBytes, ends) })
	result, ended := await(inner, ends)
	if !ended {
		r.abandon(ctx, key, call, ends)
	}
	ops, usage := host.End()
	outcome := Outcome{Result: result, Usage: usage, Begun: true}
	switch {
	case ended && result.Success:
		outcome.Ops = ops
	case ctx.Err() != nil:
		outcome.Cut = true
	case inner.Err() != nil:
		outcome.Result = timedOut(t, call, timeout)
	}
	return outcome
}

// await waits for the end of a tool, and a moment longer than its context.
func await(ctx context.Context, ends <-chan agent.ToolResult) (agent.ToolResult, bool) {
	select {
	case result := <-ends:
		return result, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(afterEnd)
	defer timer.Stop()
	select {
	case result := <-ends:
		return result, true
	case <-timer.C:
		return agent.ToolResult{}, false
	}
}

// enterTool runs the tool to its end, which it sends, whatever that is.
func (r *Runner) enterTool(ctx context.Context, t agent.Tool, call *agent.Call, maxBytes int, ends chan<- agent.ToolResult) {
	result := failed(t, call, "the tool has crashed") // where it does not return: runtime.Goexit leaves nothing to recover
	defer func() {
		if p := recover(); p != nil {
			r.Log.ErrorContext(ctx, "tool panicked", "tool", t.Name, "call", call.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		ends <- result
	}()
	value, err := t.Execute(ctx, call)
	if err != nil {
		result = failed(t, call, err.Error())
		return
	}
	result = r.result(t, call, value, maxBytes)
}

func failed(t agent.Tool, call *agent.Call, reason string) agent.ToolResult {
	if reason == "" {
		reason = "the tool failed without saying why"
	}
	return agent.ToolResult{CallID: call.ID, Name: t.Name, Error: clean(reason, maxErrorBytes)}
}

func timedOut(t agent.Tool, call *agent.Call, timeout time.Duration) agent.ToolResult {
	result := failed(t, call, fmt.Sprintf("the tool did not end within %v; it is not known whether it took effect", timeout))
	result.Synthetic = true
	return result
}

// clean makes a text of anywhere one that can be stored and sent, cut at the border
// of a character.
func clean(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
