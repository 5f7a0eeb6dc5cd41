package agents

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// placeholder matches {{state.key}}, {{state.key.below}}, the escape `\{{`, and any other {{.
var placeholder = regexp.MustCompile(`\\?\{\{(?:\s*state((?:\.[^\s{}.]+)+)\s*\}\})?`)

// readPrompt reads a prompt with placeholders; nil if the field is missing.
func readPrompt(o *object) func(agent.State) string {
	text := o.prose("prompt")
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
			o.mistakeAt("prompt", `prompt: a placeholder must be {{state.key}}, for example {{state.name}}; write \{{ for the braces themselves`)
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
				value, _ := lookUp(map[string]any(state), p.path)
				out.WriteString(render(value))
			}
		}
		return out.String()
	}
}

// lookUp returns the value at a path of keys.
func lookUp(at any, path []string) (value any, exists bool) {
	for _, key := range path {
		object, _ := at.(map[string]any)
		if at, exists = object[key]; !exists {
			return nil, false
		}
	}
	return at, true
}

// render returns a value as text: a string as it is, nothing for null, any other value as JSON.
func render(v any) string {
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
