package agent

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// checkCase returns an error for a member that differs from a field only by the case of letters.
// encoding/json decodes it into the field, but JSON Schema does not check it as the field: the tool
// would receive an unchecked value. Invalid JSON is not an error here.
func checkCase(raw json.RawMessage, t reflect.Type) error {
	value, err := decode(raw)
	if err != nil {
		return nil //nolint:nilerr // decoding reports it
	}
	w := caseWalk{}
	return w.walk(value, t)
}

// caseWalk caches the field names of visited types.
type caseWalk map[reflect.Type]fieldNames

// fieldNames are the JSON names of the fields of a struct.
type fieldNames struct {
	types  map[string]reflect.Type
	folded map[string]string // folded name to name
}

func (w caseWalk) walk(value any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer && !hasUnmarshaler(t.Elem()) {
		t = t.Elem()
	}
	if hasUnmarshaler(t) {
		return nil
	}
	switch v := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for _, item := range v {
			if err := w.walk(item, t.Elem()); err != nil {
				return err
			}
		}
	case map[string]any:
		return w.object(v, t)
	}
	return nil
}

func (w caseWalk) object(object map[string]any, t reflect.Type) error {
	var fields fieldNames
	if t.Kind() == reflect.Struct {
		fields = w.fields(t)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) { // the error is the same each time
		of := fields.types[name]
		if t.Kind() == reflect.Map {
			of = t.Elem()
		}
		if of != nil {
			if err := w.walk(object[name], of); err != nil {
				return err
			}
		} else if field, similar := fields.folded[fold(name)]; similar {
			return fmt.Errorf("there is no member %q; it is called %q", name, field)
		}
	}
	return nil
}

func (w caseWalk) fields(t reflect.Type) fieldNames {
	fields, known := w[t]
	if known {
		return fields
	}
	fields = fieldNames{map[string]reflect.Type{}, map[string]string{}}
	named := jsonFields(t)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		fields.types[name] = named[name].Type
		fields.folded[fold(name)] = name
	}
	w[t] = fields
	return fields
}

// jsonFields returns the fields of a struct by JSON name.
func jsonFields(t reflect.Type) map[string]reflect.StructField {
	fields, depths := map[string]reflect.StructField{}, map[string]int{}
	for _, field := range reflect.VisibleFields(t) {
		tag := field.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if !field.IsExported() || tag == "-" || name == "" && isEmbedded(field) {
			continue
		}
		if name == "" {
			name = field.Name
		}
		if depth, taken := depths[name]; taken && depth <= len(field.Index) {
			continue // the outer field wins
		}
		depths[name] = len(field.Index)
		fields[name] = field
	}
	return fields
}

// isEmbedded reports whether a field is an embedded struct.
func isEmbedded(field reflect.StructField) bool {
	t := field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return field.Anonymous && t.Kind() == reflect.Struct
}

// hasUnmarshaler reports whether the type has its own UnmarshalJSON or UnmarshalText.
func hasUnmarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fold returns the same text for names that differ only by the case of letters, as in encoding/json.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		for {
			next := unicode.SimpleFold(r)
			if next <= r {
				return next
			}
			r = next
		}
	}, name)
}
