package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// maxSectionBytes bounds the JSON of a section. Aliases can make a short file long.
const maxSectionBytes = 8 << 20

// grammar is Schema, decoded. It must not be modified.
var grammar = sync.OnceValue(func() *jsonschema.Schema {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema, &s); err != nil {
		panic("agents: schema.json: " + err.Error())
	}
	s.Defs["provider"].Properties["provider"].Enum = nil // an executor knows which providers it has
	return &s
})

// definition returns the definition that a schema of a grammar refers to, with its name. A schema without a reference is its
// own.
func definition(grammar, s *jsonschema.Schema) (name string, of *jsonschema.Schema) {
	for s.Ref != "" {
		name = strings.TrimPrefix(s.Ref, "#/$defs/")
		s = grammar.Defs[name]
	}
	return name, s
}

// isSection reports whether a schema is of values that are read one by one, each with its own name in mistakes.
func isSection(s *jsonschema.Schema) bool {
	if s.AnyOf != nil { // a provider may be null
		s = s.AnyOf[0]
	}
	sections := []string{"agent", "declaredTool", "endpoint", "mcpServer", "provider", "tool"}
	return slices.Contains(sections, strings.TrimPrefix(s.Ref, "#/$defs/"))
}

// section is a part of a file, checked by its definition.
type section struct {
	value
	what  string          // begins its mistakes; may be empty
	wrong map[string]bool // paths with a mistake at or below them
}

// read checks a value by a definition of the schema ("" for the file itself), and decodes it into a struct, or nowhere if
// into is nil. What has a mistake is left out. A null reads as an object without fields. The caller reports missing
// fields of the section itself.
//
// The struct receives plain forms: the nanoseconds of a duration, the text of {file: prompt.md}, the schema of
// {file: schema.json}, agent.NoMaxSteps for Infinity, and a list where the file may have a single item.
func read(v value, name, what string, into any) *section {
	s := &section{value: v, what: what, wrong: map[string]bool{}}
	schema := v.file.grammar()
	if name != "" {
		schema = schema.Defs[name]
	}
	if v.node == nil {
		return s
	}
	c := &checker{section: s}
	checked, ok := c.check(v, schema, spot{what: what})
	if !ok || into == nil {
		return s
	}
	text, _ := json.Marshal(checked) // of JSON, texts, numbers, lists and maps
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a field of the schema that the struct has forgotten
	if err := decoder.Decode(into); err != nil {
		s.mistakeAt("", "it cannot be decoded: %v", err)
	}
	return s
}

// mistakeAt records what is wrong at a path such as http.url or when.0, at the value around it if it is missing.
func (s *section) mistakeAt(path, format string, args ...any) {
	s.record(s.at(path), path, s.what, fmt.Sprintf(format, args...))
}

func (s *section) record(at value, path, what, text string) {
	for end := len(path); end >= 0; end = strings.LastIndexByte(path[:end], '.') {
		s.wrong[path[:end]] = true
	}
	if what != "" {
		text = what + ": " + text
	}
	at.mistake("%s", text)
}

// reportFields reports each line of an error at the field of the object that it begins with, unless the field has a mistake
// already.
func (s *section) reportFields(object string, err error) {
	if err == nil {
		return
	}
	for line := range strings.SplitSeq(detail(err), "\n") {
		field, _, _ := strings.Cut(line, ":")
		field, _, _ = strings.Cut(field, ".")
		if at := (spot{what: s.what, name: object, path: object}).field(field); !s.wrong[at.path] {
			s.record(s.at(at.path), at.path, at.what, line)
		}
	}
}

// spot is where a value is.
type spot struct {
	what  string // begins its mistakes
	name  string // in its object; empty for the section itself
	index string // of an item of a list, such as [0]
	path  string // in the section
}

// inside is what begins the mistakes in an object.
func (s spot) inside() string {
	switch {
	case s.name == "":
		return s.what
	case s.what == "":
		return s.name
	}
	return s.what + ": " + s.name
}

