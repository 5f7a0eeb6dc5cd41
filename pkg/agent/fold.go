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

// foldedMembers refuses members that differ from the name of a field by the case of
// letters alone. encoding/json takes them for the field, JSON Schema does not: what a
// tool got would be held against nothing. What is not JSON is nothing to refuse.
func foldedMembers(raw json.RawMessage, t reflect.Type) error {
	value, err := decode(raw)
	if err != nil {
		return nil //nolint:nilerr // whoever reads it into the type says so
	}
	w := foldWalk{}
	return w.walk(value, t)
}

// foldWalk has the names of the types that it has met.
type foldWalk map[reflect.Type]fieldNames

// fieldNames are the fields of a struct as JSON names them.
type fieldNames struct {
	types  map[string]reflect.Type
	folded map[string]string // names by their fold
}

func (w foldWalk) walk(value any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer && !readsItself(t.Elem()) {
		t = t.Elem()
	}
	if readsItself(t) {
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

func (w foldWalk) object(object map[string]any, t reflect.Type) error {
	var fields fieldNames
	if t.Kind() == reflect.Struct {
		fields = w.fields(t)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) { // the same is told in every attempt
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

func (w foldWalk) fields(t reflect.Type) fieldNames {
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

// jsonFields gives the fields of a struct by the names that they have in JSON.
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
			continue // the outer one counts
		}
		depths[name] = len(field.Index)
		fields[name] = field
	}
	return fields
}

// isEmbedded reports whether the fields of a field stand in its place.
func isEmbedded(field reflect.StructField) bool {
	t := field.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return field.Anonymous && t.Kind() == reflect.Struct
}

// readsItself reports whether encoding/json leaves reading to the type.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fold gives the same for texts that differ by the case of letters alone, as
// encoding/json sees it.
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
