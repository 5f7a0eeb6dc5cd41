package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// Binding makes the functions of agents and tools for the callbacks that a description names.
type Binding struct {
	Client *Client
	// Build is that of the description; it may be empty.
	Build string
}

// hidden is what users read if the wire has failed, and not the application.
const hidden = "The application could not do this."

// methodLimit bounds a call of a method.
const methodLimit = time.Minute

// Tool adds the functions of a tool's callbacks. The tool's other settings must be complete. The requests of its calls have the
// entries of the private store whose keys begin with one of the prefixes.
func (b Binding) Tool(t agent.Tool, callbacks, storeReads []string) agent.Tool {
	for _, name := range callbacks {
		switch name {
		case "execute":
			t.Execute = b.execute(t.Repeatable(), t.LaterWithin > 0, storeReads)
		case "approval":
			t.ApproveWhen = b.approval
		}
	}
	return t
}

// execute returns a function that runs the calls of a tool. later means that they may answer later.
func (b Binding) execute(repeatable, later bool, storeReads []string) func(ctx context.Context, call *agent.Call) (any, error) {
	return func(ctx context.Context, call *agent.Call) (any, error) {
		limit := defaultLimit
		if host, ok := call.Host.(*tool.Host); ok {
			if run, full, ok := host.TakeTime(); ok {
				ctx = run
				limit = full
			}
		}
		before := call.State()
		request, store := b.call("tool", call, before), call.Store()
		if len(storeReads) > 0 {
			entries, err := readStore(ctx, store, storeReads)
			if err != nil {
				return nil, err
			}
			request.members["store"] = entries
		}
		p := &pending{client: b.Client, request: request, limit: limit, repeatable: repeatable, sink: toolSink(call)}
		p.sink.store = store
		p.sink.later = later
		p.reset = func() error {
			store.Discard()
			if host, ok := call.Host.(*tool.Host); ok {
				host.DropContext()
			}
			return call.Update(func(draft agent.State) error { return replace(draft, before) })
		}
		result, err := p.run(ctx)
		if err != nil {
			return nil, toolError(err, limit)
		}
		return result, nil
	}
}

// Limits of the private store in a request.
const (
	maxStoreEntries = 1000
	maxStoreBytes   = 1 << 20 // of keys and values
)

// storeEntries are the entries of the private store in a request, whose keys begin as Reads says. They are complete unless a limit
// has cut them.
type storeEntries struct {
	Reads    []string                   `json:"reads"`
	Entries  map[string]json.RawMessage `json:"entries"`
	Complete bool                       `json:"complete"`
}

// readStore reads the entries whose keys begin with one of the prefixes, in the order of the prefixes and the keys.
func readStore(ctx context.Context, store *agent.Store, prefixes []string) (storeEntries, error) {
	read, size := storeEntries{Reads: prefixes, Entries: map[string]json.RawMessage{}, Complete: true}, 0
	for _, prefix := range prefixes {
		left := maxStoreEntries + 1 - len(read.Entries)
		for e, err := range store.List(ctx, agent.StoreRange{Prefix: prefix, Limit: left}) {
			if err != nil {
				return read, err
			}
			if _, known := read.Entries[e.Key]; known {
				continue
			}
			size += len(e.Key) + len(e.Value)
			if size > maxStoreBytes || len(read.Entries) == maxStoreEntries {
				read.Complete = false
				return read, nil
			}
			read.Entries[e.Key] = e.Value
		}
	}
	return read, nil
}

// toolError returns the error of a call for the model and for users.
func toolError(err error, limit time.Duration) error {
	if errors.Is(err, errTimedOut) {
		return tool.TimedOut(limit)
	}
	if _, cut := errors.AsType[*cutError](err); cut {
		return tool.RuntimeError(loop.OutcomeUnknown)
	}
	if _, refused := errors.AsType[*refusalError](err); refused {
		return agent.PublicError(err, hidden)
	}
	if f, failed := errors.AsType[*Failure](err); failed && f.PublicMessage != "" {
		return agent.PublicError(err, f.PublicMessage)
	}
	return err
}

func (b Binding) approval(ctx context.Context, call *agent.Call) (bool, error) {
	return ask[bool](ctx, b, b.call("approval", call, call.State()))
}

