package contract_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api/contract"
)

// messages returns a new message of each type in the public contract.
func messages(t *testing.T) (all []protoreflect.Message) {
	t.Helper()
	protoregistry.GlobalTypes.RangeMessages(func(m protoreflect.MessageType) bool {
		if m.Descriptor().FullName().Parent() == "holdfast.agent.v1" {
			all = append(all, m.New())
		}
		return true
	})
	if len(all) < 50 {
		t.Fatalf("only %d types of messages are known", len(all))
	}
	return all
}

func TestEachRuleOfTheContractHasAFunction(t *testing.T) {
	t.Parallel()
	for _, m := range messages(t) {
		if _, err := contract.Check(m); err != nil {
			t.Error(err)
		}
	}
}

// fuzzer makes messages at the edges of rules.
type fuzzer struct{ *rand.Rand }

func (f fuzzer) pick(list ...any) any { return list[f.IntN(len(list))] }

func (f fuzzer) scalar(d protoreflect.FieldDescriptor) protoreflect.Value {
	switch d.Kind() {
	case protoreflect.StringKind:
		text, _ := f.pick("", "a", "user", "paused", "active", "a\u0085b", "a\nb", "日本", strings.Repeat("x", 256), strings.Repeat("x", 257),
			strings.Repeat("x", 320), strings.Repeat("x", 321), strings.Repeat("日", 86), strings.Repeat("x", 513)).(string)
		return protoreflect.ValueOfString(text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("b"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(f.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(f.IntN(8) - 1))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(0.5)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	}
	number, _ := f.pick(0, 1, -1, 49, 50, 99, 100, 101, 200, 201, -100, -101, 999, 1000, 1001, 25_000, 60_000, 60_001, 2_592_000_000, 2_592_000_001,
		253402300799999, 253402300800000, math.MaxInt64, math.MinInt64).(int)
	if d.Kind() == protoreflect.Int32Kind {
		return protoreflect.ValueOfInt32(int32(number))
	}
	return protoreflect.ValueOfInt64(int64(number))
}

func (f fuzzer) fill(m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		d := m.Descriptor().Fields().Get(i)
		switch {
		case f.IntN(3) == 0 || d.IsMap() || d.Message() != nil && depth == 0:
		case d.IsList():
			list := m.Mutable(d).List()
			size := f.IntN(3)
			if f.IntN(40) == 0 {
				size = 1000 + f.IntN(2)
			}
			for range size {
				if d.Message() == nil {
					list.Append(f.scalar(d))
					continue
				}
				item := list.NewElement()
				f.fill(item.Message(), depth-1)
				list.Append(item)
			}
		case d.Message() != nil:
			f.fill(m.Mutable(d).Message(), depth-1)
		default:
			m.Set(d, f.scalar(d))
		}
	}
}

// rounds is the number of messages of each type.
const rounds = 60

// Protovalidate evaluates the expressions themselves.
func TestTheFunctionsAgreeWithProtovalidate(t *testing.T) {
	t.Parallel()
	broken, valid := map[string]int{}, 0
	for _, empty := range messages(t) {
		for seed := range uint64(rounds) {
			m := empty.New()
			fuzzer{rand.New(rand.NewPCG(seed, 1))}.fill(m, 3)
			got, err := contract.Check(m)
			if err != nil {
				t.Fatal(err)
			}
			var want *contract.Violation
			err = protovalidate.Validate(m.Interface(), protovalidate.WithFailFast())
			if e, ok := errors.AsType[*protovalidate.ValidationError](err); ok {
				v := e.Violations[0].Proto
				want = &contract.Violation{Rule: v.GetRuleId(), Field: protovalidate.FieldPathString(v.GetField()), Text: v.GetMessage()}
			} else if err != nil {
				t.Fatal(err)
			}
			switch {
			case got == nil && want == nil:
				valid++
			case got == nil || want == nil || *got != *want:
				t.Errorf("%s, seed %d: got %+v, want %+v in %v", m.Descriptor().Name(), seed, got, want, proto.Message(m.Interface()))
			default:
				broken[got.Rule]++
			}
		}
	}
	if valid < 100 || len(broken) < 10 {
		t.Errorf("only %d valid messages, and broken were only %v", valid, broken)
	}
}
