package schema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits of a schema.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 200
	maxNodes       = 50_000
	// maxKeys bounds the texts that the values of enum and const are known by, in bytes.
	maxKeys = 16 << 20
)

// Schema is a compiled schema. Immutable.
type Schema struct {
	root *node
	// tracks says that unevaluated members or items are asked for somewhere.
	tracks bool
}

// Compile reads a schema. The error says what is wrong and where.
func Compile(raw []byte) (*Schema, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("the schema has %d bytes, %d are allowed", len(raw), maxSchemaBytes)
	}
	document, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	c := &compiler{root: &spot{value: document}, named: map[string]*spot{}}
	root, err := c.compile(c.root, 0)
	if err != nil {
		return nil, err
	}
	if err := c.link(); err != nil {
		return nil, err
	}
	if err := acyclic(c.compiled); err != nil {
		return nil, err
	}
	return &Schema{root: root, tracks: c.tracks}, nil
}

// compiler makes nodes. References are linked when all of the tree is there.
type compiler struct {
	root     *spot
	compiled []*spot          // those with a node
	named    map[string]*spot // by "#anchor" and $id
	links    []link
	tracks   bool
	programs int // the size of all patterns
	keys     int // bytes of the values of enum and const
}

type link struct {
	from *spot
	ref  string
}

func (c *compiler) compile(at *spot, depth int) (*node, error) {
	if at.node != nil {
		return at.node, nil
	}
	if depth > maxSchemaDepth {
		return nil, at.wrong("", "the schema is nested deeper than %d levels", maxSchemaDepth)
	}
	if len(c.compiled) >= maxNodes {
		return nil, fmt.Errorf("the schema has more than %d parts", maxNodes)
	}
	n := &node{}
	at.node = n
	c.compiled = append(c.compiled, at)
	switch v := at.value.(type) {
	case bool:
		n.never = !v
		return n, nil
	case map[string]any:
		r := &reader{compiler: c, object: v, spot: at, depth: depth}
		r.read(n)
		return n, r.err
	}
	return nil, at.wrong("", "a schema is an object or a boolean, not %s", described(at.value))
}

// link resolves the references. What they lead to may be compiled for it, and bring
// references of its own.
func (c *compiler) link() error {
	for len(c.links) > 0 {
		l := c.links[0]
		c.links = c.links[1:]
		to, err := c.locate(l.ref)
		if err != nil {
			return l.from.wrong("", "%v", err)
		}
		if l.from.node.ref, err = c.compile(to, 0); err != nil {
			return err
		}
	}
	return nil
}

// locate gives what a reference leads to.
func (c *compiler) locate(ref string) (*spot, error) {
	if to, ok := c.named[ref]; ok {
		return to, nil
	}
	shown := clip(ref, maxShown)
	base, fragment, _ := strings.Cut(ref, "#")
	root, ok := c.named[base]
	if base != "" && !ok {
		return nil, fmt.Errorf("the reference %q leads out of the schema; put what it names under $defs", shown)
	}
	if root == nil {
		root = c.root
	}
	if to, ok := c.named["#"+fragment]; ok && fragment != "" {
		return to, nil
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, fmt.Errorf("the reference %q cannot be read", shown)
	}
	if to := root.follow(pointer); to != nil {
		return to, nil
	}
	return nil, fmt.Errorf("the reference %q leads nowhere", shown)
}

// acyclic refuses schemas that hold for a value when they hold for it.
func acyclic(compiled []*spot) error {
	const entered, left = 1, 2
	visits := make(map[*node]int, len(compiled))
	var visit func(n *node) (back *node)
	visit = func(n *node) (back *node) {
		switch visits[n] {
		case entered:
			return n
		case left:
			return nil
		}
		visits[n] = entered
		for _, next := range n.inPlace() {
			if back := visit(next); back != nil {
				return back
			}
		}
		visits[n] = left
		return nil
	}
	for _, at := range compiled {
		if back := visit(at.node); back != nil {
			at = compiled[slices.IndexFunc(compiled, func(s *spot) bool { return s.node == back })]
			return at.wrong("", "the schema leads back to itself without going deeper into the value")
		}
	}
	return nil
}

func described(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case json.Number:
		return "the number " + clip(string(v), maxShown)
	case string:
		return "the text " + strconv.Quote(clip(v, maxShown))
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "an object"
}