// call returns the request for a tool's call.
func (b Binding) call(kind string, call *agent.Call, state agent.State) request {
	input := call.Input
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	return request{
		Type: kind, Agent: call.AgentType, Build: b.Build, Name: call.Tool, Context: trusted.Of(call), State: state,
		members: members{"input": input},
	}
}

// function returns the request for a function of an agent.
func (b Binding) function(kind, name string, run *agent.RunView, m members) request {
	return request{
		Type: kind, Agent: run.AgentType, Build: b.Build, Name: name, Context: trusted.OfRun(run), State: run.State, members: m,
	}
}

// decide calls a function without effects.
func (b Binding) decide(ctx context.Context, q request) (json.RawMessage, error) {
	result, err := (&pending{client: b.Client, request: q, repeatable: true, impatient: true}).run(ctx)
	return result, orUnreachable(err)
}

// orUnreachable returns catalog.ErrUnreachable, with the cause, for a call that was not executed.
func orUnreachable(err error) error {
	if isUnreachable(err) {
		return fmt.Errorf("%w: %w", catalog.ErrUnreachable, err)
	}
	return err
}

// ask calls a function without effects that returns an A.
func ask[A any](ctx context.Context, b Binding, q request) (answer A, err error) {
	result, err := b.decide(ctx, q)
	if err != nil {
		return answer, err
	}
	if string(result) == "null" || json.Unmarshal(result, &answer) != nil {
		return answer, fmt.Errorf("the result of %s must be %s, and is %.100q", q.Type, map[string]string{
			"approval": "true or false", "stopWhen": "true or false", "prompt": "a string", "compact": "a string",
		}[q.Type], result)
	}
	return answer, nil
}

// Agent adds the functions of an agent's callbacks and methods.
func (b Binding) Agent(a *agent.Agent, callbacks, methods []string) {
	for _, name := range callbacks {
		switch name {
		case "prompt":
			a.Prompt = func(ctx context.Context, run *agent.RunView) (string, error) {
				return ask[string](ctx, b, b.function("prompt", "", run, nil))
			}
		case "stopWhen":
			a.StopWhen = func(ctx context.Context, p *agent.Progress) (bool, error) {
				return ask[bool](ctx, b, b.function("stopWhen", "", &p.RunView, members{
					"steps": p.Steps, "reply": messageOf(p.Reply), "results": resultsOf(p.Results),
				}))
			}
		case "compact":
			a.Context.Compact = func(ctx context.Context, run *agent.RunView, older []agent.Message) (string, error) {
				return ask[string](ctx, b, b.function("compact", "", run, members{"messages": messagesOf(older)}))
			}
		case "stepContext":
			a.StepContext = b.stepContext
		case "guard.onOutput":
			a.Guard.OnOutput = b.guard("onOutput")
		case "guard.onReply":
			a.Guard.OnReply = b.guard("onReply")
		default:
			b.hook(&a.Hooks, name)
		}
	}
	for _, name := range methods {
		a.Methods = append(a.Methods, agent.Method{Name: name, Call: b.method(name)})
	}
}

// stepContext asks for rows of context. Its writes are those of a hook.
func (b Binding) stepContext(ctx context.Context, c *agent.HookCall, v agent.StepView) ([]agent.ContextRow, error) {
	tools := v.Tools
	if tools == nil {
		tools = []string{}
	}
	result, err := b.callAs(ctx, c, "stepContext", "", members{
		"steps": v.Steps, "model": v.Model, "messages": messagesOf(v.Messages), "tools": tools,
	}, true)
	if err != nil {
		return nil, orUnreachable(err)
	}
	return rowsOf(result)
}

// rowsOf reads rows of context: a list, or null for none.
func rowsOf(text json.RawMessage) (rows []agent.ContextRow, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&rows); err != nil {
		return nil, fmt.Errorf("rows of context must be a list of objects with kind, text, key, disable and enable: %w", err)
	}
	return rows, nil
}

