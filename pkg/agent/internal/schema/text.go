package schema

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of the text of a problem.
const (
	maxShown   = 80  // bytes of a value or name
	maxListed  = 20  // values or names of a list
	maxList    = 400 // bytes of a list of names
	maxReasons = 4   // explained alternatives
)

// typeNames are the types with their articles.
var typeNames = map[string]string{
	"null": "null", "boolean": "a boolean", "string": "a string", "array": "an array",
	"object": "an object", "integer": "an integer", "number": "a number",
}

func hasType(types []string, got string) bool {
	return slices.Contains(types, got) || got == "integer" && slices.Contains(types, "number")
}

func typesText(types []string) string {
	if len(types) == 0 {
		return "absent"
	}
	texts := make([]string, len(types))
	for i, name := range types {
		texts[i] = typeNames[name]
	}
	return strings.Join(texts, " or ")
}

// add adds a problem. It returns false: the value does not fit.
func (p *problems) add(at *path, format string, args ...any) bool {
	p.found = true
	of := kind{at.location(), format}
	switch {
	case p.counts != nil:
		p.counts[of]++
	case p.known[of] > 0:
		p.known[of]--
	case !p.full():
		p.list = append(p.list, Problem{at.String(), fmt.Sprintf(format, args...)})
	}
	return false
}

// alternatives lists the reasons of alternatives, in parentheses.
func alternatives(why []Problem) string {
	if len(why) == 0 {
		return ""
	}
	texts := make([]string, 0, maxReasons)
	for i, p := range why[:min(len(why), maxReasons)] {
		texts = append(texts, fmt.Sprintf("%d: %s%s", i+1, prefixPointer(p.Path), clip(p.Text, 2*maxShown)))
	}
	if len(why) > maxReasons {
		texts = append(texts, "…")
	}
	return " (" + strings.Join(texts, "; ") + ")"
}

func prefixPointer(pointer string) string {
	if pointer == "" {
		return ""
	}
	return clip(pointer, maxShown) + " "
}

// clip cuts a text between characters.
func clip(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	end := maxBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