// field is a field of the object.
func (s spot) field(name string) spot {
	return spot{what: s.inside(), name: name, path: strings.TrimPrefix(s.path+"."+name, ".")}
}

// checker checks a section.
type checker struct {
	*section
	bytes int // of its JSON
}

// mistake records what is wrong with a value. It returns false: the value does not fit.
func (c *checker) mistake(v value, at spot, format string, args ...any) (any, bool) {
	c.record(v, at.path, at.what, fmt.Sprintf(format, args...))
	return nil, false
}

// check returns a value in its plain form, with what fits the schema. ok is false if nothing does. It knows the keywords
// that schema.json has; another one fails a test.
func (c *checker) check(v value, s *jsonschema.Schema, at spot) (plain any, ok bool) {
	name, s := definition(c.file.grammar(), s)
	kind := v.kind()
	switch {
	case c.bytes > maxSectionBytes:
		return c.mistake(v, at, "the value is nested too deeply or is too large")
	case name == "prose":
		return c.checkProse(v, s, at)
	case name == "schema":
		return c.checkSchema(v, s, at)
	case s.AnyOf != nil:
		return c.checkAlternatives(v, s, at)
	case s.Type != "" && kind != s.Type && (s.Type != "number" || kind != "integer"):
		return c.wrongForm(v, s, at)
	case s.Properties != nil || s.AdditionalProperties != nil:
		return c.checkObject(v, s, at)
	case s.Items != nil:
		return c.checkList(v, s, at)
	case s.Type == "string":
		return c.checkText(v, s, at)
	case s.MinProperties != nil:
		if members, _ := v.members(); len(members) < *s.MinProperties {
			return c.wrongForm(v, s, at)
		}
	}
	var out bytes.Buffer
	if bad, problem := v.writeJSON(&out, maxDepth); problem != "" {
		return c.mistake(bad, at, "%s", problem)
	}
	if s.Minimum != nil {
		if n, err := strconv.ParseFloat(out.String(), 64); err != nil || n < *s.Minimum || n > *s.Maximum {
			return c.mistake(v, at, "%s is %s; it must be between %.0f and %.0f", at.name, out.String(), *s.Minimum, *s.Maximum)
		}
	}
	c.bytes += out.Len()
	return json.RawMessage(out.Bytes()), true
}

// wrongForm reports a value of another form than the schema demands, in the words of the schema if it has some.
func (c *checker) wrongForm(v value, s *jsonschema.Schema, at spot) (any, bool) {
	message, _ := s.Extra["errorMessage"].(string)
	switch {
	case s.Properties != nil:
		at.what = at.inside()
		return c.mistake(v, at, "must be an object with fields")
	case strings.HasPrefix(message, "must "):
		return c.mistake(v, at, "%s %s", at.name, message)
	case message != "":
		return c.mistake(v, at, "%s", message)
	case s.Type == "string" && at.index != "":
		return c.mistake(v, at, "%s must be a list of strings; put them in quotes", at.name)
	}
	return c.mistake(v, at, "%s must be %s", at.name, map[string]string{
		"string": "a string; put it in quotes", "boolean": "true or false", "integer": "an integer", "number": "a number",
		"array": "a list", "object": "an object",
	}[s.Type])
}