// guard returns a function of a guard.
func (b Binding) guard(name string) func(context.Context, agent.Ending) (agent.Verdict, error) {
	return func(ctx context.Context, end agent.Ending) (agent.Verdict, error) {
		q := b.function("guard", name, &end.RunView, members{"steps": end.Steps, "output": end.Output, "reply": messageOf(end.Reply)})
		result, err := b.decide(ctx, q)
		if err != nil {
			return agent.Verdict{}, err
		}
		return verdictOf(result)
	}
}

// verdictOf reads the result of a guard: null, or an object with one member.
func verdictOf(result json.RawMessage) (v agent.Verdict, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) == nil && len(members) <= 1 {
		for name, value := range members {
			switch {
			case name == "revise" && json.Unmarshal(value, &v.Revise) == nil && v.Revise != "":
			case name == "fail" && json.Unmarshal(value, &v.Fail) == nil && v.Fail != "":
			case name == "replace":
				v.Replace = value
			default:
				members = nil
				err = errVerdict
			}
		}
		return v, err
	}
	return agent.Verdict{}, errVerdict
}

var errVerdict = errors.New(`the result of a guard must be null, or {"revise": TEXT}, {"fail": TEXT} or {"replace": JSON}`)

// hook adds a hook. The name is that of the callback, such as hooks.onStart.
func (b Binding) hook(h *agent.Hooks, callback string) {
	plain := func(name string) func(context.Context, *agent.HookCall) {
		return func(ctx context.Context, c *agent.HookCall) { b.notify(ctx, c, name, nil) }
	}
	switch callback {
	case "hooks.beforeRun":
		h.BeforeRun = func(ctx context.Context, c *agent.HookCall) error {
			err := orUnreachable(b.callHook(ctx, c, "beforeRun", nil, true))
			if errors.Is(err, catalog.ErrUnreachable) {
				return err
			}
			if f, failed := errors.AsType[*Failure](err); failed && f.PublicMessage != "" {
				return agent.PublicError(err, f.PublicMessage)
			}
			if _, failed := errors.AsType[*Failure](err); err != nil && !failed {
				return agent.PublicError(err, hidden)
			}
			return err
		}
	case "hooks.onStart":
		h.OnStart = plain("onStart")
	case "hooks.onResume":
		h.OnResume = plain("onResume")
	case "hooks.beforeModel":
		h.BeforeModel = func(ctx context.Context, c *agent.HookCall, m agent.ModelCall) {
			tools := m.Tools
			if tools == nil {
				tools = []string{}
			}
			b.notify(ctx, c, "beforeModel", members{
				"model": m.Model, "attempt": m.Attempt, "system": m.System, "messages": messagesOf(m.Messages), "tools": tools,
			})
		}
	case "hooks.afterModel":
		h.AfterModel = func(ctx context.Context, c *agent.HookCall, m agent.ModelCall, reply agent.Message, err error) {
			more := members{"model": m.Model, "attempt": m.Attempt, "reply": messageOf(reply), "error": nil}
			if err != nil {
				more["error"] = err.Error()
			}
			b.notify(ctx, c, "afterModel", more)
		}
	case "hooks.beforeTool":
		h.BeforeTool = func(ctx context.Context, c *agent.HookCall, call agent.ToolCall) {
			b.notify(ctx, c, "beforeTool", members{"toolCall": callOf(call)})
		}
	case "hooks.afterTool":
		h.AfterTool = func(ctx context.Context, c *agent.HookCall, call agent.ToolCall, result agent.ToolResult) {
			b.notify(ctx, c, "afterTool", members{"toolCall": callOf(call), "toolResult": resultOf(result)})
		}
	case "hooks.beforeSubAgent":
		h.BeforeSubAgent = func(ctx context.Context, c *agent.HookCall, call agent.SubAgentCall) {
			b.notify(ctx, c, "beforeSubAgent", members{"toolCall": callOf(call.ToolCall), "subAgent": subAgentOf(call)})
		}
	case "hooks.afterSubAgent":
		h.AfterSubAgent = func(ctx context.Context, c *agent.HookCall, call agent.SubAgentCall, result agent.ToolResult) {
			b.notify(ctx, c, "afterSubAgent", members{
				"toolCall": callOf(call.ToolCall), "subAgent": subAgentOf(call), "toolResult": resultOf(result),
			})
		}
	case "hooks.onStateChange":
		h.OnStateChange = func(ctx context.Context, c *agent.HookCall, ops []agent.Op) {
			b.notify(ctx, c, "onStateChange", members{"ops": opsOf(ops)})
		}
	case "hooks.onMessage":
		h.OnMessage = func(ctx context.Context, c *agent.HookCall, m agent.Message) {
			b.notify(ctx, c, "onMessage", members{"message": messageOf(m)})
		}
	case "hooks.afterRun":
		h.AfterRun = func(ctx context.Context, c *agent.HookCall, end agent.RunEnd) {
			b.notify(ctx, c, "afterRun", members{
				"status": end.Status, "output": end.Output, "error": end.Error, "code": end.Code, "steps": end.Steps,
				"durationMs": end.Duration.Milliseconds(),
			})
		}
	}
}

