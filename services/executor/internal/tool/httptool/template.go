package httptool

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// template is a text with {name} for arguments of the model, and {{name}} for values of the runtime.
type template []part

// part is a text, an argument of the model if argument is set, or a value of the runtime if trusted is set.
type part struct {
	text     string
	argument string
	trusted  func(trusted.Context) string
	name     string // of the value of the runtime
}

// values is what fills a template: arguments of the model, and the context of the runtime.
type values struct {
	arguments map[string]any
	context   trusted.Context
}

// parseTemplate parses a template. An opening brace needs a name and a closing brace; `\{{` stands for {{. If arguments is
// false, only {{ is special.
func parseTemplate(text string, arguments bool) (template, error) {
	var t template
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		double, isDouble := strings.CutPrefix(rest, "{")
		plain, escaped := strings.CutSuffix(before, `\`)
		switch {
		case !found:
			return append(t, part{text: text}), nil
		case isDouble && escaped:
			t = append(t, part{text: plain + "{{"})
			text = double
			continue
		case !isDouble && !arguments:
			t = append(t, part{text: before + "{"})
			text = rest
			continue
		case before != "":
			t = append(t, part{text: before})
		}
		if isDouble {
			name, behind, closed := strings.Cut(double, "}}")
			name = strings.TrimSpace(name)
			value := trusted.Placeholder(name)
			if !closed || value == nil || strings.ContainsAny(name, "{} \t") {
				return nil, fmt.Errorf(`{{%.40s is not one of %s; write \{{ for the braces themselves`, double, trusted.Placeholders)
			}
			t = append(t, part{trusted: value, name: name})
			text = behind
			continue
		}
		name, behind, closed := strings.Cut(rest, "}")
		if !closed || !isValidName(name) {
			return nil, fmt.Errorf("{%.40s is not {name} of an argument", rest)
		}
		t = append(t, part{argument: name})
		text = behind
	}
	return t, nil
}

func isValidName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
}

// arguments returns the arguments of the template.
func (t template) arguments() []string {
	var names []string
	for _, p := range t {
		if p.argument != "" {
			names = append(names, p.argument)
		}
	}
	return names
}

// single returns the argument if the template is nothing else.
func (t template) single() (string, bool) {
	if len(t) == 1 && t[0].argument != "" {
		return t[0].argument, true
	}
	return "", false
}

// fill returns the text with its values. A value of the runtime that the call does not have is empty.
func (t template) fill(v values) (string, error) {
	var b strings.Builder
	for _, p := range t {
		switch {
		case p.trusted != nil:
			b.WriteString(p.trusted(v.context))
		case p.argument != "":
			text, err := v.argument(p.argument)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String(), nil
}

// argument returns the text of an argument.
func (v values) argument(name string) (string, error) {
	value, ok := v.arguments[name]
	if !ok || value == nil {
		return "", fmt.Errorf("the argument %q is missing", name)
	}
	text, ok := scalar(value)
	if !ok {
		return "", fmt.Errorf("the argument %q must be a text, a number or a boolean", name)
	}
	return text, nil
}

// scalar returns the text of a value other than an object, an array or null.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case json.Number:
		return string(v), true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	}
	return "", false
}
