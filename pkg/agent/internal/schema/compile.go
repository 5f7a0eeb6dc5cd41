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
	// maxAllowedBytes bounds the canonical values of enum and const together.
	maxAllowedBytes = 16 << 20
)

// Schema is a compiled schema. Immutable.
type Schema struct {
	root *node
	// tracks is set if a keyword needs the evaluated members or items.
	tracks bool
}

// Compile compiles a schema. The error names the place of the first mistake.
func Compile(raw []byte) (*Schema, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(raw), maxSchemaBytes)
	}
	document, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	c := &compiler{root: &location{value: document}, names: map[string]*location{}}
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

// compiler makes nodes. It links references after the whole tree is compiled.
type compiler struct {
	root         *location
	compiled     []*location          // locations with a node
	names        map[string]*location // by "#anchor" and $id
	links        []link
	tracks       bool
	programSize  int // the size of all patterns
	allowedBytes int // bytes of the values of enum and const
}

type link struct {
	from *location
	ref  string
}

func (c *compiler) compile(at *location, depth int) (*node, error) {
	if at.node != nil {
		return at.node, nil
	}
	if depth > maxSchemaDepth {
		return nil, at.errorAt("", "the schema is nested deeper than %d levels", maxSchemaDepth)
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
		r := &reader{compiler: c, object: v, location: at, depth: depth}
		r.read(n)
		return n, r.err
	}
	return nil, at.errorAt("", "a schema is an object or a boolean, not %s", describe(at.value))
}

// link resolves the references. A target not yet compiled is compiled, and may add references.
func (c *compiler) link() error {
	for len(c.links) > 0 {
		l := c.links[0]
		c.links = c.links[1:]
		to, err := c.locate(l.ref)
		if err != nil {
			return l.from.errorAt("", "%v", err)
		}
		if l.from.node.ref, err = c.compile(to, 0); err != nil {
			return err
		}
	}
	return nil
}

// locate returns the target of a reference.
func (c *compiler) locate(ref string) (*location, error) {
	if to, ok := c.names[ref]; ok {
		return to, nil
	}
	shown := clip(ref, maxShown)
	base, fragment, _ := strings.Cut(ref, "#")
	root, ok := c.names[base]
	if base != "" && !ok {
		return nil, fmt.Errorf("the reference %q leads out of the schema; put its target under $defs", shown)
	}
	if root == nil {
		root = c.root
	}
	if to, ok := c.names["#"+fragment]; ok && fragment != "" {
		return to, nil
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, fmt.Errorf("the reference %q is not a valid URI fragment", shown)
	}
	if to := root.follow(pointer); to != nil {
		return to, nil
	}
	return nil, fmt.Errorf("the reference %q has no target", shown)
}

// acyclic returns an error for a schema that refers to itself for the same value.
func acyclic(compiled []*location) error {
	const entered, finished = 1, 2
	visits := make(map[*node]int, len(compiled))
	var visit func(n *node) (back *node)
	visit = func(n *node) (back *node) {
		switch visits[n] {
		case entered:
			return n
		case finished:
			return nil
		}
		visits[n] = entered
		for _, next := range n.inPlace() {
			if back := visit(next); back != nil {
				return back
			}
		}
		visits[n] = finished
		return nil
	}
	for _, at := range compiled {
		if back := visit(at.node); back != nil {
			at = compiled[slices.IndexFunc(compiled, func(s *location) bool { return s.node == back })]
			return at.errorAt("", "the schema refers to itself for the same value")
		}
	}
	return nil
}

func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case json.Number:
		return "the number " + clip(string(v), maxShown)
	case string:
		return "the string " + strconv.Quote(clip(v, maxShown))
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "an object"
}