// checkAlternatives checks a value by the alternative for its type. If one of them is a list, the plain form always is.
func (c *checker) checkAlternatives(v value, s *jsonschema.Schema, at spot) (any, bool) {
	kind := v.kind()
	text, _ := v.text()
	infinity, _ := v.node.(*ast.InfinityNode)
	var fits *jsonschema.Schema
	hasList := false
	for _, alternative := range s.AnyOf {
		_, resolved := definition(c.file.grammar(), alternative)
		switch {
		case resolved.Const != nil && (text == "Infinity" || infinity != nil && infinity.Value > 0): // of maxSteps
			return agent.NoMaxSteps, true
		case kind != "" && resolved.Type == kind:
			fits = alternative
		}
		hasList = hasList || resolved.Type == "array"
	}
	switch {
	case fits == nil && s.Extra["errorMessage"] != nil:
		return c.wrongForm(v, s, at)
	case fits == nil:
		_, first := definition(c.file.grammar(), s.AnyOf[0])
		return c.wrongForm(v, first, at)
	case !hasList || kind == "array":
		return c.check(v, fits, at)
	}
	at.index, at.path = "[0]", at.path+".0"
	item, ok := c.check(v, fits, at)
	return []any{item}, ok
}

// checkObject checks the fields of an object, with names of the schema or of the user's choice. Among the former a null is a
// missing field.
func (c *checker) checkObject(v value, s *jsonschema.Schema, at spot) (any, bool) {
	members, _ := v.members()
	before := v.file.count()
	plain := map[string]any{}
	for _, m := range members {
		property, inner := s.Properties[m.name], at.field(m.name)
		switch {
		case s.Properties == nil && isSection(s.AdditionalProperties):
			continue
		case s.Properties == nil:
			property = s.AdditionalProperties
			if property.Ref == "" {
				inner.what, inner.name = at.what, at.name+"."+m.name
			} else if m.node == nil {
				m.node = &ast.MappingNode{}
			}
		case property == nil:
			c.mistake(m.value, inner, "%s", c.file.unknownField(s, m.name))
			continue
		case m.node == nil:
			continue
		}
		if field, ok := c.check(m.value, property, inner); ok {
			plain[m.name] = field
		}
	}
	if at.path == "" || v.file.count() > before {
		return plain, true
	}
	message, hasMessage := s.Extra["errorMessage"].(string)
	if s.MinProperties != nil && len(plain) < *s.MinProperties || s.MaxProperties != nil && len(plain) > *s.MaxProperties {
		at.what = at.inside()
		return c.mistake(v, at, "%s", message)
	}
	for _, name := range s.Required {
		if _, has := plain[name]; has {
			continue
		}
		inner := at.field(name)
		switch description := s.Properties[name].Description; {
		case hasMessage:
		case at.index != "":
			inner.what, message = at.what, fmt.Sprintf("%s%s.%s: it is missing", at.name, at.index, name)
		default:
			message = fmt.Sprintf("%s is missing: %s%s", name, strings.ToLower(description[:1]), strings.TrimSuffix(description[1:], "."))
		}
		return c.mistake(v, inner, "%s", message)
	}
	return plain, true
}

// from says what a text is that comes from outside of the executor; "" for a file.
func (f *file) from() string {
	switch {
	case f.binding != nil:
		return "the description of an endpoint"
	case f.stored:
		return "a stored agent"
	}
	return ""
}

// unknownField says why an object has no field of a name.
func (f *file) unknownField(s *jsonschema.Schema, name string) string {
	_, ofFile := grammar().Properties[name]
	switch {
	case f.from() != "" && s == f.grammar() && ofFile:
		return fmt.Sprintf("%s has no field %q; it is for files of agents", f.from(), name)
	case f.stored && s == f.grammar().Defs["mcpServer"] && grammar().Defs["mcpServer"].Properties[name] != nil:
		return fmt.Sprintf("a stored agent cannot start programs, so there is no field %q; give the url of a server", name)
	case f.binding == nil && (name == "callbacks" || name == "methods"):
		return fmt.Sprintf("there is no field %q; it is for the descriptions of endpoints", name)
	}
	return fmt.Sprintf("there is no field %q%s", name, suggest(name, slices.Sorted(maps.Keys(s.Properties))))
}

