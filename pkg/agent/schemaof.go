package agent

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// SchemaOf returns the JSON Schema for the JSON of a T, as encoding/json encodes it:
//
//   - A struct is an object without additional members. Fields without omitempty or omitzero are
//     required. The tag jsonschema is the description of a field.
//   - A pointer may be null, a slice may not.
//   - json.RawMessage and any allow every value. []byte is a base64 string.
//   - A number or boolean with the option string is a string.
//   - A type with UnmarshalText is a string. A type with UnmarshalJSON allows every value.
//
// Like regexp.MustCompile, it panics for a type without a schema: a function, a channel, a complex
// number, a map with keys other than strings, or a recursive type. Call it when the program starts.
func SchemaOf[T any]() json.RawMessage {
	schema, err := schemaOf(reflect.TypeFor[T]())
	if err != nil {
		panic(fmt.Sprintf("agent: the type %v has no JSON Schema: %v", reflect.TypeFor[T](), err))
	}
	return schema
}

// inputSchema is SchemaOf for the input of a tool. It panics for a type other than an object.
func inputSchema[In any](tool string) json.RawMessage {
	t := reflect.TypeFor[In]()
	schema, err := schemaOf(t)
	if err != nil {
		panic(fmt.Sprintf("agent: the input %v of the tool %q has no JSON Schema: %v", t, tool, err))
	}
	if !isObjectSchema(schema) {
		panic(fmt.Sprintf("agent: the input %v of the tool %q is not an object; use a struct", t, tool))
	}
	return schema
}

func schemaOf(t reflect.Type) (json.RawMessage, error) {
	special := map[reflect.Type]*jsonschema.Schema{}
	collectSpecial(t, special, map[reflect.Type]bool{})
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: special})
	if err != nil {
		return nil, err
	}
	quote(schema, t)
	tidy(schema)
	return json.Marshal(schema)
}

// collectSpecial collects the schemas of types with JSON of their own, such as []byte.
func collectSpecial(t reflect.Type, special map[reflect.Type]*jsonschema.Schema, seen map[reflect.Type]bool) {
	if seen[t] {
		return
	}
	seen[t] = true
	switch t {
	case reflect.TypeFor[json.Number]():
		special[t] = &jsonschema.Schema{Type: "number"}
		return
	case reflect.TypeFor[json.RawMessage]():
		special[t] = &jsonschema.Schema{}
		return
	case reflect.TypeFor[[]byte]():
		special[t] = &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		return
	case reflect.TypeFor[big.Int]():
		special[t] = &jsonschema.Schema{Type: "integer"}
		return
	}
	if s := customSchema(t); s != nil {
		special[t] = s
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		collectSpecial(t.Elem(), special, seen)
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			collectSpecial(field.Type, special, seen)
		}
	default: // has no parts
	}
}

// customSchema returns the schema of a type with its own UnmarshalJSON or UnmarshalText, else nil.
func customSchema(t reflect.Type) *jsonschema.Schema {
	if t.Name() == "" || t.Kind() == reflect.Interface || isKnown(t) {
		return nil
	}
	p := reflect.PointerTo(t)
	switch {
	case p.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return &jsonschema.Schema{}
	case p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// isKnown reports whether the schema library has a schema for a type with its own UnmarshalJSON or
// UnmarshalText, such as time.Time.
func isKnown(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || t.PkgPath() == "" {
		return false
	}
	s, err := jsonschema.ForType(t, nil)
	return err == nil && s.Type != "object"
}

// quote makes fields with the option string strings.
func quote(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s == nil || hasUnmarshaler(t) {
		return
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		quote(s.Items, t.Elem())
	case reflect.Map:
		quote(s.AdditionalProperties, t.Elem())
	case reflect.Struct:
		for name, field := range jsonFields(t) {
			if property := s.Properties[name]; property != nil {
				quoteField(property, field)
			}
		}
	default: // has no parts
	}
}

func quoteField(s *jsonschema.Schema, field reflect.StructField) {
	kind := field.Type.Kind()
	if kind == reflect.Pointer {
		kind = field.Type.Elem().Kind()
	}
	_, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	scalar := kind >= reflect.Bool && kind <= reflect.Float64
	if !scalar || !slices.Contains(strings.Split(options, ","), "string") {
		quote(s, field.Type)
		return
	}
	*s = jsonschema.Schema{Description: s.Description, Type: "string"}
	if field.Type.Kind() == reflect.Pointer {
		s.Type, s.Types = "", []string{"null", "string"}
	}
}

// tidy simplifies a schema for models and providers: a slice is an array and never null, and an object
// without members has empty properties.
func tidy(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Types, s.Type = nil, "array"
	}
	if s.Type == "object" && s.Properties == nil && s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.Properties = map[string]*jsonschema.Schema{}
	}
	tidy(s.Items)
	tidy(s.AdditionalProperties)
	for _, property := range s.Properties {
		tidy(property)
	}
}

func isObjectSchema(schema json.RawMessage) bool {
	var s struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(schema, &s) == nil && s.Type == "object"
}
