package eventv1

import (
	"encoding/json"
	"fmt"
	"strconv"

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
	if text := c.GetTextDelta(); text != nil { // the most frequent chunk needs no reflection
		b := appendHead(make([]byte, 0, 192+len(text.GetDelta())), c, "text_delta")
		return append(appendText(b, "delta", text.GetDelta()), '}'), nil
	}
	m := c.ProtoReflect()
	event := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
	if event == nil {
		return nil, fmt.Errorf("chunk of run %q has no event", c.GetAgentId())
	}
	b := appendHead(make([]byte, 0, 128+proto.Size(c)), c, string(event.Name()))
	b, err := appendFields(b, m.Get(event).Message())
	if err != nil {
		return nil, fmt.Errorf("chunk %s: %w", event.Name(), err)
	}
	return append(b, '}'), nil
}

// appendHead appends the common fields.
func appendHead(b []byte, c *Chunk, event string) []byte {
	b = append(append(append(b, `{"type":"`...), event...), '"')
	b = appendText(b, "agentId", c.GetAgentId())
	b = appendText(b, "agentType", c.GetAgentType())
	b = strconv.AppendInt(append(b, `,"timestamp":`...), c.GetTimestamp(), 10)
	return strconv.AppendInt(append(b, `,"step":`...), int64(c.GetStep()), 10)
}

func appendFields(b []byte, m protoreflect.Message) ([]byte, error) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		v := m.Get(f)
		var err error
		switch f.Kind() {
		case protoreflect.StringKind:
			if !isJSONText(f) {
				b = appendText(b, f.JSONName(), v.String())
				continue
			}
			b, err = appendJSON(b, f.JSONName(), v.String())
		case protoreflect.BoolKind:
			b = strconv.AppendBool(appendName(b, f.JSONName()), v.Bool())
		case protoreflect.Int32Kind, protoreflect.Int64Kind:
			b = strconv.AppendInt(appendName(b, f.JSONName()), v.Int(), 10)
		case protoreflect.MessageKind:
			if m.Has(f) {
				b, err = appendObject(b, f.JSONName(), v.Message())
			}
		default:
			err = fmt.Errorf("field %s has a kind without a native form: %v", f.Name(), f.Kind())
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendObject(b []byte, name string, m protoreflect.Message) ([]byte, error) {
	inner, err := appendFields(nil, m)
	if err != nil {
		return nil, err
	}
	b = append(appendName(b, name), '{')
	if len(inner) > 0 {
		b = append(b, inner[1:]...) // without the first comma
	}
	return append(b, '}'), nil
}

func appendJSON(b []byte, name, text string) ([]byte, error) {
	if text == "" {
		return b, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("field %s is not JSON", name)
	}
	return appendOneLine(appendName(b, name), text), nil
}

// appendOneLine drops line breaks, which would end a line of server-sent events. Valid JSON has
// them only between tokens.
func appendOneLine(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c != '\n' && c != '\r' {
			b = append(b, c)
		}
	}
	return b
}

func appendText(b []byte, name, value string) []byte {
	if isPlain(value) {
		b = append(append(appendName(b, name), '"'), value...)
		return append(b, '"')
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		panic(err) // a string always marshals
	}
	return append(appendName(b, name), quoted...)
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

func isJSONText(f protoreflect.FieldDescriptor) bool {
	o, ok := f.Options().(*descriptorpb.FieldOptions)
	return ok && proto.GetExtension(o, E_JsonText).(bool)
}
