package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// test is one condition on a value, which may not be there.
type test func(v any, there bool) bool

// condition is the tests of a field of a call's input, or of the state. All must hold.
type condition struct {
	path      []string
	fromState bool
	tests     []test
}

// holds reports whether all tests do.
func (c condition) holds(input any, state agent.State) bool {
	from := input
	if c.fromState {
		from = map[string]any(state)
	}
	above, _ := look(from, c.path[:len(c.path)-1]).(map[string]any)
	v, there := above[c.path[len(c.path)-1]]
	return !slices.ContainsFunc(c.tests, func(t test) bool { return !t(v, there) })
}

// approval reads who has to say yes to a call: "always", "never", or "when" any of some
// conditions holds. It gives what sets that, nil where nothing is said.
func (r *reader) approval(o *object) func(*agent.Tool) {
	v, there := o.field("approval")
	if !there {
		return nil
	}
	if _, ok := v.text(); ok {
		always := o.oneOf("approval", "always", "never") == "always"
		return func(t *agent.Tool) { t.Approval, t.ApproveWhen = always, nil }
	}
	rule := r.object(v, o.what+": approval")
	var conditions []condition
	for _, item := range rule.list("when") {
		conditions = append(conditions, r.condition(item, rule.what))
	}
	rule.end()
	if len(conditions) == 0 {
		rule.mistake("when", `approval is "always", "never", or {when: [...]} with conditions`)
	}
	when := func(input json.RawMessage, state agent.State) bool {
		decoded, err := decode(input)
		if err != nil {
			return true // a human sees what nobody can judge
		}
		return slices.ContainsFunc(conditions, func(c condition) bool { return c.holds(decoded, state) })
	}
	return func(t *agent.Tool) { t.Approval, t.ApproveWhen = false, when }
}

func (r *reader) condition(v value, what string) condition {
	o := r.object(v, what)
	field, state := o.text("field"), o.text("state")
	if (field == "") == (state == "") {
		o.mistake("field", "a condition is on either a field of the input or a key of the state: give field or state")
	}
	c := condition{path: strings.Split(field+state, "."), fromState: state != ""}
	if field != "" {
		r.fields = append(r.fields, judged{o, c.path[0]})
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
		if !o.has(operator.name) {
			continue
		}
		operand := o.json(operator.name)
		if operand == nil {
			continue
		}
		t, err := operator.make(operand)
		if err != nil {
			o.mistake(operator.name, "%s %v", operator.name, err)
			continue
		}
		c.tests = append(c.tests, t)
	}
	o.end()
	if len(c.tests) == 0 {
		o.mistake("field", "a condition needs one of equals, notEquals, greaterThan, lessThan, matches, exists")
	}
	return c
}

// judged is an argument that a condition is on.
type judged struct {
	at   *object
	name string
}

// checkFields refuses conditions on arguments that the tool does not have: such a one says the same
// of every call, and most of them that none has to wait for a human.
func (r *reader) checkFields(fields []judged, t agent.Tool) {
	known, all := arguments(t.InputSchema)
	for _, f := range fields {
		if all && !slices.Contains(known, f.name) {
			f.at.mistake("field", "the tool %q has no argument %q%s", t.Name, f.name, meant(f.name, known))
		}
	}
}

// arguments gives the names that a schema of arguments has, and whether it says that these
// are all.
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

func equals(operand json.RawMessage) (test, error) {
	want, err := decode(operand)
	return func(v any, there bool) bool { return there && same(v, want) }, err
}

func notEquals(operand json.RawMessage) (test, error) {
	want, err := decode(operand)
	return func(v any, there bool) bool { return !there || !same(v, want) }, err
}

func greaterThan(operand json.RawMessage) (test, error) {
	return compared(operand, func(sign int) bool { return sign > 0 })
}

func lessThan(operand json.RawMessage) (test, error) {
	return compared(operand, func(sign int) bool { return sign < 0 })
}

// compared tests a number. What is there and no number counts as one that needs a yes.
func compared(operand json.RawMessage, accept func(sign int) bool) (test, error) {
	limit, ok := number(json.Number(operand))
	if !ok {
		return nil, fmt.Errorf("must be a number")
	}
	return func(v any, there bool) bool {
		n, ok := number(v)
		return there && (!ok || accept(n.Cmp(limit)))
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
	return func(v any, there bool) bool { return there && expression.MatchString(shown(v)) }, nil
}

func exists(operand json.RawMessage) (test, error) {
	var want bool
	if err := json.Unmarshal(operand, &want); err != nil {
		return nil, fmt.Errorf("must be true or false")
	}
	return func(_ any, there bool) bool { return there == want }, nil
}

// decode reads JSON as a state holds it, with numbers as json.Number.
func decode(text json.RawMessage) (v any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&v)
	return v, err
}

// same compares JSON values; numbers by their value.
func same(a, b any) bool {
	x, isNumber := number(a)
	if y, ok := number(b); isNumber || ok {
		return isNumber && ok && x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, v := range a {
			if w, ok := b[key]; !ok || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}
	return a == b
}

// maxDigits bounds the numbers that are compared: an exponent may stand for a number
// that no memory holds.
const maxDigits = 400

func number(v any) (*big.Float, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > maxDigits {
		return nil, false
	}
	f, _, err := big.ParseFloat(n.String(), 10, 256, big.ToNearestEven)
	return f, err == nil
}
