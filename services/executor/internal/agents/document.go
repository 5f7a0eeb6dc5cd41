package agents

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/services/executor/internal/endpoint"
)

// maxDepth bounds the nesting of a file, and of its values with aliases expanded.
const maxDepth = 100

// sources is shared by all files of a set.
type sources struct {
	mistakes
	versions *Versions
}

// file is a parsed file.
type file struct {
	*sources
	name    string // in mistakes
	dir     string // base of its relative paths
	root    value
	anchors map[string]ast.Node
	tools   *tools            // that its agents use by name
	binding *endpoint.Binding // of the description of an endpoint; nil for a file
	stored  bool              // the definition of a stored agent
}

// grammar is what the fields of the file must fit. It must not be modified.
func (f *file) grammar() *jsonschema.Schema {
	switch {
	case f.binding != nil:
		return describing()
	case f.stored:
		return storing()
	}
	return grammar()
}

// value is a value of a file. Aliases, anchors and tags are resolved.
type value struct {
	position
	file     *file
	node     ast.Node // nil for null
	defaults []member // supply missing fields
}

// mistake records what is wrong with the value.
func (v value) mistake(format string, args ...any) {
	v.file.add(v.file.name, v.position, format, args...)
}

// parse parses a file. It returns nil, with a mistake, for a file that is too large, too deep, empty or
// not YAML.
func (s *sources) parse(source Source) *file { return s.parseUpTo(source, maxFileBytes) }

// parseUpTo is parse for files of another size.
func (s *sources) parseUpTo(source Source, limit int) *file {
	f := &file{sources: s, name: source.Name, dir: source.Dir, anchors: map[string]ast.Node{}}
	f.root = value{file: f, position: position{1, 1}}
	if len(source.Data) > limit {
		f.root.mistake("the file has %d bytes; at most %d are allowed", len(source.Data), limit)
		return nil
	}
	tokens := lexer.Tokenize(string(source.Data))
	if t := tooDeep(tokens); t != nil {
		f.at(t.Position.Line, t.Position.Column).mistake("values are nested deeper than %d levels", maxDepth)
		return nil
	}
	tree, err := parser.Parse(tokens, 0)
	if err != nil {
		at, text := f.root, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
			at, text = f.at(e.GetToken().Position.Line, e.GetToken().Position.Column), e.GetMessage()
		}
		at.mistake("%s%s", text, shownLine(source.Data, at.line))
		return nil
	}
	var documents []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil {
			documents = append(documents, d.Body)
		}
	}
	if len(documents) == 0 {
		f.root.mistake("no agents: the file is empty")
		return nil
	}
	if len(documents) > 1 {
		f.value(documents[1]).mistake("more than one YAML document; put all agents into the first")
	}
	ast.Walk(anchors(f.anchors), documents[0])
	f.root = f.value(documents[0])
	return f
}

// maxShownLine bounds the part of a line in a mistake, in characters.
const maxShownLine = 120

// shownLine shows a line that is not YAML, and names the most frequent mistake in such lines.
func shownLine(data []byte, number int) string {
	lines := strings.SplitN(string(data), "\n", number+1)
	if number > len(lines) {
		return ""
	}
	line := []rune(strings.ToValidUTF8(strings.TrimSuffix(lines[number-1], "\r"), "?"))
	advice := "check the indentation of this line and of the one before it, and quote texts with a colon"
	if strings.HasPrefix(strings.TrimLeft(string(line), " "), "\t") {
		advice = "indent with spaces, YAML takes no tabs"
	}
	return fmt.Sprintf(", in the line %q: %s", string(line[:min(len(line), maxShownLine)]), advice)
}

func (f *file) at(line, column int) value { return value{file: f, position: position{line, column}} }

// place says where the value is.
func (v value) place() string { return v.file.placeOf(v.file.name, v.position, v.file.part) }

