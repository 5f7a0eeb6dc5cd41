package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// requiring returns a schema with the required properties p0, p1, ...
func requiring(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%q", fmt.Sprint("p", i))
	}
	return `{"required":[` + strings.Join(names, ",") + `]}`
}

func TestAChangeIsRefusedOnlyForProblemsThatItAdds(t *testing.T) {
	t.Parallel()
	texts := `{"items":{"type":"string"}}`
	for _, c := range []struct {
		name, schema, before, after string
		refused                     bool
	}{
		{"one of many missing members comes", requiring(10), `{}`, `{"p0":"x"}`, false},
		{"another of many members goes", requiring(12), `{"p11":1}`, `{}`, true},
		{"a long list gets shorter", `{"maxItems":3}`, `[1,2,3,4,5]`, `[1,2,3,4]`, false},
		{"a large number gets smaller", `{"maximum":10}`, `20`, `15`, false},
		{"a number leaves its bounds", `{"maximum":10}`, `5`, `15`, true},
		{"a wrong item moves", texts, `["a",1]`, `[1]`, false},
		{"an item becomes wrong", texts, `["a",1]`, `[2,1]`, true},
		{"many items are wrong, and one more", texts, `[1,2,3,4,5,6,7,8,9,"a"]`, `[1,2,3,4,5,6,7,8,9,10]`, true},
		{"a wrong value of another type", `{"type":"string"}`, `1`, `true`, false},
		{"a value breaks another rule", `{"type":"string","minLength":2}`, `1`, `"x"`, true},
		{"the rule is broken in another member", `{"properties":{"a":{"type":"string"},"b":{"type":"string"}}}`, `{"a":1}`, `{"b":1}`, true},
		{"a wrong member of an item moves", `{"items":{"properties":{"a":{"type":"string"}}}}`, `[{},{"a":1}]`, `[{"a":1}]`, false},
		{"a wrong alternative changes", `{"anyOf":[{"type":"string"},{"minimum":5}]}`, `1`, `2`, false},
		{"no JSON before", `{"type":"string"}`, ``, `1`, true},
		{"no JSON after", `{"type":"string"}`, `1`, ``, true},
	} {
		s, err := agent.CompileSchema(json.RawMessage(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckChange(json.RawMessage(c.before), json.RawMessage(c.after)); (err != nil) != c.refused {
			t.Errorf("%s, from %s to %s: got %v, want refused: %t", c.name, c.before, c.after, err, c.refused)
		}
	}
}

func TestAChangeOfALargeWrongValueIsCheckedQuickly(t *testing.T) {
	t.Parallel()
	s, err := agent.CompileSchema(json.RawMessage(`{"items":{"type":"string"}}`))
	if err != nil {
		t.Fatal(err)
	}
	wrong := "[" + strings.Repeat("1,", 500_000) + "1"
	if err := s.CheckChange(json.RawMessage(wrong+"]"), json.RawMessage(wrong+`,"x"]`)); err != nil {
		t.Error(err)
	}
	if err := s.CheckChange(json.RawMessage(wrong+"]"), json.RawMessage(wrong+`,1]`)); err == nil || !strings.HasPrefix(err.Error(), "/500001 ") {
		t.Errorf("got %v, want the added item", err)
	}
}
