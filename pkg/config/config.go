// Package config reads a process's configuration from environment variables into a struct. The struct's tags
// declare the variables.
//
//	type Config struct {
//		Listen string        `env:"HOLDFAST_STATE_LISTEN" envDefault:"127.0.0.1:7001" doc:"address to serve on"`
//		Grace  time.Duration `env:"HOLDFAST_STATE_GRACE" envDefault:"10s" doc:"time for calls to end at shutdown"`
//		RPC    rpc.Security  `envPrefix:"HOLDFAST_RPC_"`
//	}
//
// The tags are those of github.com/caarlos0/env: env names the variable and may add ",required"; envDefault is
// the value of an unset variable; envPrefix precedes the names in a nested struct. doc describes the variable, and
// secret:"true" keeps its value out of Settings. An empty variable counts as unset.
package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Variable is the declaration of one environment variable.
type Variable struct {
	Name     string // complete, with the prefixes of the enclosing structs
	Default  string // as written in the tag; "" for none
	Doc      string
	Required bool
	Secret   bool // its value must not be shown
}

// Load fills target, a pointer to a struct, from environ, a list of "NAME=value" as returned by os.Environ.
// Fields without an env tag, and fields without a value and a default, do not change. Nested structs are filled
// if they are values; pointers to structs are left alone.
//
// Invalid (CONFIG_INVALID): variables are missing or invalid. The detail names each of them with the required
// change, and does not repeat values that may be secret. Any other error is a mistake in the tags.
func Load(target any, environ []string) error {
	v := reflect.ValueOf(target)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("load configuration: want a pointer to a struct, got %T", target)
	}
	values := valuesOf(environ)
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	var problems []string
	for _, f := range fieldsOf(v.Type().Elem(), "", nil) {
		problem, err := f.load(v.Elem().FieldByIndex(f.index), values)
		if err != nil {
			return fmt.Errorf("load configuration: %w", err)
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	count := "1 variable is"
	if len(problems) > 1 {
		count = fmt.Sprintf("%d variables are", len(problems))
	}
	return fault.New(fault.Invalid, "CONFIG_INVALID", "%s missing or wrong:\n  %s", count, strings.Join(problems, "\n  "))
}

// Variables returns the declarations of target, a struct or a pointer to one, in the order of its fields.
func Variables(target any) []Variable {
	t := reflect.TypeOf(target)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var variables []Variable
	for _, f := range fieldsOf(t, "", nil) {
		variables = append(variables, f.variable())
	}
	return variables
}

// Unknown returns, sorted, the names in environ with the prefix that no target declares. Such a name is usually
// a typing error.
func Unknown(environ []string, prefix string, targets ...any) []string {
	unknown := valuesOf(environ)
	maps.DeleteFunc(unknown, func(name, _ string) bool { return !strings.HasPrefix(name, prefix) })
	for _, target := range targets {
		for _, v := range Variables(target) {
			delete(unknown, v.Name)
		}
	}
	return slices.Sorted(maps.Keys(unknown))
}

// Lookup returns a function that finds variables in environ, a list of "NAME=value", as os.LookupEnv does in the environment of
// the process. The last value of a variable counts.
func Lookup(environ []string) func(name string) (value string, ok bool) {
	values := valuesOf(environ)
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// valuesOf never returns nil: the parser would then read the process's own environment.
func valuesOf(environ []string) map[string]string {
	values := make(map[string]string, len(environ))
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok && name != "" {
			values[name] = value
		}
	}
	return values
}

// field is a field with an env tag, possibly nested.
type field struct {
	reflect.StructField
	index  []int // the path from the outermost struct
	prefix string
}

func fieldsOf(t reflect.Type, prefix string, path []int) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(slices.Clip(path), i)
		switch name, _, _ := strings.Cut(f.Tag.Get("env"), ","); {
		case !f.IsExported() || name == "-":
		case name != "":
			fields = append(fields, field{f, index, prefix})
		case f.Type.Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(f.Type, prefix+f.Tag.Get("envPrefix"), index)...)
		}
	}
	return fields
}

// alone returns a pointer to a new struct with only this field. The parser's errors name Go fields; with one
// field at a time, the error belongs to its variable.
func (f field) alone() reflect.Value {
	only := reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag}
	return reflect.New(reflect.StructOf([]reflect.StructField{only}))
}

func (f field) variable() Variable {
	name, options, _ := strings.Cut(f.Tag.Get("env"), ",")
	flags := strings.Split(options, ",")
	return Variable{
		Name:     f.prefix + name,
		Default:  f.Tag.Get("envDefault"),
		Doc:      f.Tag.Get("doc"),
		Required: slices.Contains(flags, "required") || slices.Contains(flags, "notEmpty"),
		Secret:   f.Tag.Get("secret") == "true",
	}
}

// load sets the field's value, or describes the problem with its variable.
func (f field) load(into reflect.Value, values map[string]string) (problem string, err error) {
	alone := f.alone()
	alone.Elem().Field(0).Set(into)
	if err := env.ParseWithOptions(alone.Interface(), env.Options{Environment: values, Prefix: f.prefix}); err != nil {
		return f.problem(values, err)
	}
	into.Set(alone.Elem().Field(0))
	return "", nil
}
