package agents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// object reads the fields of an object by name. It remembers the names, so that end can report unknown
// fields.
type object struct {
	value
	what     string // begins its mistakes; may be empty
	fields   []member
	defaults *object  // supplies missing fields; may be nil
	known    []string // names read so far
	wrong    []string // names with a mistake
}

// newObject begins to read an object. Any other value is a mistake, and reads as an object without
// fields; null does so without a mistake.
func newObject(v value, what string) *object {
	fields, ok := v.members()
	o := &object{value: v, what: what, fields: fields}
	if !ok && v.node != nil {
		v.mistake("%smust be an object with fields", o.prefix())
	}
	return o
}

// prefix is what begins the mistakes of the object.
func (o *object) prefix() string {
	if o.what == "" {
		return ""
	}
	return o.what + ": "
}

// field returns a field. ok is false for a field that is missing or null.
func (o *object) field(name string) (v value, ok bool) {
	if !slices.Contains(o.known, name) {
		o.known = append(o.known, name)
	}
	for _, f := range o.fields {
		if f.name == name {
			return f.value, f.node != nil
		}
	}
	if o.defaults != nil {
		return o.defaults.field(name)
	}
	return o.value, false
}

func (o *object) has(name string) bool {
	_, ok := o.field(name)
	return ok
}

// mistakeAt records what is wrong with a field, at the object if the field is missing.
func (o *object) mistakeAt(name, format string, args ...any) {
	at, _ := o.field(name)
	o.mistakeIn(at, name, format, args...)
}

// mistakeIn records what is wrong with a value within a field.
func (o *object) mistakeIn(at value, name, format string, args ...any) {
	o.wrong = append(o.wrong, name)
	at.mistake("%s%s", o.prefix(), fmt.Sprintf(format, args...))
}

func (o *object) isWrong(name string) bool { return slices.Contains(o.wrong, name) }

// end reports unknown fields: the fields without a read.
func (o *object) end() {
	for _, f := range o.fields {
		if !slices.Contains(o.known, f.name) {
			f.mistake("%sthere is no field %q%s", o.prefix(), f.name, suggest(f.name, o.known))
		}
	}
}

func (o *object) text(name string) string {
	v, ok := o.field(name)
	text, isText := v.text()
	if ok && !isText {
		o.mistakeAt(name, "%s must be a string; put it in quotes", name)
	}
	return text
}

// oneOf reads one of the allowed strings; empty if it is missing.
func (o *object) oneOf(name string, allowed ...string) string {
	text := o.text(name)
	if text != "" && !slices.Contains(allowed, text) {
		o.mistakeAt(name, "%s is %q, it must be one of %s%s", name, text, strings.Join(allowed, ", "), suggest(text, allowed))
		return ""
	}
	return text
}

// integer reads an integer within limits; 0 if it is missing.
func (o *object) integer(name string, lowest, highest int) int {
	v, ok := o.field(name)
	i, isInteger := v.integer()
	switch {
	case ok && !isInteger:
		o.mistakeAt(name, "%s must be an integer", name)
	case ok && (i < lowest || i > highest):
		o.mistakeAt(name, "%s is %d, it must be between %d and %d", name, i, lowest, highest)
	}
	return i
}

// number reads a number within limits; nil if it is missing.
func (o *object) number(name string, lowest, highest float64) *float64 {
	v, ok := o.field(name)
	if !ok {
		return nil
	}
	n, isNumber := v.number()
	switch {
	case !isNumber:
		o.mistakeAt(name, "%s must be a number", name)
	case n < lowest || n > highest:
		o.mistakeAt(name, "%s is %v, it must be between %v and %v", name, n, lowest, highest)
	}
	return &n
}

// boolean reads true or false; nil if it is missing.
func (o *object) boolean(name string) *bool {
	v, ok := o.field(name)
	if !ok {
		return nil
	}
	b, isBoolean := v.node.(*ast.BoolNode)
	if !isBoolean {
		o.mistakeAt(name, "%s must be true or false", name)
		return nil
	}
	return &b.Value
}

// isTrue reads a boolean; false if it is missing.
func (o *object) isTrue(name string) bool {
	b := o.boolean(name)
	return b != nil && *b
}

