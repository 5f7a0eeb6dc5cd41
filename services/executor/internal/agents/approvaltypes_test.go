package agents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// jsonValues has values of each type of JSON, by a name.
var jsonValues = map[string]string{
	"missing": "", "null": `null`, "true": `true`, "false": `false`, "number": `7`, "large number": `1e400`, "long number": strings.Repeat("9", 401),
	"string": `"seven"`, "digits": `"7"`, "empty string": `""`, "list": `[7]`, "list of texts": `["seven"]`, "empty list": `[]`, "object": `{"a":7}`, "empty object": `{}`,
}

func TestAConditionHoldsForEachTypeItCannotRead(t *testing.T) {
	t.Parallel()
	const none = "missing"
	for _, c := range []struct {
		operator string
		make     func(json.RawMessage) (test, error)
		operand  string
		not      string // the values that need no approval
	}{
		{"equals", equals, `7`, none + ", large number"},
		{"equals", equals, `"seven"`, none + ", digits, empty string"},
		{"equals", equals, `true`, none + ", false"},
		{"equals", equals, `null`, none},
		{"equals", equals, `[7]`, none + ", list of texts, empty list"},
		{"equals", equals, `{"a":7}`, none + ", empty object"},
		{"notEquals", notEquals, `7`, "number"},
		{"notEquals", notEquals, `"seven"`, "string"},
		{"notEquals", notEquals, `true`, "true"},
		{"notEquals", notEquals, `[7]`, "list"},
		{"greaterThan", greaterThan, `10`, none + ", number"},
		{"lessThan", lessThan, `5`, none + ", number, large number"},
		{"matches", matches, `"^sev"`, none + ", digits, empty string"},
		{"exists", exists, `true`, none},
		{"exists", exists, `false`, "null, true, false, number, large number, long number, string, digits, empty string, list, list of texts, empty list, object, empty object"},
	} {
		passes, err := c.make(json.RawMessage(c.operand))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range jsonValues {
			input := any(map[string]any{})
			if value != "" {
				if input, err = decode(json.RawMessage(fmt.Sprintf(`{"field":%s}`, value))); err != nil {
					t.Fatal(err)
				}
			}
			asks := condition{path: []string{"field"}, tests: []test{passes}}.holds(input, nil)
			wants := !strings.Contains(", "+c.not+",", ", "+name+",")
			if asks != wants {
				t.Errorf("%s %s of %s: got an approval %v, want %v", c.operator, c.operand, name, asks, wants)
			}
			if value == "" || strings.Contains(name, "object") {
				continue
			}
			below := condition{path: []string{"field", "below"}, tests: []test{passes}}
			if !below.holds(input, nil) {
				t.Errorf("%s %s below %s: got no approval", c.operator, c.operand, name)
			}
		}
	}
}
