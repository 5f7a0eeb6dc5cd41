package flat

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Rule is a rule of the contract for a field of a request.
type Rule struct {
	Field  string // "" for the whole message
	Text   string // such as "id 256", or the reason
	Reason string // of a refusal; "" for REQUEST_INVALID
}

// Rules returns the rules of a message and of the messages in it. Package api checks them.
func Rules(m protoreflect.MessageDescriptor) []Rule {
	var out []Rule
	if rules, ok := proto.GetExtension(m.Options(), validate.E_Message).(*validate.MessageRules); ok {
		out = expressions(out, "", rules.GetCel())
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if rules, ok := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules); ok && rules != nil {
			out = append(out, fieldRules(string(f.Name()), rules)...)
		}
		if f.Message() == nil || f.IsMap() {
			continue
		}
		for _, inner := range Rules(f.Message()) {
			inner.Field = strings.TrimSuffix(string(f.Name())+"."+inner.Field, ".")
			out = append(out, inner)
		}
	}
	return out
}

func expressions(out []Rule, field string, rules []*validate.Rule) []Rule {
	for _, rule := range rules {
		out = append(out, Rule{Field: field, Text: rule.GetId(), Reason: rule.GetId()})
	}
	return out
}

func fieldRules(field string, rules *validate.FieldRules) []Rule {
	out := expressions(nil, field, rules.GetCel())
	kind := rules.ProtoReflect().WhichOneof(rules.ProtoReflect().Descriptor().Oneofs().ByName("type"))
	if kind == nil {
		return out
	}
	for rule, value := range rules.ProtoReflect().Get(kind).Message().Range {
		if inner, ok := value.Interface().(protoreflect.Message); ok {
			if inner, ok := inner.Interface().(*validate.FieldRules); ok { // of the items, the keys or the values
				out = append(out, fieldRules(field+"[]", inner)...)
			}
			continue
		}
		one := Rule{
			Field: field,
			Text:  strings.TrimSuffix(fmt.Sprintf("%s %v", strings.ReplaceAll(string(rule.Name()), "_", " "), value.Interface()), " true"),
		}
		if predefined, ok := proto.GetExtension(rule.Options(), validate.E_Predefined).(*validate.PredefinedRules); ok && rule.IsExtension() {
			for _, expression := range predefined.GetCel() {
				one.Reason = expression.GetId()
			}
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Rule) int { return strings.Compare(a.Field+a.Text, b.Field+b.Text) })
	return out
}

// Reasons returns the reasons in the rules of a request.
func Reasons(m protoreflect.MessageDescriptor) []string {
	var out []string
	for _, rule := range Rules(m) {
		if rule.Reason == "" || rule.Reason != strings.ToUpper(rule.Reason) {
			rule.Reason = "REQUEST_INVALID"
		}
		out = append(out, rule.Reason)
	}
	return out
}

// inJSONNames names the field of a broken rule as the JSON does: sessionId instead of session_id.
func (d definition) inJSONNames(err error) error {
	f, ok := fault.From(err)
	if !ok || f.Meta["field"] == "" {
		return err
	}
	field := underscore.ReplaceAllStringFunc(f.Meta["field"], func(s string) string { return strings.ToUpper(s[1:]) })
	field = cmp.Or(d.rename[field], field)
	named := f.With("field", field)
	named.Detail = strings.Replace(f.Detail, f.Meta["field"], field, 1)
	return named
}

var underscore = regexp.MustCompile("_[a-z]")
