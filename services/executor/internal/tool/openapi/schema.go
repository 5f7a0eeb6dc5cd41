package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Limits of an input schema.
const (
	maxSchemaBytes = 32 << 10
	maxSchemaWork  = 1 << 20 // visited members
	maxPropertyDoc = 300     // bytes
)

// depths are tried until a schema keeps its limits. Any value fits below the depth; the server checks it anyway.
var depths = []int{60, 8, 5, 3, 2, 1}

// schemas writes the schemas of an operation as JSON Schema of draft 2020-12. What a schema refers to becomes a definition.
type schemas struct {
	d       *Document
	out     bytes.Buffer
	names   map[*node]string // of the definitions
	taken   map[string]bool
	queue   []definition
	work    int
	problem string // the first one
}

// definition is a schema that another one refers to, with the depth that remains for it.
type definition struct {
	of    *node
	depth int
}

// plain are keywords that are copied.
var plain = []string{
	"title", "format", "minLength", "maxLength", "minimum", "maximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
	"minProperties", "maxProperties", "default", "const", "minContains", "maxContains", "dependentRequired",
}

// write writes a schema. A description is added if the schema has none.
func (s *schemas) write(n *node, description string, depth int) {
	if n != nil && n.kind == boolean {
		s.out.WriteString(n.text)
		return
	}
	if n == nil || n.kind != object || s.isFull() || depth <= 0 {
		s.out.WriteString("{}")
		return
	}
	s.work += len(n.names)
	wrap := n.is("nullable") && n.get("type") == nil
	if wrap {
		s.out.WriteString(`{"anyOf":[`)
	}
	o := members{s: s}
	s.out.WriteByte('{')
	if ref := n.textOf("$ref"); ref != "" {
		target, problem := s.d.at(ref)
		s.report(problem)
		o.name("$ref")
		s.string("#/$defs/" + s.define(target, ref, depth-1))
	} else {
		s.keywords(n, &o, depth)
	}
	if own := n.textOf("description"); own != "" {
		description = own
	}
	if description != "" {
		o.name("description")
		s.string(shorten(strings.TrimSpace(description), maxPropertyDoc))
	}
	s.out.WriteByte('}')
	if wrap {
		s.out.WriteString(`,{"type":"null"}]}`)
	}
}

// isFull reports whether the schema is beyond its limits, so that it is of no use.
func (s *schemas) isFull() bool { return s.out.Len() > maxSchemaBytes || s.work > maxSchemaWork }

func (s *schemas) report(problem string) {
	if s.problem == "" {
		s.problem = problem
	}
}

// members separates the members of an object.
type members struct {
	s    *schemas
	some bool
}

func (m *members) name(name string) {
	if m.some {
		m.s.out.WriteByte(',')
	}
	m.some = true
	m.s.string(name)
	m.s.out.WriteByte(':')
}

// keywords writes the keywords of a schema, without those that say nothing about a request.
func (s *schemas) keywords(n *node, o *members, depth int) {
	for i, name := range n.names {
		value := n.items[i]
		switch {
		case value.kind == null:
		case name == "type":
			o.name(name)
			if n.is("nullable") && value.kind == text {
				list, _ := json.Marshal([]string{value.text, "null"})
				s.out.Write(list)
				continue
			}
			s.value(value, maxDepth)
		case name == "enum" && value.kind == list:
			o.name(name)
			if n.is("nullable") && !slices.ContainsFunc(value.items, func(v *node) bool { return v.kind == null }) {
				value = &node{kind: list, items: append(slices.Clone(value.items), &node{})}
			}
			s.value(value, maxDepth)
		case (name == "properties" || name == "patternProperties" || name == "dependentSchemas") && value.kind == object:
			o.name(name)
			s.properties(value, depth)
		case name == "required" && value.kind == list:
			s.required(n, value, o)
		case slices.Contains([]string{"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"}, name):
			o.name(name)
			s.write(value, "", depth-1)
		case slices.Contains([]string{"allOf", "anyOf", "oneOf", "prefixItems"}, name) && value.kind == list && len(value.items) > 0:
			o.name(name)
			s.out.WriteByte('[')
			for i, item := range value.items {
				if i > 0 {
					s.out.WriteByte(',')
				}
				s.write(item, "", depth-1)
			}
			s.out.WriteByte(']')
		case name == "pattern" && value.kind == text:
			pattern, _ := json.Marshal(map[string]string{"pattern": value.text})
			if _, err := agent.CompileSchema(pattern); err == nil { // the server checks it anyway
				o.name(name)
				s.string(value.text)
			}
		case name == "exclusiveMinimum" || name == "exclusiveMaximum":
			s.exclusive(n, name, value, o)
		case (name == "minimum" || name == "maximum") && n.is("exclusive"+strings.ToUpper(name[:1])+name[1:]):
		case slices.Contains(plain, name):
			o.name(name)
			s.value(value, maxDepth)
		}
	}
}

