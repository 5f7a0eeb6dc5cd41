package loop

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// class is what a step does with a call.
type class int

const (
	classKnown  class = iota // has its result: no such tool, arguments that do not fit, an answer from outside
	classServer              // runs here, beside the others
	classOpen                // somebody outside answers
	classLast                // finishes the run, behind the others
)

// toolbox is the tools of an agent, each schema of which is compiled once.
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

// finishes reports whether a call of the name ends the run when it succeeds.
func (b *toolbox) finishes(name string) bool {
	if name == agent.FinishTool {
		return b.output != nil
	}
	tool := b.tools[name]
	return tool != nil && tool.FinishWith
}

// dynamic reports whether the tool of the name is known at run time only.
func (b *toolbox) dynamic(name string) bool {
	tool := b.tools[name]
	return tool != nil && tool.Dynamic
}

// input gives the schema of a tool's arguments; nil, which fits everything, for one
// that cannot be compiled: whoever registers an agent has refused it.
func (b *toolbox) input(name string) *agent.Schema {
	if s, ok := b.inputs[name]; ok {
		return s
	}
	b.inputs[name] = compile(b.schema(name))
	return b.inputs[name]
}

// schema is what the arguments of a tool have to fit.
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

// newWork classifies the calls of a message.
func (p *Planner) newWork(message agent.Message) work {
	w := work{message: message}
	calls := message.Calls()
	for _, call := range calls {
		t := p.classify(call, false)
		if isForced(message) && (len(calls) != 1 || !p.tools.finishes(call.Name)) {
			t = p.known(call, errNotOneFinish)
		}
		w.tasks = append(w.tasks, t)
	}
	return w
}

func (p *Planner) newTask(call agent.ToolCall) *task {
	return &task{Call: Call{ToolCall: call, Key: idempotencyKey(p.start.Run, p.step, call)}}
}

// known is a call that is not run.
func (p *Planner) known(call agent.ToolCall, reason string) *task {
	t := p.newTask(call)
	t.fail(reason)
	return t
}

// classify decides what is done with a call. What cannot be run is told to the model.
// An allowed one has the yes that it needs.
func (p *Planner) classify(call agent.ToolCall, allowed bool) *task {
	tool, finishes := p.tools.tools[call.Name], p.tools.finishes(call.Name)
	if tool == nil && !finishes {
		return p.known(call, fmt.Sprintf(errNoTool+"%q", call.Name))
	}
	if problem := checkArguments(p.tools.input(call.Name), call.Arguments); problem != "" {
		return p.known(call, problem)
	}
	t := p.newTask(call)
	t.Tool, t.finishes = tool, finishes
	switch {
	case tool != nil && !allowed && (tool.Client || p.needsApproval(tool, call)):
		t.class = classOpen
	case finishes:
		t.class = classLast
	default:
		t.class = classServer
	}
	return t
}
