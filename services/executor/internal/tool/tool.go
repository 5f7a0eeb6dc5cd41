package tool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/taskgroup"
)

// Defaults of a runner's and a scope's limits.
const (
	defaultTimeout     = time.Minute
	defaultResultBytes = 1 << 20
	defaultAbandoned   = 32
)

// afterEnd is how long a tool has to return after its context ended. A result within that time counts.
const afterEnd = 100 * time.Millisecond

// maxErrorBytes limits an error text.
const maxErrorBytes = 8 << 10

// Runner runs calls. Safe for concurrent use.
type Runner struct {
	Timeout time.Duration // the default of a tool's time limit; 0 means a minute
	Log     *slog.Logger
	// MaxAbandoned is the number of abandoned, still running calls per tool before new ones are refused; 0 means
	// 32.
	MaxAbandoned int

	calls     taskgroup.Group // including abandoned ones
	mu        sync.Mutex
	abandoned map[string]int // by tool
	schemas   agent.SchemaCache
}

// StateSchema compiles the schema of an agent's custom state. It is nil for nil.
func (r *Runner) StateSchema(raw json.RawMessage) *agent.Schema {
	if raw == nil {
		return nil
	}
	schema, err := r.schemas.Compile(raw)
	if err != nil { // the catalog has no such agent
		return nil
	}
	return schema
}

// Scope is the input of a call.
type Scope struct {
	// State is the custom state at the start of the step. It must not change any more.
	State agent.State
	// StateSchema refuses changes of the state that break it. Nil refuses none.
	StateSchema *agent.Schema
	// ResultBytes limits the result as JSON; 0 means one mebibyte.
	ResultBytes int
	// StateBytes limits the call's state changes as JSON; 0 means agent.DefaultStateBytes.
	StateBytes int
	// Store reads the private store of the session. Nil is an empty store.
	Store agent.StoreReader
	// AdmitRow counts a row of context of the call, and refuses it if there are too many. Nil refuses none.
	AdmitRow func() error
	// Emit sends events to the stream's readers while the call runs: see agent.Host. Nil drops them.
	Emit Emit
}

// Outcome is the end of a call.
type Outcome struct {
	// Result is for the model. Its error texts are valid UTF-8 without zero characters.
	Result agent.ToolResult
	// Ops are the state writes of a successful call, Store its writes to the private store, and Context its rows of context.
	// A call whose result comes by callback has Ops and Store, too. Usage is counted for every call.
	Ops     []agent.Op
	Store   []agent.StoreWrite
	Context []agent.ContextRow
	Usage   []Usage
	// Begun means that the tool was entered.
	Begun bool
	// Awaits, if not nil, means that the call has no result yet.
	Awaits *Await
	// Canceled means that the caller's context ended before the tool: Result is invalid, and there are no Ops.
	Canceled bool
}

// Await says what answers a call that stays open. Tools of the runtime return it for a session; agent.Later stands for a
// callback.
type Await struct {
	SessionID string // below the session of the call
	AgentType string
	Until     int64 // of a callback, in milliseconds since the Unix epoch; 0 for a session
}

// end is the end of a tool.
type end struct {
	result agent.ToolResult
	awaits *Await
}

