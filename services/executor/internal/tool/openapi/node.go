package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// Limits of a document. A document in YAML takes a hundred times its size of memory while it is read.
const (
	MaxJSONBytes = 16 << 20
	MaxYAMLBytes = 2 << 20
	maxDepth     = 100
	maxNodes     = 1_000_000
)

// errTooMany is the mistake of a document with too many values. Merged objects count at each place.
var errTooMany = fmt.Errorf("the document has more than %d values", maxNodes)

type kind byte

const (
	null kind = iota
	object
	list
	text
	number
	boolean
)

// node is a value of a document, at the position of its name if it is a member. An alias shares the node of its anchor, so the nodes
// form a graph without cycles.
type node struct {
	kind         kind
	text         string // of a string, a number or a boolean
	line, column int
	names        []string // of the members, each of which is in items
	items        []*node
	index        map[string]int // of the members by name, once there are many
}

// manyMembers is from when on members are found by an index.
const manyMembers = 16

// find returns the number of a member, -1 if there is none.
func (n *node) find(name string) int {
	if n.index == nil {
		return slices.Index(n.names, name)
	}
	if i, ok := n.index[name]; ok {
		return i
	}
	return -1
}

// get returns a member of an object; nil for one that is missing or null, and for any other value.
func (n *node) get(name string) *node {
	if n == nil || n.kind != object {
		return nil
	}
	if i := n.find(name); i >= 0 && n.items[i].kind != null {
		return n.items[i]
	}
	return nil
}

// textOf returns a member that is a string, and "" for any other value.
func (n *node) textOf(name string) string {
	if m := n.get(name); m != nil && m.kind == text {
		return m.text
	}
	return ""
}

// is reports whether a member is true.
func (n *node) is(name string) bool {
	m := n.get(name)
	return m != nil && m.kind == boolean && m.text == "true"
}

// add adds a member. The first of two with the same name counts.
func (n *node) add(name string, item *node) {
	if n.find(name) >= 0 {
		return
	}
	n.names = append(n.names, name)
	n.items = append(n.items, item)
	if len(n.names) < manyMembers {
		return
	}
	if n.index == nil {
		n.index = map[string]int{}
		for i, name := range n.names {
			n.index[name] = i
		}
	}
	n.index[name] = len(n.names) - 1
}

// jsonReader reads JSON with the positions of its values.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	nodes   int
	// at is the offset up to which lines are counted; line and start are those of it.
	at, line, start int
}

func readJSON(data []byte) (*node, error) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.decoder.UseNumber()
	root, err := r.next(maxDepth)
	if err == nil {
		if _, more := r.decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more text after the object")
		}
	}
	if err != nil {
		line, column := r.position()
		return nil, Mistake{line, column, "it is not JSON: " + err.Error()}
	}
	return root, nil
}

// position returns where the last token begins. No token of JSON has a line break in it.
func (r *jsonReader) position() (line, column int) {
	end := min(int(r.decoder.InputOffset()), len(r.data))
	for {
		i := bytes.IndexByte(r.data[r.at:end], '\n')
		if i < 0 {
			break
		}
		r.at += i + 1
		r.line++
		r.start = r.at
	}
	r.at = end
	begin := end
	if end > r.start && r.data[end-1] == '"' {
		begin = r.start + max(0, bytes.LastIndexByte(r.data[r.start:end-1], '"'))
	}
	return r.line, begin - r.start + 1
}

func (r *jsonReader) next(depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, errTooMany
	}
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	n := &node{}
	n.line, n.column = r.position()
	switch token := token.(type) {
	case json.Delim:
		if depth == 0 {
			return nil, fmt.Errorf("values are nested deeper than %d levels", maxDepth)
		}
		n.kind = list
		if token == '{' {
			n.kind = object
		}
		for r.decoder.More() {
			name, line, column := "", 0, 0
			if n.kind == object {
				token, err := r.decoder.Token()
				if err != nil {
					return nil, err
				}
				name, _ = token.(string)
				line, column = r.position()
			}
			item, err := r.next(depth - 1)
			if err != nil {
				return nil, err
			}
			if n.kind == list {
				n.items = append(n.items, item)
				continue
			}
			item.line, item.column = line, column
			n.add(name, item)
		}
		_, err := r.decoder.Token()
		return n, err
	case string:
		n.kind, n.text = text, token
	case json.Number:
		n.kind, n.text = number, token.String()
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(token)
	}
	return n, nil
}

