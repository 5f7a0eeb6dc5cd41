package config

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
)

// problem turns the parser's error into a sentence about the variable. It returns the error itself if no value
// of the variable can cause it.
func (f field) problem(values map[string]string, err error) (string, error) {
	v := f.variable()
	if _, ok := errors.AsType[env.VarIsNotSetError](err); ok {
		return v.Name + " is not set: set it" + f.purpose(), nil
	}
	if _, ok := errors.AsType[env.EmptyVarError](err); ok {
		return v.Name + " is not set: set it" + f.purpose(), nil
	}
	if file, ok := errors.AsType[env.LoadFileContentError](err); ok {
		return fmt.Sprintf("%s names a file that cannot be read: %v", v.Name, file.Err), nil
	}
	parse, ok := errors.AsType[env.ParseError](err)
	if !ok {
		return "", fmt.Errorf("%s: %w", v.Name, err)
	}
	if wanted := describe(f.Type); wanted != "" {
		return fmt.Sprintf("%s is %q: it must be %s%s", v.Name, values[v.Name], wanted, f.purpose()), nil
	}
	if f.quotable() {
		return fmt.Sprintf("%s is %q: %v%s", v.Name, values[v.Name], parse.Err, f.purpose()), nil
	}
	return v.Name + " cannot be read" + f.purpose(), nil
}

func (f field) purpose() string {
	if doc := f.Tag.Get("doc"); doc != "" {
		return " (" + doc + ")"
	}
	return ""
}

// quotable reports whether the value may be repeated in an error. Our own types list their valid values; a URL
// may hold a password.
func (f field) quotable() bool {
	return f.Type != reflect.TypeFor[url.URL]() && reflect.PointerTo(f.Type).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// describe describes the values of a type, or returns "" for an unknown type.
func describe(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "a duration such as 500ms, 30s or 5m"
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of at most %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number, 0 or more, of at most %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return listOf(describe(t.Elem()))
	default:
		return ""
	}
}

func listOf(element string) string {
	if element == "" {
		return ""
	}
	return "a list in which each element is " + element
}