// checkList checks the items of a list. A wrong text is left out. Any other wrong item becomes null, so that the items behind
// it keep their numbers.
func (c *checker) checkList(v value, s *jsonschema.Schema, at spot) (any, bool) {
	items, _ := v.items()
	if s.MinItems != nil && len(items) < *s.MinItems {
		return c.wrongForm(v, s, at)
	}
	plain := []any{}
	for i, item := range items {
		if isSection(s.Items) {
			break
		}
		inner := spot{what: at.what, name: at.name, index: fmt.Sprintf("[%d]", i), path: fmt.Sprintf("%s.%d", at.path, i)}
		fits, ok := c.check(item, s.Items, inner)
		if ok && s.UniqueItems && slices.Contains(plain, fits) {
			_, ok = c.mistake(item, inner, "%s lists %q twice", at.name, fits)
		}
		if ok || s.Items.Type != "string" {
			plain = append(plain, fits)
		}
	}
	return plain, true
}

func (c *checker) checkText(v value, s *jsonschema.Schema, at spot) (any, bool) {
	text, _ := v.text()
	c.bytes += len(text)
	switch {
	case !utf8.ValidString(text):
		return c.mistake(v, at, "%s must be UTF-8 text", at.name)
	case s.Format == "go-duration":
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return c.wrongForm(v, s, at)
		}
		return d, true
	case s.MinLength != nil && text == "" && s.Extra["errorMessage"] != nil:
		return c.wrongForm(v, s, at)
	case s.MinLength != nil && text == "":
		return c.mistake(v, at, "%s must be a list of strings", at.name)
	case s.Enum != nil && !slices.Contains(s.Enum, any(text)):
		var allowed []string
		for _, value := range s.Enum {
			allowed = append(allowed, fmt.Sprint(value))
		}
		return c.mistake(v, at, "%s is %q; it must be one of %s%s", at.name, text, strings.Join(allowed, ", "), suggest(text, allowed))
	}
	return text, true
}

// checkProse returns a string, or the text of a file: {file: prompt.md}.
func (c *checker) checkProse(v value, s *jsonschema.Schema, at spot) (any, bool) {
	if plain, ok := c.checkAlternatives(v, s, at); !ok || c.wrong[at.path] || v.kind() != "object" {
		return plain, ok && !c.wrong[at.path]
	}
	source, ok := c.content(v, at)
	if ok && !utf8.Valid(source.Data) {
		at.what = at.inside()
		return c.mistake(v.at("file"), at, "the file is not UTF-8 text")
	}
	return string(source.Data), ok
}

// checkSchema returns a JSON Schema, or that of a YAML or JSON file: {file: answer.json}.
func (c *checker) checkSchema(v value, s *jsonschema.Schema, at spot) (any, bool) {
	if v.kind() != "object" {
		return c.wrongForm(v, s, at)
	}
	body := v
	if members, _ := v.members(); len(members) == 1 && members[0].name == "file" {
		source, ok := c.content(v, at)
		if !ok {
			return nil, false
		}
		f := v.file.parse(source)
		if f == nil {
			c.wrong[at.path] = true
			return nil, false
		}
		body = f.root
	}
	var out bytes.Buffer
	if bad, problem := body.writeJSON(&out, maxDepth); problem != "" {
		return c.mistake(bad, at, "%s", problem)
	}
	if _, err := agent.CompileSchema(out.Bytes()); err != nil {
		return c.mistake(v, at, "%s: %s", at.name, detail(err))
	}
	return json.RawMessage(out.Bytes()), true
}

// content reads the file that an object names.
func (c *checker) content(v value, at spot) (s Source, ok bool) {
	at.what = at.inside()
	if from := v.file.from(); from != "" {
		c.mistake(v.at("file"), at, "%s cannot name files; send the text itself", from)
		return Source{}, false
	}
	path, ok := v.field("file").text()
	if !ok {
		c.mistake(v.at("file"), at, "file must be a string; put it in quotes")
		return Source{}, false
	}
	s, err := v.file.versions.read(v.file.path(path))
	if err != nil {
		c.mistake(v.at("file"), at, "file cannot be read: %v", err)
	}
	return s, err == nil
}