// at returns the value at a path such as http.url or tools.0, for its position. It returns the value around one that is
// missing. Item 0 of what is no list is the value itself.
func (v value) at(path string) value {
	name, rest, _ := strings.Cut(path, ".")
	members, _ := v.members()
	for _, m := range members {
		if m.name == name {
			return m.at(rest)
		}
	}
	items, isList := v.items()
	switch i, err := strconv.Atoi(name); {
	case err == nil && i < len(items):
		return items[i].at(rest)
	case err == nil && !isList && rest != "":
		return v.at(rest)
	}
	return v
}

// field returns a field of an object, and null for a missing one.
func (v value) field(name string) value {
	members, _ := v.members()
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return value{file: v.file, position: v.position}
}

// has reports whether an object has a field, other than null.
func (v value) has(name string) bool { return v.field(name).node != nil }

// placed returns the position of a node without its value. A block mapping is placed at its first key:
// its own token is a colon.
func (f *file) placed(node ast.Node) value {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		node = m.Values[0].Key
	}
	if node == nil || node.GetToken() == nil {
		return f.at(1, 1)
	}
	return f.at(node.GetToken().Position.Line, node.GetToken().Position.Column)
}

// anchors collects anchors by name.
type anchors map[string]ast.Node

// Visit collects the anchor of a node.
func (a anchors) Visit(node ast.Node) ast.Visitor {
	if anchor, ok := node.(*ast.AnchorNode); ok {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// value resolves the aliases, anchors and tags of a node. Its position is that of the alias.
func (f *file) value(node ast.Node) value {
	v := f.placed(node)
	for range maxDepth {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.TagNode:
			node = n.Value
		case *ast.AliasNode:
			name := n.Value.GetToken().Value
			target, ok := f.anchors[name]
			if !ok {
				v.mistake("there is no anchor &%s", name)
				return v
			}
			node = target
		case *ast.NullNode:
			return v
		default:
			v.node = node
			return v
		}
	}
	v.mistake("the alias refers to itself")
	return v
}

// member is a field of an object. It is placed at its name.
type member struct {
	name string
	value
}

// members returns the fields of an object in order, followed by the fields of merged objects (<<) and by
// the defaults. Own fields override merged ones. ok is false for any other value.
func (v value) members() (list []member, ok bool) { return v.membersWithin(maxDepth) }

func (v value) membersWithin(depth int) (list []member, ok bool) {
	mapping, ok := v.node.(*ast.MappingNode)
	if !ok || depth == 0 {
		return nil, false
	}
	var merged []member
	for _, entry := range mapping.Values {
		item := v.file.value(entry.Value)
		if !entry.Key.IsMergeKey() {
			key := entry.Key.GetToken()
			item.position = position{key.Position.Line, key.Position.Column}
			list = append(list, member{key.Value, item})
			continue
		}
		below, ok := item.membersWithin(depth - 1)
		if !ok {
			item.mistake("<< must be followed by an object")
		}
		merged = append(merged, below...)
	}
	for _, m := range append(merged, v.defaults...) {
		if !slices.ContainsFunc(list, func(own member) bool { return own.name == m.name }) {
			list = append(list, m)
		}
	}
	return list, true
}

// items returns the items of a list; ok is false for any other value.
func (v value) items() (list []value, ok bool) {
	sequence, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	for _, node := range sequence.Values {
		list = append(list, v.file.value(node))
	}
	return list, true
}

// text returns a string; ok is false for any other value. Numbers and booleans are not strings:
// 1.10 would become 1.1, and 010 would become 8.
func (v value) text() (text string, ok bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// kind is the JSON type of a value, "" for a value without JSON such as .inf. A number without a fraction is an integer.
func (v value) kind() string {
	switch n := v.node.(type) {
	case nil:
		return "null"
	case *ast.MappingNode:
		return "object"
	case *ast.SequenceNode:
		return "array"
	case *ast.StringNode, *ast.LiteralNode:
		return "string"
	case *ast.BoolNode:
		return "boolean"
	case *ast.IntegerNode:
		return "integer"
	case *ast.FloatNode:
		if n.Value == math.Trunc(n.Value) {
			return "integer"
		}
		return "number"
	}
	return ""
}
