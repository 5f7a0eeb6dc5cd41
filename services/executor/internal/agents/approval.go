package agents

import (
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
	arguments  []argument
}

// argument is an argument in a condition.
type argument struct {
	condition *object
	name      string
}

// condition is the tests of a field of the input or of the state. All must hold.
type condition struct {
	path      []string
	fromState bool
	tests     []test
}

// test tests a value. exists is false for a missing value.
type test func(v any, exists bool) bool

// readApproval reads "always", "never" or {when: [conditions]}; nil if the field is missing.
func readApproval(o *object) *approval {
	v, ok := o.field("approval")
	if !ok {
		return nil
	}
	if _, ok := v.text(); ok {
		return &approval{always: o.oneOf("approval", "always", "never") == "always"}
	}
	rule := newObject(v, o.what+": approval")
	a := &approval{}
	for _, item := range rule.list("when") {
		a.readCondition(newObject(item, rule.what))
	}
	rule.end()
	if len(a.conditions) == 0 {
		rule.mistakeAt("when", `approval is "always", "never", or {when: [...]} with conditions`)
	}
	return a
}

func (a *approval) readCondition(o *object) {
	field, state := o.text("field"), o.text("state")
	if (field == "") == (state == "") {
		o.mistakeAt("field", "a condition tests either a field of the input or a key of the state: give field or state")
	}
	c := condition{path: strings.Split(field+state, "."), fromState: state != ""}
	if field != "" {
		a.arguments = append(a.arguments, argument{o, c.path[0]})
	}
	for _, operator := range []struct {
		name string
		make func(json.RawMessage) (test, error)
	}{
		{"equals", equals},
		{"notEquals", notEquals},
		{"greaterThan", greaterThan},
		{"lessThan", lessThan},
		{"matches", matches},
		{"exists", exists},
	} {
		operand := o.json(operator.name)
		if operand == nil {
			continue
		}
		t, err := operator.make(operand)
		if err != nil {
			o.mistakeAt(operator.name, "%s %v", operator.name, err)
			continue
		}
		c.tests = append(c.tests, t)
	}
	o.end()
	if len(c.tests) == 0 {
		o.mistakeAt("field", "a condition needs one of equals, notEquals, greaterThan, lessThan, matches, exists")
	}
	a.conditions = append(a.conditions, c)
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
		t.ApproveWhen = func(input json.RawMessage, state agent.State) bool {
			decoded, err := decode(input)
			if err != nil {
				return true // a human decides about input without JSON
			}
			return slices.ContainsFunc(conditions, func(c condition) bool { return c.hasLookalike(decoded) || c.holds(decoded, state) })
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
func (a *approval) checkArguments(t agent.Tool) {
	if a == nil {
		return
	}
	known, all := arguments(t.InputSchema)
	for _, arg := range a.arguments {
		if all && !slices.Contains(known, arg.name) {
			arg.condition.mistakeAt("field", "the tool %q has no argument %q%s", t.Name, arg.name, suggest(arg.name, known))
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
	for _, elsewhere := range []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties", "unevaluatedProperties"} {
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
