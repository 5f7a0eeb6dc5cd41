package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
)

// Limits of YAML that would take long to read, or would be endless or huge when its aliases
// are followed.
const (
	maxDepth = 100
	maxJSON  = 1 << 20 // bytes of one value
)

// value is a value of a file, with its aliases followed.
type value struct {
	file *file
	line int
	node ast.Node // nil for nothing
}

// file is a file that was read.
type file struct {
	name    string // for mistakes
	dir     string // what relative paths in it are relative to
	root    value
	anchors map[string]ast.Node
}

// parse reads the tree of a file. What it cannot read is one mistake.
func (r *reader) parse(s Source) *file {
	f := &file{name: s.Name, dir: s.Dir, anchors: map[string]ast.Node{}}
	f.root = value{file: f, line: 1}
	if len(s.Data) > maxFileBytes {
		r.mistake(f.root, "the file has %d bytes, %d are allowed", len(s.Data), maxFileBytes)
		return nil
	}
	tokens := lexer.Tokenize(string(s.Data))
	if t := tooDeep(tokens); t != nil {
		r.mistake(value{file: f, line: t.Position.Line}, "values are nested too deep: %d levels are allowed", maxDepth)
		return nil
	}
	tree, err := parser.Parse(tokens, 0)
	if err != nil {
		line, text := 1, err.Error()
		if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
			line, text = e.GetToken().Position.Line, e.GetMessage()
		}
		r.mistake(value{file: f, line: line}, "%s", text)
		return nil
	}
	var documents []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil {
			documents = append(documents, d.Body)
		}
	}
	if len(documents) > 1 {
		r.mistake(value{file: f, line: documents[1].GetToken().Position.Line}, "more than one YAML document; put all agents into the first")
	}
	if len(documents) == 0 {
		r.mistake(f.root, "no agents: the file is empty; take it away, or write something into it")
		return nil
	}
	ast.Walk(anchors(f.anchors), documents[0])
	f.root = r.follow(f, documents[0])
	f.root.line = documents[0].GetToken().Position.Line
	return f
}

// anchors notes where the anchors are.
type anchors map[string]ast.Node

// Visit notes an anchor.
func (a anchors) Visit(node ast.Node) ast.Visitor {
	if anchor, ok := node.(*ast.AnchorNode); ok {
		a[anchor.Name.GetToken().Value] = anchor.Value
	}
	return a
}

// follow gives the value of a node behind aliases, anchors and tags.
func (r *reader) follow(f *file, node ast.Node) value {
	v := value{file: f, line: 1, node: node}
	if node != nil && node.GetToken() != nil {
		v.line = node.GetToken().Position.Line
	}
	for range maxDepth {
		switch n := v.node.(type) {
		case *ast.AnchorNode:
			v.node = n.Value
		case *ast.TagNode:
			v.node = n.Value
		case *ast.AliasNode:
			name := n.Value.GetToken().Value
			target, ok := f.anchors[name]
			if !ok {
				r.mistake(v, "there is no anchor &%s", name)
				v.node = nil
				return v
			}
			v.node = target
		case *ast.NullNode:
			v.node = nil
			return v
		default:
			return v
		}
	}
	r.mistake(v, "the aliases lead to themselves")
	v.node = nil
	return v
}

// member is a field of an object.
type member struct {
	name  string
	line  int
	value value
}

// members gives the fields of an object in their order, those of merged objects behind
// its own. ok is false for anything but an object.
func (r *reader) members(v value, depth int) (list []member, ok bool) {
	mapping, ok := v.node.(*ast.MappingNode)
	if !ok || depth == 0 {
		return nil, false
	}
	var merged []member
	for _, entry := range mapping.Values {
		item := r.follow(v.file, entry.Value)
		if !entry.Key.IsMergeKey() {
			key := entry.Key.GetToken()
			list = append(list, member{name: key.Value, line: key.Position.Line, value: item})
			continue
		}
		below, ok := r.members(item, depth-1)
		if !ok {
			r.mistake(item, "<< must be followed by an object")
		}
		merged = append(merged, below...)
	}
	for _, m := range merged {
		if !slices.ContainsFunc(list, func(own member) bool { return own.name == m.name }) {
			list = append(list, m)
		}
	}
	return list, true
}

