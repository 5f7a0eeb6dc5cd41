package flat

import (
	"math"
	"net/url"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// A query names fields as a body does: a list repeats its name (tags=a&tags=b), a map has its keys in
// brackets (metadata[key]=value).

// parametersOf returns the parameters for the fields of a request, without those in the path.
func (d definition) parametersOf(m protoreflect.MessageDescriptor) []httpapi.Parameter {
	var out []httpapi.Parameter
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if name := d.nameOf(f); !d.inPath(name) {
			out = append(out, d.parameterOf(name, f))
		}
	}
	return out
}

func (d definition) parameterOf(name string, f protoreflect.FieldDescriptor) httpapi.Parameter {
	p := httpapi.Parameter{
		Name: name, Field: f.FullName(), Many: f.IsList(), Pairs: f.IsMap(), Min: d.limits[name].Min, Max: d.limits[name].Max,
	}
	p.Default = d.limits[name].Default
	switch f.Kind() {
	case protoreflect.BoolKind:
		p.Type = httpapi.Boolean
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		p.Type = httpapi.Integer
		if p.Max == 0 && f.Kind() == protoreflect.Int32Kind {
			p.Max = math.MaxInt32
		} else if p.Max == 0 {
			p.Max = maxSafe
		}
	case protoreflect.EnumKind:
		p.Words = Words(f.Enum())
	default:
		if strings.HasSuffix(name, "Id") {
			p.Type = httpapi.ID
		}
	}
	p.Required = name == "sessionId" && d.pattern != "/sessions" && d.pattern != "/audit" // all lists of one session
	return p
}

// maxSafe is the largest integer that JavaScript represents exactly.
const maxSafe = 1<<53 - 1

// setQuery sets the fields of m from the query. Invalid (PARAMETER_INVALID, ID_INVALID).
func (d definition) setQuery(query url.Values, m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f, name := fields.Get(i), d.nameOf(fields.Get(i))
		switch {
		case f.IsMap():
			for key, values := range query {
				inner, ok := strings.CutPrefix(key, name+"[")
				if !ok || !strings.HasSuffix(inner, "]") {
					continue
				}
				if err := checkText(name, key+values[0]); err != nil {
					return err
				}
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(strings.TrimSuffix(inner, "]")).MapKey(), protoreflect.ValueOfString(values[0]))
			}
		case f.IsList():
			for _, text := range query[name] {
				value, err := queryValue(d.parameterOf(name, f), f, text)
				if err != nil {
					return err
				}
				m.Mutable(f).List().Append(value)
			}
		case query.Get(name) != "":
			if other := otherOf(m, f); other != "" {
				return fault.New(fault.Invalid, "PARAMETER_INVALID", "give only one of %s and %s", other, name)
			}
			value, err := queryValue(d.parameterOf(name, f), f, query.Get(name))
			if err != nil {
				return err
			}
			m.Set(f, value)
		}
	}
	return nil
}

// checkText gives Invalid (PARAMETER_INVALID) for invalid UTF-8.
func checkText(name, text string) error {
	if !utf8.ValidString(text) {
		return fault.New(fault.Invalid, "PARAMETER_INVALID", "%s is not UTF-8", name)
	}
	return nil
}

func queryValue(p httpapi.Parameter, f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	if p.Type == httpapi.Boolean {
		on, err := p.ParseBool(text)
		return protoreflect.ValueOfBool(on), err
	}
	if p.Type == httpapi.Integer {
		n, err := p.ParseNumber(text)
		if f.Kind() == protoreflect.Int32Kind {
			return protoreflect.ValueOfInt32(int32(n)), err
		}
		return protoreflect.ValueOfInt64(n), err
	}
	if f.Kind() != protoreflect.EnumKind {
		if p.Type == httpapi.ID {
			return protoreflect.ValueOfString(text), httpapi.CheckID(p.Name, text)
		}
		return protoreflect.ValueOfString(text), checkText(p.Name, text)
	}
	for i := range f.Enum().Values().Len() {
		if number := f.Enum().Values().Get(i).Number(); text == eventv1.EnumWord(f.Enum(), number) {
			return protoreflect.ValueOfEnum(number), nil
		}
	}
	return protoreflect.Value{}, fault.New(fault.Invalid, "PARAMETER_INVALID",
		"%s is %.50q: it must be one of %s", p.Name, text, strings.Join(p.Words, ", "))
}
