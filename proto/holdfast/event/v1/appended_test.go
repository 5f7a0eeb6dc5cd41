package eventv1

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestAFrequentChunkHasAllFieldsOfItsEvent compares the chunks that are encoded without reflection with the encoding by
// reflection.
func TestAFrequentChunkHasAllFieldsOfItsEvent(t *testing.T) {
	t.Parallel()
	events := (&Chunk{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
	for i := range events.Len() {
		for _, filled := range []bool{false, true} {
			c := &Chunk{AgentId: "run-1", AgentType: "demo", Timestamp: 1700000000123, Step: 2}
			event := c.ProtoReflect().NewField(events.Get(i)).Message()
			if filled {
				fill(event)
			}
			c.ProtoReflect().Set(events.Get(i), protoreflect.ValueOfMessage(event))
			want, err := appendReflected(nil, c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := AppendChunk(nil, c)
			if err != nil || string(got) != string(want)+"}" {
				t.Errorf("%s: got %s, %v; want %s}", events.Get(i).Name(), got, err, want)
			}
		}
	}
}

// fill sets the fields with one value.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.Cardinality() == protoreflect.Repeated:
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("{\n\"of\":\r\n\"☃\"\n}"))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		}
	}
}
