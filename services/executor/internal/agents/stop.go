package agents

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// readStopWhen reads a rule that ends a run after a step: {tool: name} or {stateEquals: {key: value}}. In
// a list of rules, any one is enough. Nil if the field is missing. The tools may be incomplete, while an MCP server cannot
// be reached.
func readStopWhen(o *object, tools []agent.Tool, complete bool) func(agent.Progress) bool {
	v, ok := o.field("stopWhen")
	if !ok {
		return nil
	}
	items, ok := v.items()
	if !ok {
		items = []value{v}
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	var rules []func(agent.Progress) bool
	for _, item := range items {
		rule := newObject(item, o.what+": stopWhen")
		tool, state := rule.text("tool"), rule.json("stateEquals")
		rule.end()
		switch {
		case (tool == "") == (state == nil):
			rule.mistakeAt("tool", "give either {tool: name} or {stateEquals: {key: value}}")
		case tool != "" && complete && !slices.Contains(names, tool):
			rule.mistakeAt("tool", "the agent has no tool %q%s", tool, suggest(tool, names))
		case tool != "":
			rules = append(rules, calledTool(tool))
		default:
			rules = append(rules, stateEquals(rule, state))
		}
	}
	return func(p agent.Progress) bool {
		return slices.ContainsFunc(rules, func(rule func(agent.Progress) bool) bool { return rule(p) })
	}
}

// calledTool is true after a step with a successful call of the tool.
func calledTool(tool string) func(agent.Progress) bool {
	return func(p agent.Progress) bool {
		return slices.ContainsFunc(p.Results, func(result agent.ToolResult) bool { return result.Name == tool && result.Success })
	}
}

// stateEquals is true while the state has all the values.
func stateEquals(o *object, text json.RawMessage) func(agent.Progress) bool {
	decoded, err := decode(text)
	want, ok := decoded.(map[string]any)
	if err != nil || !ok || len(want) == 0 {
		o.mistakeAt("stateEquals", "stateEquals must be an object of keys and values")
	}
	return func(p agent.Progress) bool {
		for key, v := range want {
			if is, ok := p.State[key]; !ok || !isEqual(is, v) {
				return false
			}
		}
		return true
	}
}
