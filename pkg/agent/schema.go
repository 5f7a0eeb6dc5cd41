package agent

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Schema is a compiled JSON Schema of draft 2020-12 or draft-07. References must stay within the
// schema: nothing is ever loaded. Patterns are regular expressions of ECMA-262. format is not checked. Immutable, and safe for
// concurrent use.
type Schema struct{ compiled *schema.Schema }

// CompileSchema compiles a schema. Invalid (SCHEMA_INVALID) names the place of the first problem.
func CompileSchema(raw json.RawMessage) (*Schema, error) {
	compiled, err := schema.Compile(raw)
	if err != nil {
		return nil, fault.New(fault.Invalid, "SCHEMA_INVALID", "%v", err)
	}
	return &Schema{compiled}, nil
}

// Check returns nil if a JSON value fits the schema. Otherwise the text of the error names what to
// change, with a JSON pointer for each place. It is written for a model: it is the same each time,
// and at most a few kilobytes long. Work and depth are bounded; a value beyond the bounds does not
// fit.
func (s *Schema) Check(value json.RawMessage) error {
	problems := s.compiled.Check(value)
	if len(problems) == 0 {
		return nil
	}
	return misfit(problems)
}

// CheckChange is Check for a change from one value to another. It returns nil if after breaks no rule
// more often than before at any place, with all items of a list as one place. So a wrong value may
// become another one that breaks the same rule: a change is not refused for what it did not break.
func (s *Schema) CheckChange(before, after json.RawMessage) error {
	problems := s.compiled.CheckChange(before, after)
	if len(problems) == 0 {
		return nil
	}
	return misfit(problems)
}

// ApplyDefaults returns the value with the defaults of missing members, in nested objects too. An empty
// value counts as {}. Existing members stay, including null. The value is not checked against the
// schema. Invalid (VALUE_INVALID) for a value other than JSON, or too large.
func (s *Schema) ApplyDefaults(value json.RawMessage) (json.RawMessage, error) {
	if len(value) == 0 {
		value = json.RawMessage("{}")
	}
	filled, err := s.compiled.ApplyDefaults(value)
	if err != nil {
		return nil, fault.New(fault.Invalid, "VALUE_INVALID", "%v", err)
	}
	return filled, nil
}

// maxPointer bounds the pointers in texts, in bytes.
const maxPointer = 300

// misfit is the problems of a value that does not fit.
type misfit []schema.Problem

func (m misfit) Error() string {
	texts := make([]string, len(m))
	for i, p := range m {
		where := p.Path
		switch {
		case where == "":
			where = "the value"
		case len(where) > maxPointer:
			where = strings.ToValidUTF8(where[:maxPointer], "") + "…"
		}
		texts[i] = where + " " + p.Text
	}
	return strings.Join(texts, "; ")
}