// notify calls a hook whose failure has no effect. Its writes are dropped then.
func (b Binding) notify(ctx context.Context, c *agent.HookCall, name string, m members) {
	if err := b.callHook(ctx, c, name, m, false); err != nil && ctx.Err() == nil {
		b.Client.peers.Log.WarnContext(ctx, "a hook of an endpoint has failed", "endpoint", b.Client.name, "hook", name, "agent", c.AgentType,
			"session", c.SessionID, "run", c.RunID, "error", err)
	}
}

// callHook calls a hook, and drops the writes of a failed one.
func (b Binding) callHook(ctx context.Context, c *agent.HookCall, name string, m members, impatient bool) error {
	_, err := b.callAs(ctx, c, "hook", name, m, impatient)
	return err
}

// callAs calls a function that has the host of a hook, and drops the writes of a failed one.
func (b Binding) callAs(ctx context.Context, c *agent.HookCall, kind, name string, m members, impatient bool) (json.RawMessage, error) {
	before := c.State()
	p := &pending{
		client: b.Client, repeatable: true, impatient: impatient, sink: hostSink(c.Host),
		request: request{
			Type: kind, Agent: c.AgentType, Build: b.Build, Name: name, Context: trusted.OfHook(c), State: before, members: m,
		},
		reset: func() error { return c.Update(func(draft agent.State) error { return replace(draft, before) }) },
	}
	result, err := p.run(ctx)
	if err != nil {
		_ = p.reset() // otherwise the hook has ended, and its writes count no more
	}
	return result, err
}

// method returns a function that calls a method. Unlike a hook, it is not called twice: its writes are stored when they
// arrive.
func (b Binding) method(name string) func(context.Context, *agent.MethodCall) (any, error) {
	return func(ctx context.Context, call *agent.MethodCall) (any, error) {
		state, err := call.State(ctx)
		if err != nil {
			return nil, err
		}
		limited, cancel := context.WithTimeoutCause(ctx, methodLimit, errTimedOut)
		defer cancel()
		args := call.Args
		if args == nil {
			args = []json.RawMessage{}
		}
		p := &pending{
			client: b.Client, sink: methodSink(call),
			request: request{
				Type: "method", Agent: call.AgentType, Build: b.Build, Name: name, Context: trusted.OfMethod(call), State: state,
				members: members{"args": args},
			},
		}
		result, err := p.run(limited)
		if err != nil {
			return nil, methodError(err)
		}
		return result, nil
	}
}

// methodError returns the error of a method. Clients see the detail of a fault, and nothing of another error.
func methodError(err error) error {
	_, cut := errors.AsType[*cutError](err)
	f, failed := errors.AsType[*Failure](err)
	switch {
	case isUnreachable(err):
		return fault.New(fault.Unavailable, "ENDPOINT_UNREACHABLE", "The application cannot be reached, and the method was not called.")
	case cut || errors.Is(err, errTimedOut):
		return fault.New(fault.Conflict, "METHOD_FAILED", "The method has not ended, and it is not known whether it took effect.")
	case failed && f.PublicMessage != "":
		return fault.New(fault.Conflict, "METHOD_FAILED", "%s", f.PublicMessage)
	case failed && f.Code != "":
		return fault.New(fault.Conflict, "METHOD_FAILED", "%s", f.Error())
	}
	return err
}
