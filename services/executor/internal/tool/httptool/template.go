package httptool

import (
	"encoding/json"
	"fmt"
	"strings"
)

// template is a text with {name} for arguments.
type template []part

// part is a text, or an argument if name is set.
type part struct{ text, name string }

// parseTemplate parses a template. An opening brace needs a name and a closing brace.
func parseTemplate(text string) (template, error) {
	var t template
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if before != "" {
			t = append(t, part{text: before})
		}
		if !found {
			break
		}
		name, behind, closed := strings.Cut(rest, "}")
		if !closed || !isValidName(name) {
			return nil, fmt.Errorf("{%.40s is not {name} of an argument", rest)
		}
		t = append(t, part{name: name})
		text = behind
	}
	return t, nil
}

func isValidName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
}

// names returns the arguments of the template.
func (t template) names() []string {
	var names []string
	for _, p := range t {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// single returns the argument if the template is nothing else.
func (t template) single() (string, bool) {
	if len(t) == 1 && t[0].name != "" {
		return t[0].name, true
	}
	return "", false
}

// fill returns the text with the arguments.
func (t template) fill(arguments map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.text)
		if p.name == "" {
			continue
		}
		value, ok := arguments[p.name]
		if !ok || value == nil {
			return "", fmt.Errorf("the argument %q is missing", p.name)
		}
		text, ok := scalar(value)
		if !ok {
			return "", fmt.Errorf("the argument %q must be a text, a number or a boolean", p.name)
		}
		b.WriteString(text)
	}
	return b.String(), nil
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
