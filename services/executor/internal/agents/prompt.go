package agents

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// placeholder is {{state.key}} or {{state.key.below}}; `\{{` is a {{ that stands for itself.
var placeholder = regexp.MustCompile(`\\?\{\{(?:\s*state((?:\.[^\s{}.]+)+)\s*\}\})?`)

// prompt reads a prompt with placeholders; nil where there is none.
func (r *reader) prompt(o *object) func(agent.State) string {
	text := r.prose(o, "prompt")
	if text == "" {
		return nil
	}
	type piece struct {
		text string
		path []string // into the state; nil for text
	}
	var pieces []piece
	end := 0
	for _, found := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		pieces = append(pieces, piece{text: text[end:found[0]]})
		end = found[1]
		switch {
		case text[found[0]] == '\\':
			pieces = append(pieces, piece{text: text[found[0]+1 : found[1]]})
		case found[2] < 0:
			o.mistake("prompt", `prompt: behind {{ must stand state.key}}, as in {{state.name}}; write \{{ for the braces themselves`)
		default:
			pieces = append(pieces, piece{path: strings.Split(text[found[2]+1:found[3]], ".")})
		}
	}
	pieces = append(pieces, piece{text: text[end:]})
	return func(state agent.State) string {
		var out strings.Builder
		for _, p := range pieces {
			out.WriteString(p.text)
			if p.path != nil {
				out.WriteString(shown(look(map[string]any(state), p.path)))
			}
		}
		return out.String()
	}
}

// look gives the value at a path of objects, nil where there is none.
func look(at any, path []string) any {
	for _, key := range path {
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[key]
	}
	return at
}

// shown is a value in a text: texts as they are, nothing for null, the rest as JSON.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}