// duration reads a duration above 0; 0 if it is missing.
func (o *object) duration(name string) time.Duration {
	v, ok := o.field(name)
	d, isDuration := v.duration()
	if ok && (!isDuration || d <= 0) {
		o.mistakeAt(name, "%s must be a duration above 0 like 30s, 5m or 24h", name)
	}
	return d
}

func (o *object) list(name string) []value {
	v, ok := o.field(name)
	items, isList := v.items()
	if ok && !isList {
		o.mistakeAt(name, "%s must be a list", name)
	}
	return items
}

// words reads a list of strings.
func (o *object) words(name string) []string {
	var words []string
	for _, item := range o.list(name) {
		word, ok := item.text()
		if !ok {
			o.mistakeIn(item, name, "%s must be a list of strings; put them in quotes", name)
		}
		words = append(words, word)
	}
	return words
}

// distinct reads a list of distinct strings. None may be empty.
func (o *object) distinct(name string) []string {
	var texts []string
	for _, item := range o.list(name) {
		text, ok := item.text()
		switch {
		case !ok || text == "":
			o.mistakeIn(item, name, "%s must be a list of strings", name)
		case slices.Contains(texts, text):
			item.mistake("%s%s has %q twice", o.prefix(), name, text)
		default:
			texts = append(texts, text)
		}
	}
	return texts
}

// entries reads an object with field names of the user's choice, in their order.
func (o *object) entries(name string) []member {
	v, ok := o.field(name)
	if !ok {
		return nil
	}
	members, isObject := v.members()
	if !isObject {
		o.mistakeAt(name, "%s must be an object", name)
	}
	return members
}

// texts reads an object of strings.
func (o *object) texts(name string) map[string]string {
	var texts map[string]string
	for _, m := range o.entries(name) {
		text, ok := m.text()
		if !ok {
			m.mistake("%s%s.%s must be a string; put it in quotes", o.prefix(), name, m.name)
		}
		if texts == nil {
			texts = map[string]string{}
		}
		texts[m.name] = text
	}
	return texts
}

// json reads any value as JSON; nil if it is missing.
func (o *object) json(name string) json.RawMessage {
	v, ok := o.field(name)
	if !ok {
		return nil
	}
	return v.json()
}

// content reads the file at the path in a field. ok is false, with a mistake, if that fails.
func (o *object) content(name string) (s Source, ok bool) {
	at, _ := o.field(name)
	path := at.file.path(o.text(name))
	s, err := o.file.trail.read(path)
	if err != nil {
		o.mistakeAt(name, "%s cannot be read: %v", name, err)
		return Source{}, false
	}
	return s, true
}

// prose reads a string, or a file with the string: {file: prompt.md}.
func (o *object) prose(name string) string {
	v, ok := o.field(name)
	if _, isObject := v.members(); !ok || !isObject {
		return o.text(name)
	}
	from := newObject(v, o.what+": "+name)
	source, ok := from.content("file")
	from.end()
	if ok && !utf8.Valid(source.Data) {
		from.mistakeAt("file", "the file is not UTF-8 text")
	}
	return string(source.Data)
}

// schema reads a JSON Schema, or a YAML or JSON file with the schema: {file: answer.json}. It returns
// nil if the field is missing, or has a mistake.
func (o *object) schema(name string) json.RawMessage {
	v, ok := o.field(name)
	if !ok {
		return nil
	}
	members, isObject := v.members()
	if !isObject {
		o.mistakeAt(name, "%s must be a JSON Schema, or {file: …} with one", name)
		return nil
	}
	body := v
	if len(members) == 1 && members[0].name == "file" {
		source, ok := newObject(v, o.what+": "+name).content("file")
		if !ok {
			return nil
		}
		f := o.file.parse(source)
		if f == nil {
			return nil
		}
		body = f.root
	}
	raw := body.json()
	if raw == nil {
		return nil
	}
	if _, err := agent.CompileSchema(raw); err != nil {
		o.mistakeIn(v, name, "%s: %s", name, detail(err))
		return nil
	}
	return raw
}
