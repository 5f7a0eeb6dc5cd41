package contract

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// conditions are the expressions at messages and fields of the contracts. Each reports whether a value, "this", is valid.
var conditions = map[string]func(protoreflect.Value) bool{
	"this.size() > 0":                        func(v protoreflect.Value) bool { return v.List().Len() > 0 },
	"this.size() <= 1000":                    func(v protoreflect.Value) bool { return v.List().Len() <= 1000 },
	"this.size() > 0 && this.size() <= 1000": func(v protoreflect.Value) bool { return v.List().Len() > 0 && v.List().Len() <= 1000 },

	"this >= 0":                            func(v protoreflect.Value) bool { return v.Int() >= 0 },
	"this >= 0 && this <= 253402300799999": func(v protoreflect.Value) bool { return v.Int() >= 0 && v.Int() <= 253402300799999 },
	"this >= -100 && this <= 100":          func(v protoreflect.Value) bool { return v.Int() >= -100 && v.Int() <= 100 },
	"this == 0 || this >= 1000":            func(v protoreflect.Value) bool { return v.Int() == 0 || v.Int() >= 1000 },
	"this in [0, 1, 2, 4]":                 func(v protoreflect.Value) bool { return v.Enum() >= 0 && v.Enum() <= 4 && v.Enum() != 3 },
	"this in [0, 1, 2, 3, 4]":              func(v protoreflect.Value) bool { return v.Enum() >= 0 && v.Enum() <= 4 },

	oneOf("this", statuses):        func(v protoreflect.Value) bool { return slices.Contains(statuses, v.String()) },
	oneOf("this", lastStatuses):    func(v protoreflect.Value) bool { return slices.Contains(lastStatuses, v.String()) },
	oneOf("this", roles):           func(v protoreflect.Value) bool { return slices.Contains(roles, v.String()) },
	oneOf("this.status", statuses): func(v protoreflect.Value) bool { return slices.Contains(statuses, member(v, "status").String()) },

	"this.message != '' || this.messages.size() > 0": func(v protoreflect.Value) bool {
		return member(v, "message").String() != "" || member(v, "messages").List().Len() > 0
	},
	"this.text != '' || this.parts.size() > 0": func(v protoreflect.Value) bool {
		return member(v, "text").String() != "" || member(v, "parts").List().Len() > 0
	},
	"this.cursor == '' || this.offset == 0": func(v protoreflect.Value) bool {
		return member(v, "cursor").String() == "" || member(v, "offset").Int() == 0
	},
	"has(this.text) || has(this.file)": func(v protoreflect.Value) bool { return has(v, "text", "file") },
	"has(this.replace) || has(this.append) || has(this.delete)": func(v protoreflect.Value) bool {
		return has(v, "replace", "append", "delete")
	},
}

// The texts that fields may have.
var (
	roles        = []string{"", "user", "assistant", "system"}
	lastStatuses = []string{"completed", "failed", "interrupted", "paused"}
	statuses     = []string{
		"active", "completed", "failed", "interrupted", "paused",
		"suspended_client_tool", "suspended_awaiting_children", "suspended_step_partial",
	}
)

// oneOf is the expression that demands one of the texts.
func oneOf(what string, texts []string) string {
	return what + " in ['" + strings.Join(texts, "', '") + "']"
}

func member(message protoreflect.Value, name protoreflect.Name) protoreflect.Value {
	m := message.Message()
	return m.Get(m.Descriptor().Fields().ByName(name))
}

// has reports whether a message has one of the members.
func has(message protoreflect.Value, names ...protoreflect.Name) bool {
	m := message.Message()
	return slices.ContainsFunc(names, func(name protoreflect.Name) bool { return m.Has(m.Descriptor().Fields().ByName(name)) })
}

// problems are the expressions of the rules in rules.proto. Each says what a value, "this", must be by the limit of its field,
// "rule"; "" for a valid value.
var problems = map[string]func(this, rule protoreflect.Value) string{
	`this != '' && bytes(this).size() <= rule && !this.matches('\\p{Cc}') ? ''` +
		` : 'must be an id: 1 to %d bytes without control characters'.format([rule])`: func(this, rule protoreflect.Value) string {
		if this.String() != "" && isID(this, rule) {
			return ""
		}
		return fmt.Sprintf("must be an id: 1 to %d bytes without control characters", rule.Uint())
	},
	`this == '' || bytes(this).size() <= rule && !this.matches('\\p{Cc}') ? ''` +
		` : 'must be an id of at most %d bytes without control characters, or empty'.format([rule])`: func(this, rule protoreflect.Value) string {
		if isID(this, rule) {
			return ""
		}
		return fmt.Sprintf("must be an id of at most %d bytes without control characters, or empty", rule.Uint())
	},
	"this >= 0 && this <= rule ? '' : 'must be 1 to %d, or 0 for 50'.format([rule])": func(this, rule protoreflect.Value) string {
		return upTo(this, rule, "must be 1 to %d, or 0 for 50")
	},
	"this >= 0 && this <= rule ? '' : 'must be 0 to %d'.format([rule])": func(this, rule protoreflect.Value) string {
		return upTo(this, rule, "must be 0 to %d")
	},
	"this >= 0 && this <= rule ? ''" +
		" : 'must be 1 to %d milliseconds, or 0 for no limit'.format([rule])": func(this, rule protoreflect.Value) string {
		return upTo(this, rule, "must be 1 to %d milliseconds, or 0 for no limit")
	},
}

func isID(this, rule protoreflect.Value) bool {
	text := this.String()
	return uint64(len(text)) <= rule.Uint() && !strings.ContainsFunc(text, unicode.IsControl)
}

func upTo(this, rule protoreflect.Value, problem string) string {
	if this.Int() >= 0 && this.Int() <= rule.Int() {
		return ""
	}
	return fmt.Sprintf(problem, rule.Int())
}
