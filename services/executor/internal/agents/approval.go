package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// approval decides whether a call waits for a human. Nil leaves the tool as it is.
type approval struct {
	always     bool
	conditions []condition // any one is enough
}

// condition is the tests of a field of the input or of the state. All must hold.
type condition struct {
	setting   string // in the settings of the tool
	path      []string
	fromState bool
	tests     []test
}

// test tests a value. exists is false for a missing value.
type test func(v any, exists bool) bool

// conditionFields is a condition as a file has it.
type conditionFields struct {
	Field, State                                              string
	Equals, NotEquals, GreaterThan, LessThan, Matches, Exists json.RawMessage
}

// readApproval reads "always", "never" or {when: [conditions]}; nil for none.
func readApproval(s *section, text json.RawMessage) *approval {
	if text == nil {
		return nil
	}
	var rule struct{ When []conditionFields }
	_ = json.Unmarshal(text, &rule) // "always" and "never" have no conditions
	a := &approval{always: string(text) == `"always"`}
	for i, f := range rule.When {
		c := condition{setting: fmt.Sprintf("approval.when.%d", i), path: strings.Split(f.Field+f.State, "."), fromState: f.State != ""}
		if s.wrong[c.setting] {
			continue
		}
		for _, operator := range []struct {
			name    string
			operand json.RawMessage
			make    func(json.RawMessage) (test, error)
		}{
			{"equals", f.Equals, equals},
			{"notEquals", f.NotEquals, notEquals},
			{"greaterThan", f.GreaterThan, greaterThan},
			{"lessThan", f.LessThan, lessThan},
			{"matches", f.Matches, matches},
			{"exists", f.Exists, exists},
		} {
			if operator.operand == nil {
				continue
			}
			t, err := operator.make(operator.operand)
			if err != nil {
				s.mistakeAt(c.setting+"."+operator.name, "approval: %s %v", operator.name, err)
				continue
			}
			c.tests = append(c.tests, t)
		}
		if (f.Field == "") == (f.State == "") {
			s.mistakeAt(c.setting+".field", "approval: a condition tests either a field of the input or a key of the state: give field or state")
		}
		if len(c.tests) == 0 && !s.wrong[c.setting] {
			s.mistakeAt(c.setting+".field", "approval: a condition needs one of equals, notEquals, greaterThan, lessThan, matches, exists")
		}
		a.conditions = append(a.conditions, c)
	}
	return a
}

// apply sets the approval of a tool.
func (a *approval) apply(t *agent.Tool) {
	if a == nil {
		return
	}
	t.Approval, t.ApproveWhen = a.always, nil
	if !a.always && len(a.conditions) == 0 {
		t.Approvers = agent.Anyone
	}
	if conditions := a.conditions; len(conditions) > 0 {
		t.ApproveWhen = func(_ context.Context, call *agent.Call) (bool, error) {
			decoded, err := decode(call.Input)
			if err != nil {
				return true, nil // a human decides about input without JSON
			}
			state := call.State()
			return slices.ContainsFunc(conditions, func(c condition) bool { return c.hasLookalike(decoded) || c.holds(decoded, state) }), nil
		}
		for _, c := range conditions {
			if !c.fromState {
				t.InputSchema = closeAlong(t.InputSchema, c.path)
			}
		}
	}
}

// closeAlong refuses unknown members of the objects on the path. A tool that reads names in any case would
// otherwise take {"amount": 1, "Amount": 5000} for 5000, where the condition sees 1. A schema that allows
// other members by itself stays as it is.
func closeAlong(schema json.RawMessage, path []string) json.RawMessage {
	if _, all := arguments(schema); !all || len(path) == 0 {
		return schema
	}
	var members, properties map[string]json.RawMessage
	if json.Unmarshal(schema, &members) != nil || json.Unmarshal(members["properties"], &properties) != nil {
		return schema
	}
	members["additionalProperties"] = json.RawMessage("false")
	if inner, ok := properties[path[0]]; ok && len(path) > 1 {
		properties[path[0]] = closeAlong(inner, path[1:])
		members["properties"], _ = json.Marshal(properties) // it was decoded from JSON
	}
	closed, err := json.Marshal(members)
	if err != nil {
		return schema
	}
	return closed
}