// Execute runs the call and returns within the tool's time limit, also if the tool does not return. Every
// failure is a result for the model:
//
//   - an error of the tool, a panic, a result that is not JSON, does not match the output schema or is too large: a failed result
//   - the time limit: a synthetic failed result saying that the effect is unknown
//   - too many abandoned calls of the tool, or no URL for a result by callback: a synthetic failed result; the tool was not entered
//
// When ctx ends, the call is Canceled unless the tool returns a value within a moment. After Execute the call's Host
// accepts nothing more. Wait waits for the tools still running.
func (r *Runner) Execute(ctx context.Context, t agent.Tool, call *agent.Call, scope Scope) Outcome {
	key := call.AgentType + "/" + t.Name
	if n := r.abandonedCalls(key); n >= cmp.Or(r.MaxAbandoned, defaultAbandoned) {
		result := failed(t, call, fmt.Sprintf("the tool is not run: %d earlier calls of it have not ended although their time is up", n))
		result.Synthetic = true
		return Outcome{Result: result}
	}
	if t.LaterWithin > 0 && call.Callback.URL == "" {
		r.Log.WarnContext(ctx, "a tool that answers later has no callback URL: set HOLDFAST_GATEWAY_PUBLIC_URL for the executor, and "+
			"HOLDFAST_CALLBACK_KEYS or HOLDFAST_GRANT_SECRET for the state service", "tool", t.Name, "call", call.ID)
		result := failed(t, call, "not executed: its result would come by callback, and the operator has not configured callbacks")
		result.Synthetic = true
		return Outcome{Result: result}
	}
	timeout := cmp.Or(max(t.Timeout, 0), r.Timeout, defaultTimeout)
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	host := NewHost(scope.State, scope.StateSchema, scope.StateBytes, scope.Emit)
	host.store = agent.NewStore(scope.Store)
	scope.ResultBytes = cmp.Or(scope.ResultBytes, defaultResultBytes)
	own := *call
	own.Tool = t.Name
	own.Host = host
	host.admitRow = scope.AdmitRow
	var timeTaken atomic.Bool
	host.takeTime = func() (context.Context, time.Duration) {
		timeTaken.Store(true)
		return ctx, timeout
	}
	ends := make(chan end, 1) // buffered, so a late tool can end
	r.calls.Go(func() { r.enterTool(inner, t, &own, scope.ResultBytes, ends) })
	last, ended := await(inner, ends)
	if !ended && timeTaken.Load() {
		last, ended = await(ctx, ends)
	}
	if !ended {
		r.abandon(ctx, key, call, ends)
	}
	ops, usage := host.End()
	stored := host.store.End()
	outcome := Outcome{Result: last.result, Awaits: last.awaits, Usage: usage, Begun: true}
	switch {
	case ended && last.result.Success:
		outcome.Ops, outcome.Store = ops, stored
		outcome.Context = host.rows // End has closed the host
	case ended && last.awaits != nil && last.awaits.Until != 0:
		outcome.Ops, outcome.Store = ops, stored
	case ctx.Err() != nil:
		outcome.Canceled = true
	case inner.Err() != nil && !timeTaken.Load():
		outcome.Result = failed(t, call, TimedOut(timeout).Error())
		outcome.Result.Synthetic = true
	}
	return outcome
}

// await waits for the end of a tool, up to a moment after its context.
func await(ctx context.Context, ends <-chan end) (end, bool) {
	select {
	case last := <-ends:
		return last, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(afterEnd)
	defer timer.Stop()
	select {
	case last := <-ends:
		return last, true
	case <-timer.C:
		return end{}, false
	}
}

// enterTool runs the tool and sends its result.
func (r *Runner) enterTool(ctx context.Context, t agent.Tool, call *agent.Call, maxBytes int, ends chan<- end) {
	last := end{result: failed(t, call, "the tool has crashed")} // the default: after runtime.Goexit there is nothing to recover
	defer func() {
		if p := recover(); p != nil {
			r.Log.ErrorContext(ctx, "tool panicked", "tool", t.Name, "call", call.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
		ends <- last
	}()
	value, err := t.Execute(ctx, call)
	if errors.Is(err, agent.Later) {
		last = later(t, call)
		return
	}
	if err != nil {
		last.result = failed(t, call, err.Error())
		last.result.PublicError = sanitize(agent.PublicText(err), maxErrorBytes)
		_, last.result.Synthetic = errors.AsType[RuntimeError](err)
		return
	}
	if awaits, ok := value.(Await); ok {
		last = end{result: agent.ToolResult{CallID: call.ID, Name: t.Name}, awaits: &awaits}
		return
	}
	last.result = r.result(t, call, value, maxBytes)
}

// later returns the end of a call whose result comes by callback.
func later(t agent.Tool, call *agent.Call) end {
	if t.LaterWithin <= 0 {
		return end{result: failed(t, call, "the tool has answered later, and does not declare within which time (LaterWithin)")}
	}
	return end{
		result: agent.ToolResult{CallID: call.ID, Name: t.Name},
		awaits: &Await{Until: call.Callback.Expires.UnixMilli()},
	}
}

func failed(t agent.Tool, call *agent.Call, reason string) agent.ToolResult {
	if reason == "" {
		reason = "the tool failed without a reason"
	}
	return agent.ToolResult{CallID: call.ID, Name: t.Name, Error: sanitize(reason, maxErrorBytes)}
}

// RuntimeError is why the runtime has no result of a tool. The failed result is Synthetic.
type RuntimeError string

func (e RuntimeError) Error() string { return string(e) }

// TimedOut is the RuntimeError of a tool at its time limit.
func TimedOut(limit time.Duration) error {
	return RuntimeError(fmt.Sprintf("the tool did not end within %v; it is not known whether it took effect", limit))
}

// sanitize returns a valid text for storage, cut between characters.
func sanitize(text string, maxBytes int) string {
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "") + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
