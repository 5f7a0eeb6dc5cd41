package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/trusted"
)

// placeholder matches {{state.key}}, {{state.key.below}}, {{name}}, the escape `\{{`, and any other {{. Its groups are the
// path into the state, and a name.
var placeholder = regexp.MustCompile(`\\?\{\{(?:\s*(?:state((?:\.[^\s{}.]+)+)|([^\s{}]+))\s*\}\})?`)

// readPrompt reads a prompt with placeholders; nil for none. A placeholder of a property that the
// state schema does not have is a mistake, if the schema names its properties and allows no others.
func readPrompt(s *section, text string, stateSchema json.RawMessage) func(context.Context, *agent.RunView) (string, error) {
	if text == "" {
		return nil
	}
	type piece struct {
		text  string
		path  []string                     // into the state; nil for others
		value func(trusted.Context) string // of the run; nil for others
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
			var value func(trusted.Context) string
			if found[4] >= 0 {
				value = trusted.RunPlaceholder(text[found[4]:found[5]])
			}
			if value == nil {
				s.mistakeAt("prompt", `prompt: a placeholder must be {{state.key}}, for example {{state.name}}, or one of %s; write \{{ for the `+
					`braces themselves`, trusted.RunPlaceholders)
			}
			pieces = append(pieces, piece{value: value})
		default:
			path := strings.Split(text[found[2]+1:found[3]], ".")
			if p := unknownProperty(stateSchema, path); p != "" {
				s.mistakeAt("prompt", "prompt: {{state.%s}}: %s", strings.Join(path, "."), p)
			}
			pieces = append(pieces, piece{path: path})
		}
	}
	pieces = append(pieces, piece{text: text[end:]})
	return func(_ context.Context, run *agent.RunView) (string, error) {
		var out strings.Builder
		context := trusted.OfRun(run)
		for _, p := range pieces {
			switch {
			case p.path != nil:
				value, _ := lookUp(map[string]any(run.State), p.path)
				out.WriteString(render(value))
			case p.value != nil:
				out.WriteString(p.value(context))
			default:
				out.WriteString(p.text)
			}
		}
		return out.String(), nil
	}
}

// unknownProperty returns the mistake in a path into the state, or "". It follows named properties, and accepts
// everything below an open one.
func unknownProperty(schema json.RawMessage, path []string) string {
	for i, key := range path {
		var object struct {
			Properties        map[string]json.RawMessage `json:"properties"`
			PatternProperties json.RawMessage            `json:"patternProperties"`
			Additional        json.RawMessage            `json:"additionalProperties"`
			Ref               string                     `json:"$ref"`
		}
		if json.Unmarshal(schema, &object) != nil { // a broken schema is reported at its own place
			return ""
		}
		below, known := object.Properties[key]
		open := len(object.Additional) > 0 && string(object.Additional) != "false" || object.PatternProperties != nil || object.Ref != ""
		switch {
		case !known && (open || len(object.Properties) == 0):
			return ""
		case !known:
			what := "the stateSchema"
			if i > 0 {
				what = fmt.Sprintf("%q in the stateSchema", strings.Join(path[:i], "."))
			}
			return fmt.Sprintf("%s has no property %q%s", what, key, suggest(key, slices.Sorted(maps.Keys(object.Properties))))
		}
		schema = below
	}
	return ""
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
