package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// maxDepth bounds how deep arguments are held against a schema.
const maxDepth = 32

// schema is what of JSON Schema (2020-12) is checked before a tool runs: types,
// required members, enumerations, items and closed objects. The rest is for
// the tool.
type schema struct {
	Type                 typeNames         `json:"type"`
	Properties           map[string]schema `json:"properties"`
	Required             []string          `json:"required"`
	Items                *schema           `json:"items"`
	Enum                 []any             `json:"enum"`
	AdditionalProperties *json.RawMessage  `json:"additionalProperties"`
}

// typeNames is one type or several.
type typeNames []string

func (t *typeNames) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(t))
	}
	var one string
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*t = typeNames{one}
	return nil
}

// checkArguments says what is wrong with the arguments of a call, "" when they
// fit. A schema that cannot be read (a boolean, for example) checks nothing
// beyond the object.
func checkArguments(inputSchema, arguments json.RawMessage) string {
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "the arguments are not JSON; send one JSON object"
	}
	object, ok := value.(map[string]any)
	if !ok {
		if _, text := value.(string); text {
			return "the arguments are not a JSON object, or not JSON at all; send one JSON object"
		}
		return "the arguments are not a JSON object"
	}
	var s schema
	if err := json.Unmarshal(inputSchema, &s); err != nil {
		return ""
	}
	return s.check(object, "", 0)
}

func (s schema) check(value any, path string, depth int) string {
	if depth > maxDepth {
		return ""
	}
	if len(s.Type) > 0 && !slices.ContainsFunc(s.Type, func(name string) bool { return is(value, name) }) {
		return fmt.Sprintf("%s: want %s, got %s", place(path), strings.Join(s.Type, " or "), typeOf(value))
	}
	if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(allowed any) bool { return same(allowed, value) }) {
		return fmt.Sprintf("%s: not one of the allowed values", place(path))
	}
	switch v := value.(type) {
	case map[string]any:
		return s.checkObject(v, path, depth)
	case []any:
		return s.checkItems(v, path, depth)
	}
	return ""
}

func (s schema) checkObject(object map[string]any, path string, depth int) string {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Sprintf("%s: %q is missing", place(path), name)
		}
	}
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names) // the first problem is the same in every attempt
	for _, name := range names {
		property, ok := s.Properties[name]
		if !ok {
			if s.AdditionalProperties != nil && string(*s.AdditionalProperties) == "false" {
				return fmt.Sprintf("%s: %q is not known", place(path), name)
			}
			continue
		}
		if problem := property.check(object[name], path+"/"+name, depth+1); problem != "" {
			return problem
		}
	}
	return ""
}

func (s schema) checkItems(items []any, path string, depth int) string {
	if s.Items == nil {
		return ""
	}
	for i, item := range items {
		if problem := s.Items.check(item, fmt.Sprintf("%s/%d", path, i), depth+1); problem != "" {
			return problem
		}
	}
	return ""
}

func place(path string) string {
	if path == "" {
		return "the arguments do not fit"
	}
	return "the arguments do not fit at " + path
}

// is reports whether a value is of a type of JSON Schema. Unknown types fit
// everything.
func is(value any, name string) bool {
	got := typeOf(value)
	switch name {
	case "number":
		return got == "number" || got == "integer"
	case "object", "array", "string", "integer", "boolean", "null":
		return got == name
	}
	return true
}

func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		// 1.0 is an integer to JSON Schema.
		if f, err := v.Float64(); err == nil && f == float64(int64(f)) {
			return "integer"
		}
		return "number"
	}
	return "object"
}

func same(allowed, value any) bool {
	number, ok := value.(json.Number)
	if !ok {
		return reflect.DeepEqual(allowed, value)
	}
	f, err := number.Float64()
	return err == nil && allowed == f
}