// exclusive writes a limit: in OpenAPI 3.0 the keyword is a boolean beside minimum or maximum.
func (s *schemas) exclusive(n *node, name string, value *node, o *members) {
	if value.kind == boolean {
		if value = n.get(strings.ToLower(strings.TrimPrefix(name, "exclusive"))); value == nil || !n.is(name) {
			return
		}
	}
	o.name(name)
	s.value(value, 1)
}

// properties writes an object of schemas, without properties that only answers have.
func (s *schemas) properties(n *node, depth int) {
	s.work += len(n.names)
	o := members{s: s}
	s.out.WriteByte('{')
	for i, name := range n.names {
		if s.isFull() {
			break
		}
		if s.isReadOnly(n.items[i]) {
			continue
		}
		o.name(name)
		s.write(n.items[i], "", depth-1)
	}
	s.out.WriteByte('}')
}

// required writes the names of required properties that a request has.
func (s *schemas) required(n, names *node, o *members) {
	var kept []string
	properties := n.get("properties")
	for _, name := range names.items {
		if name.kind == text && !s.isReadOnly(properties.get(name.text)) {
			kept = append(kept, name.text)
		}
	}
	if len(kept) == 0 {
		return
	}
	list, _ := json.Marshal(kept)
	o.name("required")
	s.out.Write(list)
}

// isReadOnly reports whether only answers have a property.
func (s *schemas) isReadOnly(n *node) bool {
	if n.is("readOnly") {
		return true
	}
	target, _ := s.d.follow(n)
	return target.is("readOnly")
}

// define returns the name of the definition of a schema.
func (s *schemas) define(target *node, ref string, depth int) string {
	if name, ok := s.names[target]; ok {
		return name
	}
	base := strings.Trim(squeeze(ref[strings.LastIndexByte(ref, '/')+1:]), "_")
	if base == "" {
		base = "schema"
	}
	name := base
	for i := 2; s.taken[name]; i++ {
		name = fmt.Sprintf("%s_%d", base, i)
	}
	s.names[target], s.taken[name] = name, true
	s.queue = append(s.queue, definition{target, depth})
	return name
}

// definitions writes the definitions, and those that they refer to.
func (s *schemas) definitions() {
	if len(s.queue) == 0 {
		return
	}
	s.out.WriteString(`,"$defs":{`)
	for i := 0; i < len(s.queue); i++ {
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.string(s.names[s.queue[i].of])
		s.out.WriteByte(':')
		s.write(s.queue[i].of, "", s.queue[i].depth)
	}
	s.out.WriteByte('}')
}

// value writes a value as it is.
func (s *schemas) value(n *node, depth int) {
	s.work += len(n.items)
	switch {
	case s.isFull() || depth <= 0 || n.kind == null:
		s.out.WriteString("null")
	case n.kind == text:
		s.string(n.text)
	case n.kind == object:
		o := members{s: s}
		s.out.WriteByte('{')
		for i, name := range n.names {
			o.name(name)
			s.value(n.items[i], depth-1)
		}
		s.out.WriteByte('}')
	case n.kind == list:
		s.out.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				s.out.WriteByte(',')
			}
			s.value(item, depth-1)
		}
		s.out.WriteByte(']')
	default:
		if !json.Valid([]byte(n.text)) { // a number of YAML such as .inf
			s.out.WriteString("null")
			return
		}
		s.out.WriteString(n.text)
	}
}

func (s *schemas) string(text string) {
	quoted, _ := json.Marshal(text) // of a text
	s.out.Write(quoted)
}