// items gives the elements of a list; ok is false for anything else.
func (r *reader) items(v value) (list []value, ok bool) {
	sequence, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	for _, node := range sequence.Values {
		list = append(list, r.follow(v.file, node))
	}
	return list, true
}

// text gives a text; ok is false for anything else.
func (v value) text() (text string, ok bool) {
	switch n := v.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

func (v value) integer() (int, bool) {
	n, ok := v.node.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch i := n.Value.(type) {
	case int64:
		return int(i), true
	case uint64:
		return int(i), i < 1<<62
	}
	return 0, false
}

// infinite is for YAML's own infinity, and for what JavaScript calls it.
func (v value) infinite() bool {
	n, ok := v.node.(*ast.InfinityNode)
	text, _ := v.text()
	return ok && n.Value > 0 || text == "Infinity"
}

func (v value) number() (float64, bool) {
	if n, ok := v.node.(*ast.FloatNode); ok {
		return n.Value, true
	}
	i, ok := v.integer()
	return float64(i), ok
}

func (v value) duration() (time.Duration, bool) {
	text, ok := v.text()
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// json gives the value as JSON, with fields in their order. Nil, with a mistake, for
// what JSON cannot express.
func (r *reader) json(v value) json.RawMessage {
	var out bytes.Buffer
	if !r.writeJSON(&out, v, maxDepth) {
		return nil
	}
	return out.Bytes()
}

func (r *reader) writeJSON(out *bytes.Buffer, v value, depth int) bool {
	if depth == 0 || out.Len() > maxJSON {
		r.mistake(v, "the value is too deep or too large")
		return false
	}
	if members, ok := r.members(v, maxDepth); ok {
		return r.writeAll(out, "{}", len(members), func(i int) bool {
			writeScalar(out, members[i].name)
			out.WriteByte(':')
			return r.writeJSON(out, members[i].value, depth-1)
		})
	}
	if items, ok := r.items(v); ok {
		return r.writeAll(out, "[]", len(items), func(i int) bool { return r.writeJSON(out, items[i], depth-1) })
	}
	if text, ok := v.text(); ok {
		return writeScalar(out, text)
	}
	switch n := v.node.(type) {
	case nil:
		return writeScalar(out, nil)
	case *ast.BoolNode:
		return writeScalar(out, n.Value)
	case *ast.IntegerNode:
		return writeScalar(out, n.Value)
	case *ast.FloatNode:
		return writeScalar(out, n.Value)
	}
	r.mistake(v, "JSON has no value like %s", v.node.GetToken().Value)
	return false
}

func (r *reader) writeAll(out *bytes.Buffer, brackets string, count int, write func(i int) bool) bool {
	out.WriteByte(brackets[0])
	for i := range count {
		if i > 0 {
			out.WriteByte(',')
		}
		if !write(i) {
			return false
		}
	}
	out.WriteByte(brackets[1])
	return true
}

func writeScalar(out *bytes.Buffer, scalar any) bool {
	text, err := json.Marshal(scalar)
	out.Write(text)
	return err == nil
}

// mistake notes what is wrong at a place.
func (r *reader) mistake(at value, format string, args ...any) {
	r.mistakes = append(r.mistakes, mistake{file: at.file.name, line: at.line, text: fmt.Sprintf(format, args...)})
}

type mistake struct {
	file string
	line int
	text string
}

// told gives the mistakes for people, a line for each, at most maxMistakes.
func told(mistakes []mistake) string {
	var lines []string
	seen := map[mistake]bool{}
	for _, m := range mistakes {
		if !seen[m] {
			lines = append(lines, fmt.Sprintf("%s:%d: %s", m.file, m.line, m.text))
		}
		seen[m] = true
	}
	if more := len(lines) - maxMistakes; more > 0 {
		lines = append(lines[:maxMistakes], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// maxMistakes is how many are told at once.
const maxMistakes = 100
