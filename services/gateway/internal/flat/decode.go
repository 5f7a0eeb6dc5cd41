package flat

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// decode sets the fields of m that the JSON object has: the inverse of eventv1.MarshalMessage. null
// leaves a field unset, unless the field is a JSON value in a oneof. Invalid (BODY_INVALID): another type, a key that is not a field or hidden, a
// key twice, or two keys of which only one may be there. path is the place in the body.
func decode(text []byte, m protoreflect.Message, path string, hidden ...string) error {
	object, err := members(text, path)
	if err != nil {
		return err
	}
	for _, member := range object {
		f := m.Descriptor().Fields().ByJSONName(member.key)
		if f == nil || slices.Contains(hidden, member.key) {
			return fault.New(fault.Invalid, "BODY_INVALID",
				"there is no key %.100q here; the keys are %s", join(path, member.key), keys(m.Descriptor(), hidden))
		}
		if string(member.value) == "null" && (f.ContainingOneof() == nil || !eventv1.IsJSONText(f)) {
			continue
		}
		if other := otherOf(m, f); other != "" {
			return fault.New(fault.Invalid, "BODY_INVALID", "give only one of %.100s and %.100s", join(path, other), join(path, member.key))
		}
		if err := setField(m, f, member.value, join(path, member.key)); err != nil {
			return err
		}
	}
	return nil
}

// otherOf returns the name of another field of f's oneof that is set; "" for none.
func otherOf(m protoreflect.Message, f protoreflect.FieldDescriptor) string {
	if f.ContainingOneof() == nil {
		return ""
	}
	if set := m.WhichOneof(f.ContainingOneof()); set != nil {
		return set.JSONName()
	}
	return ""
}

// member is a member of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// members returns the members of a JSON object, in order. Invalid (BODY_INVALID): it is not an
// object, or has a key twice.
func members(text []byte, path string) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, wrongType(path, "an object")
	}
	var out []member
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		name, ok := key.(string)
		if err != nil || !ok {
			return nil, wrongType(path, "an object")
		}
		if seen[name] {
			return nil, fault.New(fault.Invalid, "BODY_INVALID", "the key %.100q occurs twice", join(path, name))
		}
		seen[name] = true
		out = append(out, member{name, value})
	}
	return out, nil
}

func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, text []byte, path string) error {
	switch {
	case f.IsList():
		return setList(m.Mutable(f).List(), f, text, path)
	case f.IsMap():
		return setMap(m.Mutable(f).Map(), f.MapValue(), text, path)
	case f.Message() != nil:
		inner := m.Mutable(f).Message()
		if only := eventv1.Wrapped(f.Message()); only != nil {
			return setField(inner, only, text, path)
		}
		return decode(text, inner, path)
	}
	value, err := scalar(f, text, path)
	if err == nil {
		m.Set(f, value)
	}
	return err
}

func setList(list protoreflect.List, f protoreflect.FieldDescriptor, text []byte, path string) error {
	var values []json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return wrongType(path, "an array")
	}
	for i, value := range values {
		at := path + "[" + strconv.Itoa(i) + "]"
		if f.Message() != nil {
			if err := decode(value, list.AppendMutable().Message(), at); err != nil {
				return err
			}
			continue
		}
		one, err := scalar(f, value, at)
		if err != nil {
			return err
		}
		list.Append(one)
	}
	return nil
}

// setMap sets a map of strings.
func setMap(m protoreflect.Map, f protoreflect.FieldDescriptor, text []byte, path string) error {
	values, err := members(text, path)
	if err != nil {
		return err
	}
	for _, pair := range values {
		one, err := scalar(f, pair.value, join(path, pair.key))
		if err != nil {
			return err
		}
		m.Set(protoreflect.ValueOfString(pair.key).MapKey(), one)
	}
	return nil
}

func scalar(f protoreflect.FieldDescriptor, text []byte, path string) (protoreflect.Value, error) {
	if eventv1.IsJSONText(f) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil { // the body is valid
			return protoreflect.Value{}, wrongType(path, "JSON")
		}
		return protoreflect.ValueOfString(compact.String()), nil
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		var value bool
		if json.Unmarshal(text, &value) != nil {
			return protoreflect.Value{}, wrongType(path, "true or false")
		}
		return protoreflect.ValueOfBool(value), nil
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return integer(f, string(text), path)
	default:
		var value string
		if json.Unmarshal(text, &value) != nil || string(text) == "null" {
			return protoreflect.Value{}, wrongType(path, "a string")
		}
		if f.Kind() == protoreflect.EnumKind {
			return enumValue(f.Enum(), value, path)
		}
		return protoreflect.ValueOfString(value), nil
	}
}

func integer(f protoreflect.FieldDescriptor, text, path string) (protoreflect.Value, error) {
	if f.Kind() == protoreflect.Int32Kind {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return protoreflect.Value{}, wrongType(path, "an integer below 2^31")
		}
		return protoreflect.ValueOfInt32(int32(n)), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return protoreflect.Value{}, wrongType(path, "an integer")
	}
	return protoreflect.ValueOfInt64(n), nil
}

func enumValue(enum protoreflect.EnumDescriptor, word, path string) (protoreflect.Value, error) {
	for i := range enum.Values().Len() {
		if number := enum.Values().Get(i).Number(); word == eventv1.EnumWord(enum, number) {
			return protoreflect.ValueOfEnum(number), nil
		}
	}
	return protoreflect.Value{}, wrongType(path, "one of "+strings.Join(Words(enum), ", "))
}

// Words returns the words of an enum, without the unspecified one.
func Words(enum protoreflect.EnumDescriptor) []string {
	var words []string
	for i := range enum.Values().Len() {
		if word := eventv1.EnumWord(enum, enum.Values().Get(i).Number()); word != "" {
			words = append(words, word)
		}
	}
	return words
}

func wrongType(path, wanted string) error {
	if path == "" {
		path = "the body"
	}
	return fault.New(fault.Invalid, "BODY_INVALID", "%.200s has to be %s", path, wanted)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func keys(m protoreflect.MessageDescriptor, hidden []string) string {
	var names []string
	for i := range m.Fields().Len() {
		if name := m.Fields().Get(i).JSONName(); !slices.Contains(hidden, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// encode returns the JSON of an answer. The fields of the message in the field inline, if any, are
// those of the answer itself.
func encode(m proto.Message, inline string) (json.RawMessage, error) {
	text, err := eventv1.MarshalMessage(m)
	if err != nil || inline == "" {
		return text, err
	}
	r := m.ProtoReflect()
	f := r.Descriptor().Fields().ByJSONName(inline)
	inner, err := eventv1.MarshalMessage(r.Get(f).Message().Interface())
	if err != nil {
		return nil, err
	}
	rest := r.New()
	r.Range(func(other protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if other != f {
			rest.Set(other, v)
		}
		return true
	})
	outer, err := eventv1.MarshalMessage(rest.Interface())
	if err != nil || len(outer) == len("{}") {
		return inner, err
	}
	return append(append(inner[:len(inner)-1], ','), outer[1:]...), nil
}
