package loop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
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
	agent  agent.Agent
	tools  map[string]*agent.Tool
	inputs map[string]*agent.Schema
}

func newToolbox(a agent.Agent) *toolbox {
	b := &toolbox{agent: a, tools: map[string]*agent.Tool{}, inputs: map[string]*agent.Schema{}}
	for i := range a.Tools {
		if _, repeated := b.tools[a.Tools[i].Name]; !repeated {
			b.tools[a.Tools[i].Name] = &a.Tools[i]
		}
	}
	return b
}

// addTo returns the tools of an agent and those of the caller that have a name of their own.
func (c CallerInput) addTo(own []agent.Tool) []agent.Tool {
	tools := slices.Clip(own)
	for _, t := range c.Tools {
		if !slices.ContainsFunc(tools, func(known agent.Tool) bool { return known.Name == t.Name }) {
			tools = append(tools, t)
		}
	}
	return tools
}

// system returns a system prompt with the instructions of the caller behind it.
func (c CallerInput) system(prompt string) string {
	switch {
	case c.Instructions == "":
		return prompt
	case prompt == "":
		return c.Instructions
	}
	return prompt + "\n\n" + c.Instructions
}

// finishes reports whether a successful call of the tool ends the run.
func (b *toolbox) finishes(name string) bool {
	if name == agent.FinishTool {
		return b.agent.OutputSchema != nil
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
	return b.agent.OutputSchema
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

// offered returns the tools of the agent and the tool for its output.
func (b *toolbox) offered() []model.Tool {
	var tools []model.Tool
	for _, t := range b.agent.Tools {
		tools = append(tools, model.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, Strict: t.Strict})
	}
	if b.agent.OutputSchema != nil {
		tools = append(tools, model.Tool{
			Name: agent.FinishTool, Description: "Takes your final output and ends the work. Call it once, when everything else is done.",
			InputSchema: b.agent.OutputSchema, Strict: b.agent.StrictOutput,
		})
	}
	return tools
}

// finishers returns the names of the tools that finish a run.
func (b *toolbox) finishers() []string {
	names := []string{agent.FinishTool}
	for _, t := range b.agent.Tools {
		if t.FinishWith {
			names = append(names, t.Name)
		}
	}
	return names
}

// outputInstruction returns the instruction about the owed output.
func (b *toolbox) outputInstruction() string {
	if b.agent.Completion == agent.CompletionNative {
		return "Give your output now: one JSON object {\"completion\": {\"tool\", \"input\"}}, and nothing else."
	}
	return fmt.Sprintf("Give your output now: make one call of %s, and nothing else.", strings.Join(b.finishers(), " or "))
}

// envelope returns the JSON output format that replaces a finishing call.
func (b *toolbox) envelope() *model.Output {
	type object = map[string]any
	closed := func(properties object, required ...string) object {
		return object{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	names := b.finishers()
	var forms []any
	for i, name := range names {
		at := "#/properties/completion"
		if len(names) > 1 {
			at += fmt.Sprintf("/anyOf/%d", i)
		}
		forms = append(forms, closed(object{
			"tool": object{"type": "string", "enum": []string{name}}, "input": embedSchema(b.schema(name), at+"/properties/input"),
		}, "tool", "input"))
	}
	completion := forms[0]
	if len(forms) > 1 {
		completion = object{"anyOf": forms}
	}
	schema, err := json.Marshal(closed(object{"completion": completion}, "completion"))
	if err != nil { // decoded from JSON before
		panic(fmt.Sprintf("loop: the schema of a completion: %v", err))
	}
	return &model.Output{Name: "completion", Schema: schema, Strict: b.agent.StrictOutput}
}

// embedSchema embeds a schema in another one, at a JSON pointer, and adjusts its references.
func embedSchema(raw json.RawMessage, at string) any {
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return map[string]any{"type": "object"}
	}
	return redirect(schema, at)
}

func redirect(node any, at string) any {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if ref, ok := value.(string); ok && key == "$ref" && strings.HasPrefix(ref, "#") {
				node[key] = at + strings.TrimPrefix(ref, "#")
				continue
			}
			node[key] = redirect(value, at)
		}
	case []any:
		for i := range node {
			node[i] = redirect(node[i], at)
		}
	}
	return node
}
