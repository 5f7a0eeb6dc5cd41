package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// maxArgumentDepth limits the nesting of arguments. Deeper ones break later requests that show the call to a
// model.
const maxArgumentDepth = 512

// maxNameShown limits the name of a member in an error text, in bytes.
const maxNameShown = 80

// jsonSpace is the whitespace around a JSON value.
const jsonSpace = " \t\r\n"

// isArguments reports whether a text is usable as the arguments of a call: JSON with limited nesting.
func isArguments(text []byte) bool { return json.Valid(text) && depth(text) <= maxArgumentDepth }

// depth returns the nesting depth of a JSON text: 1 for {}.
func depth(text []byte) (deepest int) {
	open, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}', c == ']':
			open--
		}
	}
	return deepest
}

// checkArguments describes the problem with a call's arguments, or returns "" if they fit. The description
// begins with errArguments. It refuses repeated member names: JSON readers differ in which of two members they
// use, and the tool must read the values checked by the schema and by approval rules.
func checkArguments(s *agent.Schema, arguments json.RawMessage) string {
	if !json.Valid(arguments) {
		return errArguments + "are not JSON; send one JSON object"
	}
	var text string
	quoted := bytes.TrimLeft(arguments, jsonSpace)[0] == '"' && json.Unmarshal(arguments, &text) == nil
	switch {
	case depth(arguments) > maxArgumentDepth, quoted && json.Valid([]byte(text)) && depth([]byte(text)) > maxArgumentDepth:
		return fmt.Sprintf(errArguments+"are nested deeper than %d levels; make them flatter", maxArgumentDepth)
	case quoted:
		return errArguments + "are not a JSON object, or not JSON at all; send one JSON object"
	case bytes.TrimLeft(arguments, jsonSpace)[0] != '{':
		return errArguments + "are not a JSON object"
	}
	if name, repeated := repeatedMember(arguments); repeated {
		return fmt.Sprintf(errArguments+"do not fit: the member %q is there twice; send it once", shortened(name))
	}
	if s == nil {
		return ""
	}
	if err := s.Check(arguments); err != nil {
		return errArguments + "do not fit: " + err.Error()
	}
	return ""
}

// repeatedMember returns the first member name that an object in the JSON text repeats.
func repeatedMember(text json.RawMessage) (name string, repeated bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var open []*members
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", false // the end of the valid JSON text
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 {
			if name, repeated := open[len(open)-1].next(token); repeated {
				return name, true
			}
		}
		if token == json.Delim('{') {
			open = append(open, &members{names: map[string]bool{}})
		} else if token == json.Delim('[') {
			open = append(open, &members{})
		}
	}
}

// members holds the member names of an open object; nil in a list.
type members struct {
	names map[string]bool
	value bool // the next token is a value
}

// next processes the next token of the object.
func (m *members) next(token json.Token) (name string, repeated bool) {
	if m.names == nil {
		return "", false
	}
	m.value = !m.value
	if !m.value {
		return "", false
	}
	name, _ = token.(string) // a member name is always a string
	repeated = m.names[name]
	m.names[name] = true
	return name, repeated
}

func shortened(name string) string {
	if len(name) <= maxNameShown {
		return name
	}
	end := maxNameShown
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return strings.ToValidUTF8(name[:end], "") + "…"
}
