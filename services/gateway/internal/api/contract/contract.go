// Package contract checks messages by the rules of their contracts.
//
// The rules are those of protovalidate (https://protovalidate.com): expressions in CEL that stand in the .proto files. An
// engine for CEL would be a tenth of the program, and our contracts have two dozen different expressions. So each
// expression has a function here, found by the text of the expression. A test demands a function for each expression of the
// contracts, and compares the functions with protovalidate.
package contract

import (
	"fmt"
	"strconv"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Violation is a broken rule.
type Violation struct {
	Rule  string // its id
	Field string // the path of the field, such as messages[1].role; empty for a rule of the whole message
	Text  string // what the field must be
}

// Check returns the first broken rule of a message, nil for none. Its error is a rule without a function.
func Check(m protoreflect.Message) (*Violation, error) {
	rules, err := rulesOf(m.Descriptor())
	if err != nil {
		return nil, err
	}
	return rules.broken(m)
}

// messageRules are the rules of a message and of the messages in it.
type messageRules struct {
	checks []check // of the whole message
	fields []fieldRules
}

type fieldRules struct {
	field  protoreflect.FieldDescriptor
	checks []check // of the value
	items  []check // of each element of a list
	nested bool    // the values are messages with rules
}

// check returns the violation of one rule, without its field; nil for none.
type check func(protoreflect.Value) *Violation

func first(checks []check, value protoreflect.Value) *Violation {
	for _, c := range checks {
		if v := c(value); v != nil {
			return v
		}
	}
	return nil
}

// below puts a path, or an index such as [1], before the path of a violation. It accepts nil.
func (v *Violation) below(path string) *Violation {
	if v == nil {
		return nil
	}
	if v.Field != "" && v.Field[0] != '[' {
		path += "."
	}
	return &Violation{v.Rule, path + v.Field, v.Text}
}

// broken returns the first broken rule; nil for none.
func (r *messageRules) broken(m protoreflect.Message) (*Violation, error) {
	if v := first(r.checks, protoreflect.ValueOfMessage(m)); v != nil {
		return v, nil
	}
	for _, f := range r.fields {
		if f.field.HasPresence() && !m.Has(f.field) {
			continue
		}
		if v, err := f.broken(m.Get(f.field)); v != nil || err != nil {
			return v.below(string(f.field.Name())), err
		}
	}
	return nil, nil
}

// broken returns the first broken rule of a field's value, with the path below the field.
func (f *fieldRules) broken(value protoreflect.Value) (*Violation, error) {
	if v := first(f.checks, value); v != nil {
		return v, nil
	}
	if !f.field.IsList() {
		return f.inside(value)
	}
	for i := range value.List().Len() {
		item := value.List().Get(i)
		v, err := first(f.items, item), error(nil)
		if v == nil {
			v, err = f.inside(item)
		}
		if v != nil || err != nil {
			return v.below("[" + strconv.Itoa(i) + "]"), err
		}
	}
	return nil, nil
}

// inside returns the first broken rule in a value that is a message.
func (f *fieldRules) inside(value protoreflect.Value) (*Violation, error) {
	if !f.nested {
		return nil, nil
	}
	return Check(value.Message())
}

// compiled has the rules of all types of messages that were checked: *messageRules by name.
var compiled sync.Map

func rulesOf(d protoreflect.MessageDescriptor) (*messageRules, error) {
	if known, ok := compiled.Load(d.FullName()); ok {
		return known.(*messageRules), nil
	}
	rules, err := compile(d)
	if err != nil {
		return nil, fmt.Errorf("the rules of %s: %w", d.FullName(), err)
	}
	compiled.Store(d.FullName(), rules)
	return rules, nil
}

// compile reads the rules of a message, without those of the messages in it.
func compile(d protoreflect.MessageDescriptor) (*messageRules, error) {
	out := &messageRules{}
	whole, _ := proto.GetExtension(d.Options(), validate.E_Message).(*validate.MessageRules)
	var err error
	if out.checks, err = expressions(whole.GetCel()); err != nil {
		return nil, err
	}
	for i := range d.Fields().Len() {
		f := fieldRules{field: d.Fields().Get(i)}
		rules, _ := proto.GetExtension(f.field.Options(), validate.E_Field).(*validate.FieldRules)
		items := rules.GetRepeated().GetItems()
		if f.checks, err = valueChecks(rules); err == nil {
			f.items, err = valueChecks(items)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.field.Name(), err)
		}
		if inner := f.field.Message(); inner != nil && !f.field.IsMap() && hasRules(inner, map[protoreflect.FullName]bool{}) {
			f.nested = true
		}
		if len(f.checks) > 0 || len(f.items) > 0 || f.nested {
			out.fields = append(out.fields, f)
		}
	}
	return out, nil
}

// hasRules reports whether a message or a message in it has rules. It does not look into those that were seen.
func hasRules(d protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[d.FullName()] {
		return false
	}
	seen[d.FullName()] = true
	if proto.HasExtension(d.Options(), validate.E_Message) {
		return true
	}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if proto.HasExtension(f.Options(), validate.E_Field) || f.Message() != nil && hasRules(f.Message(), seen) {
			return true
		}
	}
	return false
}

// valueChecks returns the checks of a value: the expressions of its field, and the rules that several fields share.
func valueChecks(rules *validate.FieldRules) (checks []check, err error) {
	if rules == nil {
		return nil, nil
	}
	if checks, err = expressions(rules.GetCel()); err != nil {
		return nil, err
	}
	typed := rules.ProtoReflect().WhichOneof(rules.ProtoReflect().Descriptor().Oneofs().ByName("type"))
	if typed == nil || typed.Name() == "repeated" {
		return checks, nil
	}
	rules.ProtoReflect().Get(typed).Message().Range(func(rule protoreflect.FieldDescriptor, limit protoreflect.Value) bool {
		var more []check
		if more, err = sharedRule(rule, limit); err != nil {
			return false
		}
		checks = append(checks, more...)
		return true
	})
	return checks, err
}

// expressions returns the checks of rules that stand at a message or a field.
func expressions(rules []*validate.Rule) (checks []check, err error) {
	for _, rule := range rules {
		holds, ok := conditions[rule.GetExpression()]
		if !ok {
			return nil, fmt.Errorf("there is no function for the expression %q", rule.GetExpression())
		}
		broken := &Violation{Rule: rule.GetId(), Text: rule.GetMessage()}
		checks = append(checks, func(value protoreflect.Value) *Violation {
			if holds(value) {
				return nil
			}
			return broken
		})
	}
	return checks, nil
}

// sharedRule returns the checks of a rule of rules.proto with its limit.
func sharedRule(field protoreflect.FieldDescriptor, limit protoreflect.Value) (checks []check, err error) {
	shared, _ := proto.GetExtension(field.Options(), validate.E_Predefined).(*validate.PredefinedRules)
	if len(shared.GetCel()) == 0 {
		return nil, fmt.Errorf("there is no function for the rule %s", field.FullName())
	}
	for _, rule := range shared.GetCel() {
		problem, ok := problems[rule.GetExpression()]
		if !ok { // it may need no limit
			more, err := expressions([]*validate.Rule{rule})
			if err != nil {
				return nil, err
			}
			checks = append(checks, more...)
			continue
		}
		checks = append(checks, func(value protoreflect.Value) *Violation {
			text := problem(value, limit)
			if text == "" {
				return nil
			}
			return &Violation{Rule: rule.GetId(), Text: text}
		})
	}
	return checks, nil
}
