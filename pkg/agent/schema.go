package agent

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent/internal/schema"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Schema is a compiled JSON Schema: draft 2020-12, and draft-07 where it uses other
// names. Nothing is loaded for it: references lead within it. Patterns are RE2.
// format describes and checks nothing. Immutable, and safe for concurrent use.
type Schema struct{ compiled *schema.Schema }

// CompileSchema reads a schema. Invalid (SCHEMA_INVALID) says what is wrong with it,
// and where.
func CompileSchema(raw json.RawMessage) (*Schema, error) {
	compiled, err := schema.Compile(raw)
	if err != nil {
		return nil, fault.New(fault.Invalid, "SCHEMA_INVALID", "%v", err)
	}
	return &Schema{compiled}, nil
}

// Check says what has to be changed about a JSON value so that it fits, with a JSON
// pointer for each place, and nil where it fits. The text is for a model: it
// is the same for the same value, and no longer than some kilobytes. The work and the
// depth are bounded; a value that would take more does not fit.
func (s *Schema) Check(value json.RawMessage) error {
	problems := s.compiled.Check(value)
	if len(problems) == 0 {
		return nil
	}
	return misfit(problems)
}

// ApplyDefaults gives the value with the defaults of the members that it leaves out,
// in nested objects too; an empty value counts as {}. Members that are there stay as
// they are, null too. The value is not held against the schema. Invalid (VALUE_INVALID) for what is not JSON or
// too large.
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

// misfit is why a value does not fit.
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