// hasLookalike reports whether an object on the path has a member whose name differs from the condition's
// only in case. A human decides about such a call.
func (c condition) hasLookalike(input any) bool {
	for at := range c.path {
		v, _ := lookUp(input, c.path[:at])
		object, _ := v.(map[string]any)
		for name := range object {
			if !c.fromState && name != c.path[at] && strings.EqualFold(name, c.path[at]) {
				return true
			}
		}
	}
	return false
}

// holds reports whether all tests hold. They hold for a path that leads through a value other than an object: a human
// decides about arguments that the condition cannot read.
func (c condition) holds(input any, state agent.State) bool {
	from := input
	if c.fromState {
		from = map[string]any(state)
	}
	for at := range c.path {
		if v, exists := lookUp(from, c.path[:at]); exists && kindOf(v) != "object" {
			return true
		}
	}
	v, exists := lookUp(from, c.path)
	return !slices.ContainsFunc(c.tests, func(t test) bool { return !t(v, exists) })
}

// checkArguments reports conditions on unknown arguments. Such a condition has the same result for every
// call, and usually lets all calls through.
func (a *approval) checkArguments(s *section, t agent.Tool) {
	if a == nil {
		return
	}
	known, all := arguments(t.InputSchema)
	for _, c := range a.conditions {
		if name := c.path[0]; all && !c.fromState && name != "" && !slices.Contains(known, name) {
			s.mistakeAt(c.setting+".field", "approval: the tool %q has no argument %q%s", t.Name, name, suggest(name, known))
		}
	}
}

// arguments returns the names of the arguments in an input schema. all is false if the schema may
// allow others.
func arguments(schema json.RawMessage) (names []string, all bool) {
	var members map[string]json.RawMessage
	var properties map[string]json.RawMessage
	if json.Unmarshal(schema, &members) != nil || json.Unmarshal(members["properties"], &properties) != nil || properties == nil {
		return nil, false
	}
	if more, ok := members["additionalProperties"]; ok && string(more) != "false" {
		return nil, false
	}
	for _, elsewhere := range []string{
		"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties", "unevaluatedProperties",
	} {
		if _, ok := members[elsewhere]; ok {
			return nil, false
		}
	}
	return slices.Sorted(maps.Keys(properties)), true
}

// kindOf returns the type of a JSON value.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case map[string]any:
		return "object"
	case []any:
		return "list"
	default:
		return "number"
	}
}

// equals tests for a value. A value of another type, and a number beyond maxDigits, pass: a human sees the call. A list may
// have the value among others, and the tool may take "5" for 5.
func equals(operand json.RawMessage) (test, error) {
	want, err := decode(operand)
	return func(v any, exists bool) bool {
		return exists && (isEqual(v, want) || isTooLong(v) || kindOf(v) != kindOf(want))
	}, err
}

func notEquals(operand json.RawMessage) (test, error) {
	want, err := decode(operand)
	return func(v any, exists bool) bool { return !exists || !isEqual(v, want) }, err
}

func greaterThan(operand json.RawMessage) (test, error) {
	return compared(operand, func(sign int) bool { return sign > 0 })
}

func lessThan(operand json.RawMessage) (test, error) {
	return compared(operand, func(sign int) bool { return sign < 0 })
}

// compared tests a number. Any other value passes: a human sees the call.
func compared(operand json.RawMessage, accept func(sign int) bool) (test, error) {
	limit, ok := number(json.Number(operand))
	if !ok {
		return nil, fmt.Errorf("must be a number")
	}
	return func(v any, exists bool) bool {
		n, ok := number(v)
		return exists && (!ok || accept(n.Cmp(limit)))
	}, nil
}

func matches(operand json.RawMessage) (test, error) {
	var pattern string
	if err := json.Unmarshal(operand, &pattern); err != nil {
		return nil, fmt.Errorf("must be a regular expression in quotes")
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("must be a regular expression (RE2): %w", err)
	}
	return func(v any, exists bool) bool {
		text, is := v.(string)
		return exists && (!is || expression.MatchString(text)) // a human sees any other value
	}, nil
}

func exists(operand json.RawMessage) (test, error) {
	var want bool
	if err := json.Unmarshal(operand, &want); err != nil {
		return nil, fmt.Errorf("must be true or false")
	}
	return func(_ any, exists bool) bool { return exists == want }, nil
}
