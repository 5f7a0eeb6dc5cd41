package loop

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// class is how a step handles a call.
type class int

const (
	classKnown  class = iota // has its result: unknown tool, invalid arguments, or an answer
	classServer              // runs here, in parallel with others
	classOpen                // waits for a client or a sub-agent
	classLast                // finishes the run, after the others
)

// toolbox holds an agent's tools and compiles each schema once.
type toolbox struct {
	tools  map[string]*agent.Tool
	output json.RawMessage
	inputs map[string]*agent.Schema
}

func newToolbox(a agent.Agent) *toolbox {
	b := &toolbox{tools: map[string]*agent.Tool{}, output: a.OutputSchema, inputs: map[string]*agent.Schema{}}
	for i := range a.Tools {
		if _, repeated := b.tools[a.Tools[i].Name]; !repeated {
			b.tools[a.Tools[i].Name] = &a.Tools[i]
		}
	}
	return b
}

// finishes reports whether a successful call of the tool ends the run.
func (b *toolbox) finishes(name string) bool {
	if name == agent.FinishTool {
		return b.output != nil
	}
	tool := b.tools[name]
	return tool != nil && tool.FinishWith
}

// dynamic reports whether the tool is known at run time only.
func (b *toolbox) dynamic(name string) bool {
	tool := b.tools[name]
	return tool != nil && tool.Dynamic
}

// input returns the schema of a tool's arguments. It returns nil, which accepts everything, for an invalid
// schema: registration has refused it already.
func (b *toolbox) input(name string) *agent.Schema {
	if s, ok := b.inputs[name]; ok {
		return s
	}
	b.inputs[name] = compile(b.schema(name))
	return b.inputs[name]
}

// schema returns the JSON Schema of a tool's arguments.
func (b *toolbox) schema(name string) json.RawMessage {
	if tool := b.tools[name]; tool != nil {
		return tool.InputSchema
	}
	return b.output
}

func compile(raw json.RawMessage) *agent.Schema {
	if len(raw) == 0 {
		return nil
	}
	s, err := agent.CompileSchema(raw)
	if err != nil {
		return nil
	}
	return s
}

// isAnsweredElsewhere reports whether a client or a sub-agent answers the calls of the tool.
func isAnsweredElsewhere(tool *agent.Tool) bool { return tool.Client || tool.SubAgent != "" }

// newWork classifies the calls of a message.
func (p *Planner) newWork(message agent.Message) work {
	w := work{message: message}
	calls := message.Calls()
	for i, call := range calls {
		if most := p.maxCalls(); i >= most {
			w.tasks = append(w.tasks, p.knownTask(call, fmt.Sprintf(errTooManyCalls, most)))
			continue
		}
		t := p.classify(call, false)
		if isForced(message) && (len(calls) != 1 || !p.tools.finishes(call.Name)) {
			t = p.knownTask(call, errNotOneFinish)
		}
		w.tasks = append(w.tasks, t)
	}
	p.limitSubAgents(w.tasks)
	return w
}

func (p *Planner) maxCalls() int { return cmp.Or(p.start.MaxCalls, DefaultMaxCalls) }

// limitSubAgents fails the calls of sub-agents above a limit.
func (p *Planner) limitSubAgents(tasks []*task) {
	most, begun := cmp.Or(p.start.Agent.MaxSubAgents, agent.DefaultMaxSubAgents), 0
	for _, t := range tasks {
		if t.Tool == nil || t.Tool.SubAgent == "" {
			continue
		}
		var reason string
		switch begun++; {
		case p.start.Depth >= p.start.MaxDepth:
			reason = fmt.Sprintf(errTooDeep, p.start.MaxDepth)
		case begun > most:
			reason = fmt.Sprintf(errTooManySubAgents, most)
		default:
			continue
		}
		t.class = classKnown
		t.fail(reason)
	}
}

func (p *Planner) newTask(call agent.ToolCall) *task {
	return &task{Call: Call{ToolCall: call, Key: idempotencyKey(p.start.Run, p.step, call)}}
}

// knownTask returns a call that is not executed.
func (p *Planner) knownTask(call agent.ToolCall, reason string) *task {
	t := p.newTask(call)
	t.fail(reason)
	return t
}

// classify decides how to handle a call. The model receives an error for an impossible call. allowed means that
// a needed approval exists.
func (p *Planner) classify(call agent.ToolCall, allowed bool) *task {
	tool, finishes := p.tools.tools[call.Name], p.tools.finishes(call.Name)
	if tool == nil && !finishes {
		return p.knownTask(call, fmt.Sprintf(errNoTool+"%q", call.Name))
	}
	if problem := checkArguments(p.tools.input(call.Name), call.Arguments); problem != "" {
		return p.knownTask(call, problem)
	}
	t := p.newTask(call)
	t.Tool, t.finishes = tool, finishes
	switch {
	case tool != nil && !allowed && (isAnsweredElsewhere(tool) || p.needsApproval(tool, call)):
		t.class = classOpen
	case finishes:
		t.class = classLast
	default:
		t.class = classServer
	}
	return t
}
