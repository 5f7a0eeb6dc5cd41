package eventv1

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Type returns the chunk's type on the native wire, for example "text_delta": the name of the set
// event; "" if none is set.
func (c *Chunk) Type() string {
	m := c.ProtoReflect()
	event := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
	if event == nil {
		return ""
	}
	return string(event.Name())
}

// MarshalChunk returns the native JSON of a chunk, the flat object described at Chunk, on one line.
// The common fields and the fields of the event are always present, except empty JSON texts. It
// fails if no event is set or if a JSON text is invalid.
func MarshalChunk(c *Chunk) ([]byte, error) {
	return AppendChunk(make([]byte, 0, headBytes+proto.Size(c)), c)
}

// headBytes is about the size of a chunk's common fields and names, without the texts.
const headBytes = 128

// AppendChunk appends the JSON of MarshalChunk.
func AppendChunk(b []byte, c *Chunk) (_ []byte, err error) {
	switch e := c.GetEvent().(type) { // the frequent chunks need no reflection
	case *Chunk_TextDelta:
		b = appendText(appendHead(b, c, "text_delta"), "delta", e.TextDelta.GetDelta())
	case *Chunk_StepStarted:
		b = appendHead(b, c, "step_started")
	case *Chunk_StepCommitted:
		b = appendText(appendHead(b, c, "step_committed"), "checkpointId", e.StepCommitted.GetCheckpointId())
	case *Chunk_ToolArgStreamStart:
		b = appendCall(appendHead(b, c, "tool_arg_stream_start"), e.ToolArgStreamStart)
		b = appendBool(b, "dynamic", e.ToolArgStreamStart.GetDynamic())
	case *Chunk_ToolArgStreamDelta:
		b = appendText(appendHead(b, c, "tool_arg_stream_delta"), "toolCallId", e.ToolArgStreamDelta.GetToolCallId())
		b = appendText(b, "delta", e.ToolArgStreamDelta.GetDelta())
	case *Chunk_ToolArgStreamEnd:
		b = appendText(appendHead(b, c, "tool_arg_stream_end"), "toolCallId", e.ToolArgStreamEnd.GetToolCallId())
	case *Chunk_ToolStart:
		b, err = appendJSON(appendCall(appendHead(b, c, "tool_start"), e.ToolStart), "arguments", e.ToolStart.GetArguments())
		b = appendBool(b, "awaitsClient", e.ToolStart.GetAwaitsClient())
		b = appendBool(b, "dynamic", e.ToolStart.GetDynamic())
	case *Chunk_ToolEnd:
		b, err = appendJSON(appendCall(appendHead(b, c, "tool_end"), e.ToolEnd), "result", e.ToolEnd.GetResult())
		b = appendBool(b, "success", e.ToolEnd.GetSuccess())
		b = appendText(b, "error", e.ToolEnd.GetError())
	default:
		b, err = appendReflected(b, c)
	}
	if err != nil {
		return nil, fmt.Errorf("chunk %s of run %q: %w", c.Type(), c.GetAgentId(), err)
	}
	return append(b, '}'), nil
}

// appendReflected appends the common fields and those of any event.
func appendReflected(b []byte, c *Chunk) ([]byte, error) {
	m := c.ProtoReflect()
	event := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
	if event == nil {
		return nil, errors.New("it has no event")
	}
	return appendFields(appendHead(b, c, string(event.Name())), m.Get(event).Message())
}

func appendCall(b []byte, of interface {
	GetToolCallId() string
	GetToolName() string
}) []byte {
	return appendText(appendText(b, "toolCallId", of.GetToolCallId()), "toolName", of.GetToolName())
}

func appendBool(b []byte, name string, value bool) []byte {
	return strconv.AppendBool(appendName(b, name), value)
}

// appendHead appends the common fields.
func appendHead(b []byte, c *Chunk, event string) []byte {
	b = append(append(append(b, `{"type":"`...), event...), '"')
	b = appendText(b, "agentId", c.GetAgentId())
	b = appendText(b, "agentType", c.GetAgentType())
	b = strconv.AppendInt(append(b, `,"timestamp":`...), c.GetTimestamp(), 10)
	return strconv.AppendInt(append(b, `,"step":`...), int64(c.GetStep()), 10)
}

