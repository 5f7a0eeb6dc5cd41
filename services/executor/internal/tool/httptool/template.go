package httptool

import (
	"encoding/json"
	"fmt"
	"strings"
)

// template is a text in which {name} stands for arguments.
type template []part

// part is a text, or where name is set an argument.
type part struct{ text, name string }

// parseTemplate reads a template. A brace that opens has to be closed behind a name.
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
		if !closed || !goodName(name) {
			return nil, fmt.Errorf("{%.40s is not {name} of an argument", rest)
		}
		t = append(t, part{name: name})
		text = behind
	}
	return t, nil
}

func goodName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
}

// names gives the arguments of the template.
func (t template) names() []string {
	var names []string
	for _, p := range t {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// alone gives the argument that the template is, where it is nothing else.
func (t template) alone() (string, bool) {
	if len(t) == 1 && t[0].name != "" {
		return t[0].name, true
	}
	return "", false
}

// fill gives the text for the arguments.
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

// scalar gives the text of a value that is no object, no array and not null.
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
