package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of a schema.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 200
	maxNodes       = 50_000
	maxPattern     = 2000 // bytes
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
	c := &compiler{document: document, nodes: map[string]*node{}, named: map[string]string{}}
	root, err := c.compile(document, "", 0)
	if err != nil {
		return nil, err
	}
	if err := c.link(); err != nil {
		return nil, err
	}
	if err := acyclic(c.nodes); err != nil {
		return nil, err
	}
	return &Schema{root: root, tracks: c.tracks}, nil
}

// compiler makes nodes. References are linked when all of the tree is there.
type compiler struct {
	document any
	nodes    map[string]*node  // by pointer
	named    map[string]string // pointers by "#anchor" and $id
	links    []link
	tracks   bool
}

type link struct {
	from *node
	ref  string
}

func (c *compiler) compile(value any, place string, depth int) (*node, error) {
	if n, ok := c.nodes[place]; ok {
		return n, nil
	}
	if depth > maxSchemaDepth {
		return nil, wrong(place, "the schema is nested deeper than %d levels", maxSchemaDepth)
	}
	if len(c.nodes) >= maxNodes {
		return nil, fmt.Errorf("the schema has more than %d parts", maxNodes)
	}
	n := &node{place: place}
	c.nodes[place] = n
	switch v := value.(type) {
	case bool:
		n.never = !v
		return n, nil
	case map[string]any:
		r := &reader{compiler: c, object: v, place: place, depth: depth}
		r.read(n)
		return n, r.err
	}
	return nil, wrong(place, "a schema is an object or a boolean, not %s", described(value))
}

// link resolves the references. What they lead to may be compiled for it, and bring
// references of its own.
func (c *compiler) link() error {
	for len(c.links) > 0 {
		l := c.links[0]
		c.links = c.links[1:]
		place, err := c.locate(l.ref)
		if err != nil {
			return wrong(l.from.place, "%v", err)
		}
		value, ok := at(c.document, place)
		if !ok {
			return wrong(l.from.place, "the reference %q leads nowhere", l.ref)
		}
		if l.from.ref, err = c.compile(value, place, 0); err != nil {
			return err
		}
	}
	return nil
}

// locate gives the pointer that a reference leads to.
func (c *compiler) locate(ref string) (string, error) {
	if place, ok := c.named[ref]; ok {
		return place, nil
	}
	base, fragment, _ := strings.Cut(ref, "#")
	root, ok := c.named[base]
	if base != "" && !ok {
		return "", fmt.Errorf("the reference %q leads out of the schema; put what it names under $defs", ref)
	}
	if place, ok := c.named["#"+fragment]; ok && fragment != "" {
		return place, nil
	}
	pointer, err := unescape(fragment)
	if err != nil {
		return "", fmt.Errorf("the reference %q cannot be read", ref)
	}
	if pointer != "" && pointer[0] != '/' {
		return "", fmt.Errorf("the reference %q leads nowhere", ref)
	}
	return root + pointer, nil
}

// at gives the part of a document that a pointer leads to.
func at(document any, pointer string) (any, bool) {
	if pointer == "" {
		return document, true
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch v := document.(type) {
		case map[string]any:
			next, ok := v[token]
			if !ok {
				return nil, false
			}
			document = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			document = v[i]
		default:
			return nil, false
		}
	}
	return document, true
}

// acyclic refuses schemas that hold for a value when they hold for it.
func acyclic(nodes map[string]*node) error {
	const entered, left = 1, 2
	visits := make(map[*node]int, len(nodes))
	var visit func(n *node) error
	visit = func(n *node) error {
		switch visits[n] {
		case entered:
			return wrong(n.place, "the schema leads back to itself without going deeper into the value")
		case left:
			return nil
		}
		visits[n] = entered
		for _, next := range n.inPlace() {
			if err := visit(next); err != nil {
				return err
			}
		}
		visits[n] = left
		return nil
	}
	for _, place := range slices.Sorted(maps.Keys(nodes)) {
		if err := visit(nodes[place]); err != nil {
			return err
		}
	}
	return nil
}

func compilePattern(text string) (*regexp.Regexp, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, %d are allowed", len(text), maxPattern)
	}
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is not RE2 (it has no look-around and no back-references)", text)
	}
	return pattern, nil
}

func wrong(place, format string, args ...any) error {
	if place == "" {
		place = "/"
	}
	return fmt.Errorf("at %s: %w", place, fmt.Errorf(format, args...))
}

func escape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// unescape takes the percent encoding off a fragment.
func unescape(fragment string) (string, error) {
	if !strings.Contains(fragment, "%") {
		return fragment, nil
	}
	var b strings.Builder
	for i := 0; i < len(fragment); i++ {
		if fragment[i] != '%' {
			b.WriteByte(fragment[i])
			continue
		}
		if i+2 >= len(fragment) {
			return "", errors.New("cut short")
		}
		code, err := strconv.ParseUint(fragment[i+1:i+3], 16, 8)
		if err != nil {
			return "", err
		}
		b.WriteByte(byte(code))
		i += 2
	}
	return b.String(), nil
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
