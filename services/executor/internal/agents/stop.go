package agents

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// stopWhen reads when a run ends behind a step: any of the forms {tool: name} and
// {stateEquals: {key: value}}; nil where there are none.
func (r *reader) stopWhen(o *object, tools []agent.Tool) func(agent.Progress) bool {
	v, there := o.field("stopWhen")
	if !there {
		return nil
	}
	items, ok := r.items(v)
	if !ok {
		items = []value{v}
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	var rules []func(agent.Progress) bool
	for _, item := range items {
		rule := r.object(item, o.what+": stopWhen")
		tool, state := rule.text("tool"), rule.json("stateEquals")
		rule.end()
		switch {
		case (tool == "") == (state == nil):
			rule.mistake("tool", "give either {tool: name} or {stateEquals: {key: value}}")
		case tool != "" && !slices.Contains(names, tool):
			rule.mistake("tool", "the agent has no tool %q%s", tool, meant(tool, names))
		case tool != "":
			rules = append(rules, called(tool))
		default:
			rules = append(rules, r.stateEquals(rule, state))
		}
	}
	return func(p agent.Progress) bool {
		return slices.ContainsFunc(rules, func(rule func(agent.Progress) bool) bool { return rule(p) })
	}
}

// called reports whether a call of the tool in the step has succeeded.
func called(tool string) func(agent.Progress) bool {
	return func(p agent.Progress) bool {
		return slices.ContainsFunc(p.Results, func(result agent.ToolResult) bool { return result.Name == tool && result.Success })
	}
}

// stateEquals reports whether the state has all the values.
func (r *reader) stateEquals(o *object, text json.RawMessage) func(agent.Progress) bool {
	decoded, err := decode(text)
	want, ok := decoded.(map[string]any)
	if err != nil || !ok || len(want) == 0 {
		o.mistake("stateEquals", "stateEquals must be an object of keys and values")
	}
	return func(p agent.Progress) bool {
		for key, v := range want {
			if is, ok := p.State[key]; !ok || !same(is, v) {
				return false
			}
		}
		return true
	}
}