// yamlReader converts a parsed YAML document.
type yamlReader struct {
	anchors map[string]ast.Node
	// shared are the nodes of anchors; nil while one is read.
	shared map[ast.Node]*node
	nodes  int
}

func readYAML(root ast.Node, anchors map[string]ast.Node) (*node, error) {
	r := &yamlReader{anchors: anchors, shared: map[ast.Node]*node{}}
	return r.read(root, maxDepth)
}

// read converts a value. The parser has bounded the depth of the text; aliases can nest deeper.
func (r *yamlReader) read(from ast.Node, depth int) (*node, error) {
	n := &node{}
	if from != nil && from.GetToken() != nil {
		n.line, n.column = from.GetToken().Position.Line, from.GetToken().Position.Column
	}
	mistake := func(format string, args ...any) (*node, error) {
		return nil, Mistake{n.line, n.column, fmt.Sprintf(format, args...)}
	}
	if r.nodes++; r.nodes > maxNodes {
		return nil, errTooMany
	}
	if depth == 0 {
		return mistake("values are nested deeper than %d levels", maxDepth)
	}
	switch from := from.(type) {
	case *ast.AnchorNode:
		return r.share(from.Value, depth)
	case *ast.AliasNode:
		name := from.Value.GetToken().Value
		target, ok := r.anchors[name]
		if !ok {
			return mistake("there is no anchor &%s", name)
		}
		if made, begun := r.shared[target]; begun && made == nil {
			return mistake("the alias *%s refers to itself", name)
		}
		return r.share(target, depth)
	case *ast.TagNode:
		return r.read(from.Value, depth-1)
	case *ast.MappingNode:
		return n, r.members(n, from, depth)
	case *ast.SequenceNode:
		n.kind = list
		for _, value := range from.Values {
			item, err := r.read(value, depth-1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case *ast.StringNode:
		n.kind, n.text = text, from.Value
	case *ast.LiteralNode:
		n.kind, n.text = text, from.Value.Value
	case *ast.IntegerNode:
		n.kind, n.text = number, fmt.Sprint(from.Value)
	case *ast.FloatNode:
		n.kind, n.text = number, strconv.FormatFloat(from.Value, 'g', -1, 64)
	case *ast.BoolNode:
		n.kind, n.text = boolean, strconv.FormatBool(from.Value)
	}
	return n, nil
}

// share returns the node of an anchor, which is converted once.
func (r *yamlReader) share(target ast.Node, depth int) (*node, error) {
	if made := r.shared[target]; made != nil {
		return made, nil
	}
	r.shared[target] = nil
	made, err := r.read(target, depth-1)
	if err == nil {
		r.shared[target] = made
	}
	return made, err
}

// members converts the members of an object. Own members come before those of merged objects (<<).
func (r *yamlReader) members(n *node, from *ast.MappingNode, depth int) error {
	n.kind = object
	var merged []*node
	for _, entry := range from.Values {
		item, err := r.read(entry.Value, depth-1)
		if err != nil {
			return err
		}
		if !entry.Key.IsMergeKey() {
			placed := *item // an anchor has a place of its own
			placed.line, placed.column = entry.Key.GetToken().Position.Line, entry.Key.GetToken().Position.Column
			n.add(entry.Key.GetToken().Value, &placed)
			continue
		}
		if item.kind == list {
			merged = append(merged, item.items...)
		} else {
			merged = append(merged, item)
		}
	}
	for _, other := range merged {
		if r.nodes += len(other.names); r.nodes > maxNodes {
			return errTooMany
		}
		for i, name := range other.names {
			n.add(name, other.items[i])
		}
	}
	return nil
}
