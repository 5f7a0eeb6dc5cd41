package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// stopRule is a rule that ends a run after a step, by a call of a tool or by the state.
type stopRule struct {
	Tool        string
	StateEquals json.RawMessage
}

// readStopWhen returns whether any rule ends a run; nil without rules. The tools may be incomplete, while an MCP server cannot
// be reached.
func readStopWhen(s *section, rules []stopRule, tools []agent.Tool, complete bool) func(context.Context, *agent.Progress) (bool, error) {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	var ends []func(*agent.Progress) bool
	for i, rule := range rules {
		switch {
		case rule.Tool == "" && rule.StateEquals == nil: // it has a mistake
		case rule.Tool != "" && complete && !slices.Contains(names, rule.Tool):
			s.mistakeAt(fmt.Sprintf("stopWhen.%d.tool", i), "stopWhen: the agent has no tool %q%s", rule.Tool, suggest(rule.Tool, names))
		case rule.Tool != "":
			ends = append(ends, func(p *agent.Progress) bool {
				return slices.ContainsFunc(p.Results, func(result agent.ToolResult) bool { return result.Name == rule.Tool && result.Success })
			})
		default:
			ends = append(ends, stateEquals(rule.StateEquals))
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return func(_ context.Context, p *agent.Progress) (bool, error) {
		return slices.ContainsFunc(ends, func(ends func(*agent.Progress) bool) bool { return ends(p) }), nil
	}
}

// stateEquals is true while the state has all the values.
func stateEquals(text json.RawMessage) func(*agent.Progress) bool {
	decoded, _ := decode(text) // the JSON of an object
	want, _ := decoded.(map[string]any)
	return func(p *agent.Progress) bool {
		for key, v := range want {
			if is, ok := p.State[key]; !ok || !isEqual(is, v) {
				return false
			}
		}
		return true
	}
}