// MarshalMessage returns the native JSON of a message, on one line: an object with the fields in the
// order of the contract. Names are camelCase, numbers are numbers, JSON texts are values, and enums
// are words without the enum's name. Fields are always present, except unset messages, unset members
// of a oneof, unset optional fields and empty JSON texts. A message with one list or one map, inside
// another message, is that list or map. It fails if a JSON text is invalid.
func MarshalMessage(m proto.Message) ([]byte, error) {
	return appendMessage(nil, m.ProtoReflect())
}

func appendMessage(b []byte, m protoreflect.Message) ([]byte, error) {
	inner, err := appendFields(nil, m)
	if err != nil {
		return nil, err
	}
	b = append(b, '{')
	if len(inner) > 0 {
		b = append(b, inner[1:]...) // without the first comma
	}
	return append(b, '}'), nil
}

func appendFields(b []byte, m protoreflect.Message) ([]byte, error) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		v := m.Get(f)
		var err error
		switch {
		case f.IsList():
			b, err = appendList(appendName(b, f.JSONName()), f, v.List())
		case f.IsMap():
			b, err = appendMap(appendName(b, f.JSONName()), f.MapValue(), v.Map())
		case IsJSONText(f):
			b, err = appendJSON(b, f.JSONName(), v.String())
		case f.Kind() == protoreflect.StringKind:
			b = appendText(b, f.JSONName(), v.String())
		default:
			b, err = appendValue(appendName(b, f.JSONName()), f, v)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Name(), err)
		}
	}
	return b, nil
}

func appendList(b []byte, f protoreflect.FieldDescriptor, list protoreflect.List) (_ []byte, err error) {
	b = append(b, '[')
	for i := range list.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, f, list.Get(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendMap appends a map with string keys, sorted.
func appendMap(b []byte, f protoreflect.FieldDescriptor, m protoreflect.Map) (_ []byte, err error) {
	var keys []string
	for key := range m.Range {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, key), ':')
		if b, err = appendValue(b, f, m.Get(protoreflect.ValueOfString(key).MapKey())); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendValue appends a value that is neither a list nor a map.
func appendValue(b []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return appendQuoted(b, v.String()), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool()), nil
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case protoreflect.DoubleKind:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64), nil
	case protoreflect.EnumKind:
		return appendQuoted(b, EnumWord(f.Enum(), v.Enum())), nil
	case protoreflect.MessageKind:
		if only := Wrapped(f.Message()); only != nil && only.IsList() {
			return appendList(b, only, v.Message().Get(only).List())
		} else if only != nil {
			return appendMap(b, only.MapValue(), v.Message().Get(only).Map())
		}
		return appendMessage(b, v.Message())
	default:
		return nil, fmt.Errorf("the kind %v has no native form", f.Kind())
	}
}

// Wrapped returns the field of a message that has one list or one map alone; nil for others.
func Wrapped(m protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	if m.Fields().Len() != 1 || m.Fields().Get(0).Cardinality() != protoreflect.Repeated {
		return nil
	}
	return m.Fields().Get(0)
}

// EnumWord returns the native word of an enum's value: its name in lower case without that of the
// enum, "" for the unspecified value and for unknown ones.
func EnumWord(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	value := enum.Values().ByNumber(number)
	if number == 0 || value == nil {
		return ""
	}
	unspecified := string(enum.Values().ByNumber(0).Name())
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), strings.TrimSuffix(unspecified, "UNSPECIFIED")))
}

func appendJSON(b []byte, name, text string) ([]byte, error) {
	if text == "" {
		return b, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, errors.New("it is not JSON")
	}
	return appendOneLine(appendName(b, name), text), nil
}

// appendOneLine drops line breaks, which would end a line of server-sent events. Valid JSON has
// them only between tokens.
func appendOneLine(b []byte, text string) []byte {
	for at := strings.IndexAny(text, "\n\r"); at >= 0; at = strings.IndexAny(text, "\n\r") {
		b = append(b, text[:at]...)
		text = text[at+1:]
	}
	return append(b, text...)
}

func appendText(b []byte, name, value string) []byte {
	return appendQuoted(appendName(b, name), value)
}

func appendQuoted(b []byte, value string) []byte {
	if isPlain(value) {
		return append(append(append(b, '"'), value...), '"')
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		panic(err) // a string always marshals
	}
	return append(b, quoted...)
}

// isPlain reports whether a text needs no escaping in JSON: ASCII without the characters that
// package json escapes.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

func appendName(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

// IsJSONText reports whether the field is a string with a JSON text.
func IsJSONText(f protoreflect.FieldDescriptor) bool {
	o, ok := f.Options().(*descriptorpb.FieldOptions)
	return ok && proto.GetExtension(o, E_JsonText).(bool)
}
